//! The output of `gate` as text, as Markdown and as JUnit XML.

use estafette_measure::units;

use super::judgement::{GateOutcome, Judged, Judgement};
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::comparison::words::{figure, percent};

const HEADERS: [&str; 5] = ["mechanism", "base", "new", "time per message", "outcome"];

/// Returns the judgement as a table for each cell and a summary, for a terminal. The cell with the
/// gravest case is the first.
pub(super) fn text(judgement: &Judgement) -> String {
    let mut text = String::new();
    let mut rest: Vec<&Judged> = judgement.cases.iter().collect();
    while let Some(Judged { cell, .. }) = rest.first() {
        let (cases, others): (Vec<&Judged>, Vec<&Judged>) = rest.iter().partition(|case| case.cell == *cell);
        let rows: Vec<Vec<String>> = cases.iter().map(|case| row(case).to_vec()).collect();
        text.push_str(&format!("{cell}\n{}\n", columns(&HEADERS, &[Left, Right, Right, Left, Left], &rows)));
        rest = others;
    }
    text.push_str(&wrapped("", &summary(judgement)));
    text.extend(judgement.notes.iter().map(|note| wrapped("", &format!("Note: {}.", plain(note)))));
    text
}

/// Returns the judgement as Markdown, for a comment on a change.
pub(super) fn markdown(judgement: &Judgement) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = format!("**{}**\n\n", escaped_markdown(&summary(judgement)));
    let with_cell = |cells: &[String], cell: String| line(&[&cells[..1], &[cell], &cells[1..]].concat());
    text.push_str(&with_cell(&HEADERS.map(String::from), String::from("cell")));
    text.push_str("|---|---|---:|---:|---|---|\n");
    for case in &judgement.cases {
        let cells = row(case).map(|cell| escaped_markdown(&cell));
        text.push_str(&with_cell(&cells, escaped_markdown(&case.cell.to_string())));
    }
    for note in &judgement.notes {
        text.push_str(&format!("\n{}.\n", escaped_markdown(&plain(note))));
    }
    text
}

/// Returns the judgement as JUnit XML, which most systems for continuous integration read. An
/// undecided case is skipped; any other that is not fine is a failure.
pub(super) fn junit(judgement: &Judgement) -> String {
    let undecided = judgement.count(GateOutcome::Undecided);
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"estafette gate\" tests=\"{}\" \
         failures=\"{}\" skipped=\"{undecided}\">\n",
        judgement.cases.len(),
        judgement.cases.len() - judgement.count(GateOutcome::Fine) - undecided
    );
    for case in &judgement.cases {
        let [mechanism, base, new, change, outcome] = row(case);
        let message = escaped_xml(&format!("{outcome}. Base {base}, new {new}, time per message {change}"));
        let result = match case.outcome {
            GateOutcome::Fine => String::new(),
            GateOutcome::Undecided => format!("<skipped message=\"{message}\"/>"),
            GateOutcome::Slower | GateOutcome::Failed | GateOutcome::Broken => {
                format!("<failure message=\"{message}\"/>")
            }
        };
        let (class, name) = (escaped_xml(&mechanism), escaped_xml(&case.cell.to_string()));
        text.push_str(&format!("<testcase classname=\"{class}\" name=\"{name}\">{result}</testcase>\n"));
    }
    let notes: String = judgement.notes.iter().map(|note| format!("\n{}.", plain(note))).collect();
    let output = escaped_xml(&format!("{}{notes}", summary(judgement)));
    text.push_str(&format!("<system-out>{output}</system-out>\n</testsuite>\n</testsuites>\n"));
    text
}

/// The cells of a case, in the order of [`HEADERS`].
fn row(case: &Judged) -> [String; 5] {
    let figure = |ns: Option<f64>| figure(ns, &case.cell);
    let change = case.change.as_ref().map_or(String::from("-"), |change| {
        format!("{} % [{} to {}]", percent(change.estimate), percent(change.low), percent(change.high))
    });
    let outcome = match &case.why {
        None => case.outcome.to_string(),
        Some(why) => format!("{}: {}", case.outcome, plain(why)),
    };
    [plain(&case.mechanism), figure(case.base_ns), figure(case.new_ns), change, outcome]
}

