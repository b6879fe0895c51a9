//! The tables of a record, at most as wide as the terminal.

use estafette_measure::case::Pattern;
use estafette_measure::ranking::{self, Ranking, Row};
use estafette_measure::record::Record;
use estafette_measure::stats::Verdict;
use estafette_measure::units;

use crate::{other_load, reference, summary};

mod across;
mod answer;
mod cell;
pub(crate) mod matrix;
mod notes;
mod special;

pub(crate) use answer::{answer, capitalised, list, outcome, outcome_among, ratio};
pub(crate) use cell::{against_first, capacity, place, time, times, times_bound};
pub(crate) use notes::{by_reason, caveats, facts, grouped_by_family, notes, reasons};

/// How much a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Cells that differ in one value, such as the size, in one matrix.
    Short,
    /// A table for each cell too.
    Full,
}

impl Detail {
    /// Converts the value of `--details`.
    pub(crate) fn of(details: bool) -> Detail {
        if details { Detail::Full } else { Detail::Short }
    }
}

/// Returns everything that `bench` and `report` print for a record.
pub(crate) fn report(record: &Record, detail: Detail) -> String {
    let rankings = ranking::rank(record);
    let (grid, others): (Vec<_>, Vec<_>) =
        rankings.iter().partition(|ranking| reference::is_channels_cell(record, ranking));
    let mut text = String::new();
    for group in matrix::groups(&others) {
        if let [_, _, ..] = &*group {
            text.push_str(&matrix::table(&group));
            text.push('\n');
        }
        if group.len() == 1 || detail == Detail::Full {
            group.iter().for_each(|ranking| text.push_str(&format!("{}\n", cell_table(ranking))));
        }
    }
    text.push_str(&reference::channels(record, &grid));
    text.push_str(&reference::typed(record, &rankings));
    text.push_str(&reference::network(&rankings));
    text.push_str(&reference::flow(record, &rankings));
    text.push_str(&across::fairness(&rankings));
    text.push_str(&across::system_calls(&rankings));
    text.push_str(&notes::refusals(record));
    text.push_str(&summary::sentences(record, &rankings));
    text.extend(other_load::sentence(record));
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

/// Whether the verdict is a difference in one direction.
pub(crate) fn is_different(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}
