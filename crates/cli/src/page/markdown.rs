//! A record as Markdown: the answers, then the table of each cell.

use estafette_measure::ranking::{self, Ranking};
use estafette_measure::record::Record;

use super::document::cleaned;
use super::grid::escaped_markdown;
use super::{answers, cells, machine};
use crate::table::{answer, facts, notes};
use crate::{hosts, other_load, summary};

/// Returns the text.
pub(crate) fn markdown(record: &Record) -> String {
    let rankings = ranking::rank(record);
    let mut text = format!("## What to use\n\n{}\n", answers_list(&rankings));
    for ranking in &rankings {
        text.push_str(&cell(ranking));
    }
    text.push_str("### How far to trust it\n\n");
    for sentence in summary::doubts(record, &rankings).iter().chain(other_load::sentence(record).as_ref()) {
        text.push_str(&format!("{}\n\n", escaped_markdown(sentence)));
    }
    if let Some(sentence) = hosts::sentence(record) {
        text.push_str(&format!("{}\n\n", escaped_markdown(&sentence)));
    }
    let [cpu, kernel] = [&record.fingerprint.cpu, &record.fingerprint.kernel].map(|fact| escaped_markdown(fact));
    text.push_str(&format!("{cpu}, {} cores, Linux {kernel}. ", record.fingerprint.cores));
    if let Some(command) = machine::command(record) {
        text.push_str(&format!("To measure again: {}\n", code(&command)));
    }
    cleaned(&text)
}

/// The answers as a list, by scope.
fn answers_list(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    for of_scope in answers::answers(rankings) {
        text.push_str(&format!("- **{}**\n", answers::scope_heading(of_scope.scope)));
        for answer in of_scope.answers {
            let parts = answer.parts.iter().map(|part| {
                let at = if part.at.is_empty() { String::new() } else { format!("{}: ", part.at) };
                let more = if part.more.is_empty() { String::new() } else { format!(" {}", part.more) };
                escaped_markdown(&format!("{at}{}.{more}", part.words))
            });
            let parts: Vec<String> = parts.collect();
            text.push_str(&format!("  - {}: {}\n", escaped_markdown(&answer.case), parts.join(" ")));
        }
    }
    text
}

fn cell(ranking: &Ranking) -> String {
    let mut text = format!("### {}\n\n", escaped_markdown(&ranking.cell.to_string()));
    if cells::has_answer(&ranking.cell) {
        text.push_str(&format!("{}\n\n", escaped_markdown(&answer(ranking))));
    }
    text.push_str(&cells::grid(ranking).markdown());
    let facts = facts(ranking);
    if !facts.is_empty() {
        text.push_str(&format!("\n{}\n", escaped_markdown(&facts.join(" · "))));
    }
    let notes = notes(ranking, "");
    if !notes.is_empty() {
        text.push('\n');
        notes.iter().for_each(|note| text.push_str(&format!("- {}\n", escaped_markdown(note.text()))));
    }
    text.push('\n');
    text
}

/// Text as code. A fence that the text contains is made longer.
pub(super) fn code(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut fence = String::from("`");
    while text.contains(&fence) {
        fence.push('`');
    }
    if fence.len() == 1 { format!("`{text}`") } else { format!("{fence} {text} {fence}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_keeps_its_text() {
        assert_eq!(code("estafette bench"), "`estafette bench`");
        assert_eq!(code("a `b`\n"), "`` a `b`  ``");
    }
}
