//! What changed between two runs: in words, as lists of cases, and as a table of each scope.

use std::cmp::Reverse;

use estafette_measure::spec::Scope;
use estafette_measure::stats::{Margins, Verdict};
use maud::{Markup, html};

use super::super::grid::{Column, Entry, Grid};
use crate::comparison::words::{between, figures, percent};
use crate::comparison::{Compared, Comparison, Incomparable};
use crate::table::capitalised;

/// The most cases of a list; the table has all.
const MAX_LISTED: usize = 12;

/// The first sentence, and what differs if nothing is compared.
pub(super) struct ChangesAnswer {
    pub(super) sentence: String,
    pub(super) differences: Vec<String>,
}

/// Says what changed, or why nothing is compared.
pub(super) fn answer(comparison: &Result<Comparison, Incomparable>) -> ChangesAnswer {
    match comparison {
        Ok(comparison) => ChangesAnswer { sentence: counts(comparison), differences: Vec::new() },
        Err(Incomparable::Machines(differences)) => ChangesAnswer {
            sentence: String::from(
                "The two records come from different machines, or from one that was set up differently. Nothing is \
                 compared: run both on one machine. What differs, A / B:",
            ),
            differences: differences.clone(),
        },
        Err(other) => {
            let sentence = format!("Nothing is compared: {other}.");
            ChangesAnswer { sentence, differences: Vec::new() }
        }
    }
}

/// The number of cases by verdict, in one sentence.
fn counts(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(verdict);
    let all = comparison.cases.iter().filter(|case| case.verdict.is_some()).count();
    let within = Margins::default().equivalent * 100.0;
    format!(
        "{} of {all} cases are faster in B, {} slower, {} about the same (within {within:.0} %); of {} the runs cannot tell.",
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Equivalent),
        count(Verdict::Inconclusive),
    )
}

/// The cases of one verdict, the largest change first.
pub(super) struct Cases<'a> {
    pub(super) title: String,
    /// At most [`MAX_LISTED`].
    pub(super) listed: Vec<&'a Compared>,
    /// The number of the others.
    pub(super) more: usize,
}

/// Lists the cases that are faster, slower, or not known. Lists without a case are left out.
pub(super) fn lists(comparison: &Comparison) -> Vec<Cases<'_>> {
    let kinds =
        [(Verdict::Faster, "Faster in B"), (Verdict::Slower, "Slower in B"), (Verdict::Inconclusive, "Undecided")];
    let list = |(verdict, words): (Verdict, &str)| {
        let mut cases: Vec<&Compared> = comparison.cases.iter().filter(|case| case.verdict == Some(verdict)).collect();
        // The order of a float's bits is that of its size, if it is not negative.
        // What lost too much comes first.
        let lost_most = |case: &Compared| if case.a_lost.or(case.b_lost).is_some() { u64::MAX } else { 0 };
        let size =
            |case: &Compared| case.change.map_or_else(|| lost_most(case), |change| change.estimate.abs().to_bits());
        cases.sort_by_key(|case| Reverse(size(case)));
        let (all, more) = (cases.len(), cases.len().saturating_sub(MAX_LISTED));
        cases.truncate(MAX_LISTED);
        let title = format!("{words}: {all} {}", if all == 1 { "case" } else { "cases" });
        Cases { title, listed: cases, more }
    };
    kinds.into_iter().map(list).filter(|cases| !cases.listed.is_empty()).collect()
}

/// The change of a case: `+24.9 % [+24.0 to +25.8], 100 us in A, 80.1 us in B`.
pub(super) fn change(case: &Compared) -> String {
    let change = case.change.as_ref();
    let without = match case.a_lost.or(case.b_lost) {
        Some(_) => "no 99th percentile to compare",
        None if case.clock_error.is_none() => "a time is not longer than the error of the clocks",
        None => "too few instances",
    };
    let change = change.map_or(without.to_owned(), |by| format!("{} % {}", percent(by.estimate), between(by)));
    let [a, b] = figures(case);
    format!("{change}, {a} in A, {b} in B")
}