fn summary(judgement: &Judgement) -> String {
    let count = |outcome| judgement.count(outcome);
    let verdict = match judgement.outcome {
        GateOutcome::Fine => "Passed.",
        GateOutcome::Undecided => {
            "Cannot tell; each undecided case has its reason. Against noise, measure more rounds, while nothing else runs."
        }
        GateOutcome::Slower => "Failed.",
        GateOutcome::Failed => "Failed: instances of the new record failed.",
        GateOutcome::Broken => "Failed: a mechanism lost, reordered, duplicated or damaged messages.",
    };
    let others = [
        (GateOutcome::Undecided, "undecided"),
        (GateOutcome::Failed, "failed"),
        (GateOutcome::Broken, "broke a promise"),
    ];
    let others: String = others
        .iter()
        .filter(|(outcome, _)| count(*outcome) > 0)
        .map(|(outcome, what)| format!(", {} {what}", count(*outcome)))
        .collect();
    let median = judgement.median_change.map_or(String::new(), |change| {
        format!(" In the median case the time of a message changed by {} %.", percent(change))
    });
    format!(
        "{verdict} Of {} cases, {} are slower by more than {} % and {} are fine{others}.{median}{}",
        judgement.cases.len(),
        count(GateOutcome::Slower),
        units::three_digits(judgement.allow * 100.0),
        count(GateOutcome::Fine),
        drift(judgement)
    )
}

/// What the reference rings say about the machine itself.
fn drift(judgement: &Judgement) -> String {
    if judgement.is_paired {
        return String::from(" Both builds took turns, so a change of the machine itself concerns both.");
    }
    let Some(drift) = &judgement.drift else {
        return String::from(
            " No reference ring has enough valid instances in both records, so a change of the machine itself counts as a \
             change of the mechanisms.",
        );
    };
    let few = if drift.has_few_anchors() { "; so few may miss an uneven change" } else { "" };
    let unsteady =
        if drift.is_unsteady() { " They disagree: measure both records again while nothing else runs." } else { "" };
    let interval = &drift.interval;
    format!(
        " By {} reference ring(s), the machine itself changed it by {} % [{} to {}]{few}; this is subtracted.{unsteady}",
        drift.anchors,
        percent(-interval.estimate),
        percent(-interval.high),
        percent(-interval.low)
    )
}

fn escaped_markdown(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Escapes text for XML. Control characters were replaced before; two others are not allowed
/// either.
fn escaped_xml(text: &str) -> String {
    let text = text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{changed, record};

    fn slower() -> Judgement {
        Judgement::of(&record(), &changed("process/pipe", 1.3), 0.05).unwrap()
    }

    #[test]
    fn text_begins_with_the_gravest_case_and_ends_with_the_summary() {
        let text = text(&slower());
        assert!(text.starts_with("process · ping-pong") || text.starts_with("process · stream"), "{text}");
        assert!(text.lines().nth(2).is_some_and(|line| line.starts_with("process/pipe")), "{text}");
        let summary = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(summary.contains("Failed. Of 4 cases, 2 are slower by more than 5.00 % and 2 are fine."), "{text}");
        assert!(summary.contains("By 1 reference ring(s), the machine itself"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn junit_has_a_test_for_each_case() {
        let xml = junit(&slower());
        assert_eq!(xml.matches("<testcase ").count(), 4);
        assert_eq!(xml.matches("<failure ").count(), 2);
        assert!(xml.contains("tests=\"4\" failures=\"2\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("<system-out>Failed. Of 4 cases"), "{xml}");
    }

    #[test]
    fn markup_in_names_is_escaped() {
        let mut judgement = slower();
        judgement.cases[0].mechanism = String::from("<script>\"&|\u{1b}\u{ffff}");
        let xml = junit(&judgement);
        assert!(xml.contains("&lt;script&gt;&quot;&amp;") && !xml.contains("<script"), "{xml}");
        assert!(!xml.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{ffff}'), "{xml:?}");
        assert!(markdown(&judgement).contains("\\<script\\>\"\\&\\|"), "{}", markdown(&judgement));
    }
}
