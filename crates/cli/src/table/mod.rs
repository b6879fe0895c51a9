//! Tables of a record's cells, at most as wide as the terminal.

use estafette_measure::pattern::TableKind;
use estafette_measure::ranking::Ranking;

mod across;
mod answer;
mod cell;
pub(crate) mod matrix;
mod notes;
mod special;
mod words;

pub(crate) use across::{fairness, system_calls};
pub(crate) use answer::{
    answer, best_candidate, capitalised, is_different, list, outcome, outcome_among, ratio, shortened_list,
};
pub(crate) use cell::{against_first, capacity, rank_label, time, times_bound};
pub(crate) use notes::{by_reason, caveats, facts, grouped_by_family, notes, reasons, refusals};
pub(crate) use words::{difference, percent, short, times, without_result};

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
    match ranking.cell.pattern.table_kind() {
        TableKind::Times => cell::table(ranking),
        TableKind::Coding => special::codec(ranking),
        TableKind::Memory => special::burst(ranking),
        TableKind::Losses => special::cancelled(ranking),
    }
}
