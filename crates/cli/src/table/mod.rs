//! Tables of a record's cells, at most as wide as the terminal.

use estafette_measure::case::Pattern;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::stats::{Interval, Verdict};
use estafette_measure::units;

mod across;
mod answer;
mod cell;
pub(crate) mod matrix;
mod notes;
mod special;

pub(crate) use across::{fairness, system_calls};
pub(crate) use answer::{answer, best_candidate, capitalised, list, outcome, outcome_among, ratio};
pub(crate) use cell::{against_first, capacity, place, time, times_bound};
pub(crate) use notes::{by_reason, caveats, facts, grouped_by_family, notes, reasons, refusals};

/// Returns the tables of some cells: one for each group of cells that differ in one value, and one
/// for each cell that is alone. With `each_cell`, also one for each cell of a group.
pub(crate) fn cells(rankings: &[&Ranking], each_cell: bool) -> String {
    let mut text = String::new();
    for group in matrix::groups(rankings) {
        if let [_, _, ..] = &*group {
            text.push_str(&matrix::table(&group));
            text.push('\n');
        }
        if group.len() == 1 || each_cell {
            group.iter().for_each(|ranking| text.push_str(&format!("{}\n", cell_table(ranking))));
        }
    }
    text
}

/// Returns one cell's table with its heading.
fn cell_table(ranking: &Ranking) -> String {
    match ranking.cell.pattern {
        Pattern::Cancel => special::cancelled(ranking),
        Pattern::Burst => special::burst(ranking),
        Pattern::Codec => special::codec(ranking),
        _ => cell::table(ranking),
    }
}

/// A mechanism's name without its scope, which the heading contains.
pub(crate) fn short(row: &Row) -> &str {
    row.spec.name.split_once('/').map_or(row.spec.name.as_str(), |(_, name)| name)
}

/// Returns why a row has no figures.
pub(crate) fn without_result(row: &Row) -> &'static str {
    if row.breach.is_some() {
        "broke its promise"
    } else if row.lost.is_some() {
        "loses too much"
    } else if row.failed.is_some() {
        "failed"
    } else {
        "no valid instance"
    }
}

/// Formats a fraction: `3.2 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{} %", units::three_digits(part * 100.0))
}

/// Formats the smallest difference that a table detects, a ln ratio: `4.02 %`, or `a factor of 5.05`.
pub(crate) fn difference(ln: f64) -> String {
    let part = ln.exp_m1();
    if part < 1.0 { percent(part) } else { format!("a factor of {}", units::three_digits(ln.exp())) }
}

/// Formats a ln ratio as a multiple of the other's time: `1.43 [1.38 - 1.50]`.
pub(crate) fn times(interval: &Interval) -> String {
    let [estimate, low, high] =
        [interval.estimate, interval.high, interval.low].map(|ln| units::three_digits((-ln).exp()));
    format!("{estimate} [{low} - {high}]")
}

/// Whether the verdict is a difference in one direction.
pub(crate) fn is_different(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_difference_is_a_factor() {
        assert_eq!([0.04_f64.ln_1p(), 5.05_f64.ln()].map(difference), ["4.00 %", "a factor of 5.05"]);
    }
}
