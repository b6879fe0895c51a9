//! The report of two runs as Markdown.

use estafette_measure::ranking;

use super::super::answers::scope_heading;
use super::super::document::cleaned;
use super::super::grid::escaped_markdown;
use super::super::machine;
use super::super::markdown::code;
use super::doubts::doubts;
use super::pair::{NAMES, Pair};
use super::{runs, verdicts};

/// Returns the text.
pub(crate) fn markdown(pair: &Pair<'_>) -> String {
    let mut text = what_changed(pair);
    if let Ok(comparison) = &pair.comparison {
        for (scope, grid) in verdicts::grids(comparison) {
            text.push_str(&format!("### {}: changes\n\n{}\n", scope_heading(scope), grid.markdown()));
        }
    }
    text.push_str("### How far to trust it\n\n");
    for (title, sentences) in doubts(pair, &pair.records.map(ranking::rank)) {
        let title = title.map_or(String::new(), |title| format!("{title}: "));
        let sentences: Vec<String> = sentences.iter().map(|sentence| escaped_markdown(sentence)).collect();
        if !sentences.is_empty() {
            text.push_str(&format!("{title}{}\n\n", sentences.join(" ")));
        }
    }
    text.push_str(&format!("### The machines\n\n{}", runs::grid(pair).markdown()));
    for (name, record) in NAMES.into_iter().zip(pair.records) {
        if let Some(command) = machine::command(record) {
            text.push_str(&format!("\nTo measure {name} again: {}\n", code(&command)));
        }
    }
    cleaned(&text)
}

/// The first section: the answer, the files, and lists of cases.
fn what_changed(pair: &Pair<'_>) -> String {
    let answer = verdicts::answer(&pair.comparison);
    let mut text = format!("## What changed\n\n{}\n\n", escaped_markdown(&answer.sentence));
    for difference in &answer.differences {
        text.push_str(&format!("- {}\n", escaped_markdown(difference)));
    }
    if !answer.differences.is_empty() {
        text.push('\n');
    }
    for (at, name) in NAMES.into_iter().enumerate() {
        let line = runs::line(&pair.files[at], pair.records[at]);
        text.push_str(&format!("- {name}: {}\n", escaped_markdown(&line)));
    }
    text.push('\n');
    for cases in pair.comparison.iter().flat_map(verdicts::lists) {
        text.push_str(&format!("- **{}**\n", cases.title));
        for case in &cases.listed {
            let words = format!("{} in {}: {}", case.mechanism, case.cell, verdicts::change(case));
            text.push_str(&format!("  - {}\n", escaped_markdown(&words)));
        }
        if cases.more > 0 {
            text.push_str(&format!("  - {} more, see the tables\n", cases.more));
        }
    }
    text.push('\n');
    text
}
