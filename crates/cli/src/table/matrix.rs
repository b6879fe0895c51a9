//! One table for cells that differ in one value, such as the size: a row for each mechanism, and
//! one or two columns for each value.

use estafette_measure::case::{Cell, Load};
use estafette_measure::pattern::TableKind;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::units;

use super::answer::{list, outcome, without_outcome};
use super::cell::{against_first, labelled, rank_label, time};
use super::notes::{caveats_at, facts_at};
use super::words::{difference, short, without_result};
use crate::columns::{Left, Right, columns, wrapped};

/// The maximum number of values in one matrix.
const MAX_VALUES: usize = 6;
/// From this number of values, each has one column instead of two.
const NARROW: usize = 4;

/// The value in which the cells of a group differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Size,
    Producers,
    Capacity,
    Load,
}

impl Axis {
    pub(crate) const ALL: [Axis; 4] = [Axis::Size, Axis::Producers, Axis::Capacity, Axis::Load];

    /// Returns the cell with this value of the other cell.
    pub(crate) fn replaced(self, cell: &Cell, from: &Cell) -> Cell {
        let mut cell = cell.clone();
        match self {
            Axis::Size if cell.payload.kind() == from.payload.kind() => cell.payload = from.payload,
            Axis::Size => {}
            Axis::Producers => cell.producers = from.producers,
            Axis::Capacity => cell.capacity = from.capacity,
            // A saturated stream and an open loop have different figures.
            Axis::Load if (cell.load == Load::Saturated) == (from.load == Load::Saturated) => cell.load = from.load,
            Axis::Load => {}
        }
        cell
    }

