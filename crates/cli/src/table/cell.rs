//! The table of one cell: the answer in a sentence, a row for each mechanism, and a footer.

use comfy_table::CellAlignment;
use estafette_measure::case::{Cell, Load};
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::units;

use super::answer::answer;
use super::notes::{caveats, footer};
use super::words::{short, times, without_result};
use crate::columns::{Left, Right, columns, display_width, terminal_width, wrapped};

/// A column of the table.
struct TableColumn {
    header: String,
    alignment: CellAlignment,
    /// If the terminal is too narrow, the highest value is left out first; 0 is never left out.
    optional: u8,
    /// Returns the column's text for a row that has a result.
    show: fn(&Ranking, &Row, &RowResult) -> String,
}

/// Returns the cell's heading, answer, table and footer.
pub(super) fn table(ranking: &Ranking) -> String {
    let columns = columns_of(&ranking.cell);
    format!("{}\n{}{}", ranking.cell, wrapped("", &answer(ranking)), rows(ranking, columns))
}

fn rows(ranking: &Ranking, mut shown: Vec<TableColumn>) -> String {
    let cells = |column: &TableColumn| -> Vec<String> {
        ranking
            .rows
            .iter()
            .map(|row| row.result.as_ref().map_or(String::new(), |result| (column.show)(ranking, row, result)))
            .collect()
    };
    // Every row has a rank and a name.
    let names: Vec<[String; 2]> = ranking.rows.iter().map(|row| [rank_label(row), labelled(short(row))]).collect();
    let width = |column: &TableColumn| {
        2 + cells(column).iter().chain([&column.header]).map(|cell| display_width(cell)).max().unwrap_or(0)
    };
    let names_width = 6 + names.iter().map(|[_, name]| display_width(name)).max().unwrap_or(0);
    while names_width + shown.iter().map(width).sum::<usize>() > terminal_width() {
        let Some(last) = (0..shown.len()).filter(|at| shown[*at].optional > 0).max_by_key(|at| shown[*at].optional)
        else {
            break;
        };
        shown.remove(last);
    }
    let scope = ranking.cell.scope.to_string();
    let headers: Vec<&str> = ["#", &scope].into_iter().chain(shown.iter().map(|column| &*column.header)).collect();
    let alignment: Vec<_> = [Right, Left].into_iter().chain(shown.iter().map(|column| column.alignment)).collect();
    let values: Vec<Vec<String>> = shown.iter().map(cells).collect();
    let lines = names.into_iter().enumerate().map(|(at, [rank, name])| match &ranking.rows[at].result {
        Some(_) => [rank, name].into_iter().chain(values.iter().map(|column| column[at].clone())).collect(),
        None => vec![rank, name, without_result(&ranking.rows[at]).to_owned()],
    });
    let table = columns(&headers, &alignment, &lines.collect::<Vec<Vec<String>>>());
    format!("{table}{}{}", footer(ranking), caveats(ranking))
}

/// Returns the columns for this kind of cell.
fn columns_of(cell: &Cell) -> Vec<TableColumn> {
    let column =
        |header: &str, alignment, optional, show| TableColumn { header: header.to_owned(), alignment, optional, show };
    let figure = |header: &str, show| column(header, Right, 0, show);
    let mut columns = Vec::new();
    let is_open_loop = cell.load != Load::Saturated;
    if cell.pattern.is_round_trip() || is_open_loop {
        columns.push(figure("p50", |_, _, result| time(result.p50_ns)));
        columns.push(figure("p99", |_, _, result| time(result.p99_ns)));
        if is_open_loop {
            columns.push(figure("p99.9", |_, _, result| time(result.p999_ns)));
        }
    } else {
        let has_bandwidth = cell.payload.len() > 8 && !cell.scope.in_process();
        columns.push(match has_bandwidth {
            true => figure("bytes/s", |ranking, _, result| {
                units::bandwidth(ranking.cell.payload.len() as f64 * 1e9 / result.metric_ns)
            }),
            // Within one process most messages are moved, not copied.
            false => figure("rate", |_, _, result| units::rate(1e9 / result.metric_ns)),
        });
        columns.push(figure("per msg", |_, _, result| units::duration(result.metric_ns)));
    }
    columns.push(column("against 1st", Left, 0, |ranking, _, result| against_first(ranking, result)));
    columns.push(column("CPU/msg", Right, 2, |_, _, result| time(result.cpu_ns)));
    if !is_open_loop {
        columns.push(column("× bound", Right, 1, |ranking, _, result| times_bound(ranking, result)));
    }
    if !cell.pattern.is_round_trip() {
        columns.push(column("capacity", Right, 3, |ranking, row, _| capacity(ranking, row)));
    }
    columns.push(column("data", Left, 4, |_, row, _| row.spec.ownership.to_string()));
    columns
}

/// Formats a time; `-` if it was not measured.
pub(crate) fn time(ns: Option<f64>) -> String {
    ns.map_or(String::from("-"), units::duration)
}

/// Formats a row's rank: `3`, or `3=` if another row has the same rank.
pub(crate) fn rank_label(row: &Row) -> String {
    let rank = row.result.as_ref().and_then(|result| result.rank);
    rank.map_or(String::new(), |rank| format!("{}{}", rank.number, if rank.tied { "=" } else { " " }))
}

/// Formats a result's time relative to the first row's: `1.43 [1.38 - 1.50]`, or `~1.43` with too
/// few rounds for an interval.
pub(crate) fn against_first(ranking: &Ranking, result: &RowResult) -> String {
    let first = ranking.rows.first().and_then(|row| row.result.as_ref());
    match (&result.versus, first) {
        (Some(interval), _) => times(interval),
        (None, Some(first)) if std::ptr::eq(first, result) => String::from("1"),
        (None, Some(first)) => format!("~{}", units::three_digits(result.metric_ns / first.metric_ns)),
        (None, None) => String::from("-"),
    }
}

/// Formats a result's time relative to the bound, the minimum time on this machine.
pub(crate) fn times_bound(ranking: &Ranking, result: &RowResult) -> String {
    ranking.bound.as_ref().map_or(String::from("-"), |bound| units::three_digits(result.metric_ns / bound.ns()))
}

/// Formats the effective capacity, marked with `!` if it differs from the requested one.
pub(crate) fn capacity(ranking: &Ranking, row: &Row) -> String {
    let requested = ranking.cell.capacity as u64;
    row.effective_capacity.map_or(String::from("-"), |capacity| {
        format!("{}{}", units::grouped(capacity), if capacity == requested { "" } else { " !" })
    })
}

/// The maximum length of a name on one line, which leaves space for all figures.
const MAX_NAME: usize = 18;

/// Returns a mechanism's name. A long name continues on a second line from its last dot.
pub(super) fn labelled(name: &str) -> String {
    match name.rfind('.') {
        Some(dot) if name.len() > MAX_NAME => format!("{}\n  {}", &name[..dot], &name[dot..]),
        _ => name.to_owned(),
    }
}