/// The first section's content.
pub(super) fn html(comparison: &Result<Comparison, Incomparable>) -> Markup {
    let answer = answer(comparison);
    html! {
        p class="answer" { (answer.sentence) }
        @if !answer.differences.is_empty() {
            ul { @for difference in &answer.differences { li { (difference) } } }
        }
        @if let Ok(comparison) = comparison {
            p class="facts" {
                "A percentage says by how much B is better than A. The drift of the machine is subtracted. The interval \
                 contains the true change in at least 95 of 100 cases."
            }
            div class="cards" {
                @for cases in lists(comparison) { (card(&cases)) }
            }
        }
    }
}

fn card(cases: &Cases<'_>) -> Markup {
    html! {
        article class="card" {
            h3 { (cases.title) }
            ul {
                @for case in &cases.listed {
                    li {
                        p class="case" { (case.cell) }
                        p class="advice" { (case.mechanism) }
                        p class="more" { (change(case)) }
                    }
                }
                @if cases.more > 0 { li { (cases.more) " more, see the tables" } }
            }
        }
    }
}

/// The table of each scope.
pub(super) fn grids(comparison: &Comparison) -> Vec<(Scope, Grid)> {
    let grid = |scope: Scope| {
        let cases = comparison.cases.iter().filter(|case| case.cell.scope == scope);
        let columns = vec![
            Column::text("mechanism"),
            Column::text("table"),
            Column::number("A"),
            Column::number("B"),
            Column::number("B better by"),
            Column::text("interval"),
            Column::text("verdict"),
        ];
        let caption = format!(
            "{}: each case in A and B, and the change without the machine's drift",
            capitalised(&scope.to_string())
        );
        (scope, Grid { caption, columns, rows: cases.map(row).collect() })
    };
    Scope::ALL.into_iter().map(grid).filter(|(_, grid)| !grid.rows.is_empty()).collect()
}

fn row(case: &Compared) -> Vec<Entry> {
    let estimate = case.change.map(|change| change.estimate);
    // The heading has the scope.
    let table = case.cell.to_string();
    let table = table.split_once(" · ").map_or(&*table, |(_, rest)| rest);
    let [a, b] = figures(case);
    vec![
        Entry::text(&case.mechanism),
        Entry::text(table),
        Entry::optional(case.a_ns, a),
        Entry::optional(case.b_ns, b),
        Entry::optional(estimate, estimate.map_or(String::from("-"), |ln| format!("{} %", percent(ln)))),
        Entry::text(case.change.as_ref().map_or(String::from("-"), between)),
        Entry::text(case.verdict.map_or(String::from("anchor of the drift"), |verdict| verdict.to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::{changed, record};

    #[test]
    fn a_long_list_says_how_many_are_left_out() {
        let mut comparison =
            Comparison::of(&record(), &changed("process/pipe", 2.0), super::super::pair::NAMES).unwrap();
        let slower = comparison.cases.iter().position(|case| case.verdict == Some(Verdict::Slower)).unwrap();
        let case = comparison.cases.swap_remove(slower);
        let again = |_| Compared {
            cell: case.cell.clone(),
            mechanism: case.mechanism.clone(),
            values_a: Vec::new(),
            values_b: Vec::new(),
            ..case
        };
        comparison.cases = (0..MAX_LISTED + 3).map(again).collect();
        let lists = lists(&comparison);
        assert_eq!((lists.len(), lists[0].listed.len(), lists[0].more), (1, MAX_LISTED, 3));
        assert_eq!(lists[0].title, format!("Slower in B: {} cases", MAX_LISTED + 3));
    }

    #[test]
    fn a_case_without_figures_has_dashes() {
        let mut b = record();
        b.instances.clear();
        let comparison = Comparison::of(&record(), &b, super::super::pair::NAMES).unwrap();
        let grids = grids(&comparison);
        assert!(grids[0].1.markdown().contains("| - | - | - |"), "{}", grids[0].1.markdown());
        assert!(change(&comparison.cases[0]).starts_with("too few instances, "));
    }
}