    pub(crate) fn value(self, cell: &Cell) -> String {
        match self {
            Axis::Size => cell.payload.to_string(),
            Axis::Producers => format!("{}→{}", cell.streams(), cell.consumers()),
            Axis::Capacity => format!("capacity {}", cell.capacity),
            Axis::Load => cell.load.to_string(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Axis::Size => "size",
            Axis::Producers => "producers → consumers",
            Axis::Capacity => "capacity",
            Axis::Load => "load",
        }
    }
}

/// Returns the axis in which two cells differ, if they differ in exactly one.
pub(crate) fn axis(a: &Cell, b: &Cell) -> Option<Axis> {
    Axis::ALL.into_iter().find(|axis| a != b && axis.replaced(a, b) == *b)
}

/// Groups cells that differ in one value only. A cell that has a table of its own kind stays alone.
pub(crate) fn groups<'a>(rankings: &[&'a Ranking]) -> Vec<Vec<&'a Ranking>> {
    let mut groups: Vec<(Option<Axis>, Vec<&Ranking>)> = Vec::new();
    for &ranking in rankings {
        let fits = |(axis_of_group, group): &&mut (Option<Axis>, Vec<&Ranking>)| {
            let found = axis(&group[0].cell, &ranking.cell);
            found.is_some() && (axis_of_group.is_none() || *axis_of_group == found) && group.len() < MAX_VALUES
        };
        let has_times = ranking.cell.pattern.table_kind() == TableKind::Times;
        match groups.iter_mut().find(fits).filter(|_| has_times) {
            Some((axis_of_group, group)) => {
                *axis_of_group = axis(&group[0].cell, &ranking.cell);
                group.push(ranking);
            }
            None => groups.push((None, vec![ranking])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns the matrix of a group of at least two cells.
pub(super) fn table(group: &[&Ranking]) -> String {
    let Some(axis) = axis(&group[0].cell, &group[1].cell) else { return String::new() };
    let scope = group[0].cell.scope.to_string();
    let wide = group.len() < NARROW;
    let mut headers = vec![scope];
    let mut alignment = vec![Left];
    for ranking in group {
        headers.push(axis.value(&ranking.cell));
        alignment.push(Right);
        if wide {
            headers.push(String::from("against 1st"));
            alignment.push(Left);
        }
    }
    let mut rows: Vec<Vec<String>> = names(group).into_iter().map(|name| line(group, name, wide)).collect();
    let mut footer = |label: &str, of: &dyn Fn(&Ranking) -> Option<String>| {
        let cells = group.iter().flat_map(|ranking| {
            let cell = of(ranking).unwrap_or_else(|| String::from("-"));
            if wide { vec![cell, String::new()] } else { vec![cell] }
        });
        rows.push(std::iter::once(format!("  {label}")).chain(cells).collect());
    };
    footer("bound", &|ranking| Some(units::duration(ranking.bound.as_ref()?.ns())));
    footer("detects differences from", &|ranking| Some(difference(ranking.resolution()?)));
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let table = columns(&headers, &alignment, &rows);
    let caveats: String = unique(group.iter().flat_map(|ranking| caveats_at(ranking, &axis.value(&ranking.cell))));
    let facts: String = group.iter().map(|ranking| facts_at(ranking, &axis.value(&ranking.cell))).collect();
    format!("{}{}{table}{facts}{caveats}", wrapped("", &heading(group, axis)), wrapped("", &answers(group, axis)))
}

/// Returns the heading of the cells, with the name of the axis instead of the value.
fn heading(group: &[&Ranking], axis: Axis) -> String {
    let cell = &group[0].cell;
    let figure = match (cell.pattern.is_round_trip(), cell.load) {
        (true, _) => "median round trip",
        (false, Load::Saturated) => "time per message",
        (false, _) => "99 in 100 messages arrive within",
    };
    format!("{}: {figure}; ranks in brackets", label(cell, axis))
}

/// Returns a cell's name, with the name of an axis instead of the value.
pub(crate) fn label(cell: &Cell, axis: Axis) -> String {
    let (cell, value) = (cell.to_string(), format!(" {}", axis.value(cell)));
    // A cell's heading omits default values.
    match cell.contains(&value) {
        true => cell.replacen(&value, &format!(" by {}", axis.name()), 1),
        false => format!("{cell} · by {}", axis.name()),
    }
}

/// Returns the mechanisms of all cells, in the order of the first cell that contains them.
fn names<'a>(group: &[&'a Ranking]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for row in group.iter().flat_map(|ranking| &ranking.rows) {
        if !names.contains(&short(row)) {
            names.push(short(row));
        }
    }
    names
}

fn line(group: &[&Ranking], name: &str, wide: bool) -> Vec<String> {
    let cells = group.iter().flat_map(|ranking| {
        let row = ranking.rows.iter().find(|row| short(row) == name);
        let [figure, against] = row.map_or_else(|| [String::from("-"), String::new()], |row| figures(ranking, row));
        if wide { vec![figure, against] } else { vec![figure] }
    });
    std::iter::once(labelled(name)).chain(cells).collect()
}

/// Formats a row's time with its rank, and its time relative to the first row's.
fn figures(ranking: &Ranking, row: &Row) -> [String; 2] {
    let Some(result) = &row.result else { return [without_result(row).to_owned(), String::new()] };
    let ns = if ranking.cell.load == Load::Saturated { Some(result.metric_ns) } else { result.p99_ns };
    let against = against_first(ranking, result);
    let rank = match rank_label(row).trim_end() {
        "" => String::new(),
        rank => format!(" ({rank})"),
    };
    [format!("{}{rank}", time(ns)), against]
}

/// Returns the advice for each value; values with the same advice share a sentence.
fn answers(group: &[&Ranking], axis: Axis) -> String {
    let sentences = advice(group, Some(axis)).into_iter().map(|advice| {
        let values: Vec<&str> = advice.values.iter().map(String::as_str).collect();
        format!("{}: {}.", list(&values, "and"), advice.words)
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// What to use in some cells of a group.
pub(crate) struct Advice<'a> {
    /// As [`TableOutcome::words`](super::answer::TableOutcome::words), or why there is no outcome.
    pub(crate) words: String,
    /// The values on the axis for which it holds. Empty in a group without an axis.
    pub(crate) values: Vec<String>,
    /// The cells for which it holds.
    pub(crate) cells: Vec<&'a Ranking>,
}

/// Returns the advice for each cell of a group; cells with the same advice share one.
pub(crate) fn advice<'a>(group: &[&'a Ranking], axis: Option<Axis>) -> Vec<Advice<'a>> {
    let mut all: Vec<Advice> = Vec::new();
    for &ranking in group {
        let words = outcome(ranking).map_or_else(|| without_outcome(ranking).to_owned(), |outcome| outcome.words());
        let value = axis.map(|axis| axis.value(&ranking.cell));
        match all.iter_mut().find(|advice| advice.words == words) {
            Some(advice) => {
                advice.values.extend(value);
                advice.cells.push(ranking);
            }
            None => all.push(Advice { words, values: value.into_iter().collect(), cells: vec![ranking] }),
        }
    }
    all
}

/// Joins notes, and leaves out those that are there already.
fn unique(notes: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for note in notes {
        if !all.contains(&note) {
            all.push(note);
        }
    }
    all.concat()
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::Payload;
    use estafette_measure::suite::{Profile, Suite};

    use super::*;

    #[test]
    fn cells_differ_in_one_axis() {
        let cell = Suite::Overview.cells(Profile::Quick)[0].clone();
        let larger = Cell { producers: cell.producers + 1, ..cell.clone() };
        assert!(axis(&cell, &larger) == Some(Axis::Producers));
        assert!(axis(&cell, &cell).is_none());
        let other = Cell { capacity: cell.capacity + 1, ..larger.clone() };
        assert!(axis(&cell, &other).is_none(), "two axes");
        let [a, b] = [Payload::Bytes(8), Payload::Shared(8)].map(|payload| Cell { payload, ..cell.clone() });
        assert!(axis(&a, &b).is_none(), "different kinds of payload are not an axis");
    }
}
