//! The table of each cell, and what is to be known of it.

use estafette_measure::case::{Cell, Load};
use estafette_measure::pattern::TableKind;
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::units;
use maud::{Markup, html};

use super::grid::{Column, Entry, Grid, PLACE};
use crate::table::{
    against_first, answer, capacity, facts, notes, rank_label, short, time, times_bound, without_result,
};

/// The article of a cell: heading, answer, table and notes. `number` is its place in the record.
pub(super) fn html(ranking: &Ranking, number: usize) -> Markup {
    let facts = facts(ranking);
    let notes = notes(ranking, "");
    html! {
        article class="cell" id=(format!("cell-{number}")) {
            h4 { (ranking.cell) }
            @if has_answer(&ranking.cell) { p class="answer" { (answer(ranking)) } }
            (grid(ranking).html())
            @if !facts.is_empty() { p class="facts" { (facts.join(" · ")) } }
            @if !notes.is_empty() {
                ul class="notes" { @for note in &notes { li { (note.text()) } } }
            }
        }
    }
}

/// Whether the cell's mechanisms are ranked by speed.
pub(super) fn has_answer(cell: &Cell) -> bool {
    cell.pattern.is_ranked()
}

/// The cell's table.
pub(super) fn grid(ranking: &Ranking) -> Grid {
    let columns = columns(ranking);
    let rows = ranking.rows.iter().map(|row| {
        let rank_value = row.result.as_ref().and_then(|result| result.rank).map(|rank| rank.number as f64);
        let mut entries = vec![Entry::optional(rank_value, rank_label(row).trim()), Entry::text(short(row))];
        match &row.result {
            Some(result) => entries.extend(columns.iter().map(|column| (column.show)(ranking, row, result))),
            None => entries.push(Entry::text(without_result(row))),
        }
        entries
    });
    let rows = rows.collect();
    let mut headers = vec![Column::number(PLACE), Column::text("mechanism")];
    headers.extend(columns.iter().map(|column| match column.is_number {
        true => Column::number(column.header),
        false => Column::text(column.header),
    }));
    Grid { caption: ranking.cell.to_string(), columns: headers, rows }
}

/// A column of a cell's table.
struct CellColumn {
    header: &'static str,
    is_number: bool,
    show: fn(&Ranking, &Row, &RowResult) -> Entry,
}

fn figure(header: &'static str, show: fn(&Ranking, &Row, &RowResult) -> Entry) -> CellColumn {
    CellColumn { header, is_number: true, show }
}

/// The columns for this kind of cell.
fn columns(ranking: &Ranking) -> Vec<CellColumn> {
    let cell = &ranking.cell;
    match cell.pattern.table_kind() {
        TableKind::Losses => return cancelled(),
        TableKind::Memory => return burst(),
        TableKind::Times | TableKind::Coding => {}
    }
    let is_coding = cell.pattern.table_kind() == TableKind::Coding;
    let is_open_loop = cell.load != Load::Saturated;
    let mut columns = Vec::new();
    if is_coding {
        columns.extend(codec());
    } else if cell.pattern.is_round_trip() || is_open_loop {
        columns.push(figure("p50", |_, _, result| duration(result.p50_ns)));
        columns.push(figure("p99", |_, _, result| duration(result.p99_ns)));
        columns.push(figure("p99.9", |_, _, result| duration(result.p999_ns)));
    } else {
        columns.push(figure("rate", |_, _, result| {
            let rate = 1e9 / result.metric_ns;
            Entry::number(rate, units::rate(rate))
        }));
        if cell.payload.len() > 8 && !cell.scope.in_process() {
            columns.push(figure("bytes/s", |ranking, _, result| {
                let bandwidth = ranking.cell.payload.len() as f64 * 1e9 / result.metric_ns;
                Entry::number(bandwidth, units::bandwidth(bandwidth))
            }));
        }
        columns.push(figure("per message", |_, _, result| duration(Some(result.metric_ns))));
    }
    columns.push(figure("against 1st", |ranking, _, result| {
        let ratio = result.versus.as_ref().map(|interval| (-interval.estimate).exp());
        Entry::optional(ratio.or(Some(1.0)), against_first(ranking, result))
    }));
    columns.push(figure("CPU/msg", |_, _, result| duration(result.cpu_ns)));
    // Records of older versions have none.
    if ranking.rows.iter().any(|row| row.result.as_ref().is_some_and(|result| result.memory.is_some())) {
        columns.push(figure("memory", |_, _, result| memory(result.memory)));
    }
    if !is_open_loop {
        columns.push(figure("× bound", |ranking, _, result| {
            let times = ranking.bound.as_ref().map(|bound| result.metric_ns / bound.ns());
            Entry::optional(times, times_bound(ranking, result))
        }));
    }
    if !cell.pattern.is_round_trip() && !is_coding {
        columns.push(figure("capacity", |ranking, row, _| {
            Entry::optional(row.effective_capacity.map(|capacity| capacity as f64), capacity(ranking, row))
        }));
    }
    let data = |_: &Ranking, row: &Row, _: &RowResult| Entry::text(row.spec.ownership.to_string());
    columns.push(CellColumn { header: "data", is_number: false, show: data });
    columns
}

/// The columns of the times and the length of encoded messages.
fn codec() -> [CellColumn; 3] {
    [
        figure("encode", |_, _, result| duration(result.of_pattern.codec().map(|codec| codec.encode_ns))),
        figure("decode", |_, _, result| duration(result.of_pattern.codec().map(|codec| codec.decode_ns))),
        figure("bytes", |_, _, result| {
            let bytes = result.of_pattern.codec().map(|codec| codec.encoded_bytes);
            Entry::optional(bytes, bytes.map_or(String::from("-"), |bytes| units::grouped(bytes.round() as u64)))
        }),
    ]
}

/// The columns of pending receives that were dropped.
fn cancelled() -> Vec<CellColumn> {
    let documented = |_: &Ranking, row: &Row, _: &RowResult| Entry::text(row.spec.cancel.to_string());
    vec![
        CellColumn { header: "documented", is_number: false, show: documented },
        figure("dropped", |_, _, result| dropped(result, 0)),
        figure("lost", |_, _, result| dropped(result, 1)),
        figure("rate", |_, _, result| Entry::number(1e9 / result.metric_ns, units::rate(1e9 / result.metric_ns))),
    ]
}

/// The number of dropped receives (0), or of lost messages (1).
fn dropped(result: &RowResult, at: usize) -> Entry {
    let number = result.of_pattern.dropped().unwrap_or_default()[at];
    Entry::number(number as f64, units::grouped(number))
}

/// The columns of the memory that a burst takes.
fn burst() -> Vec<CellColumn> {
    fn at(result: &RowResult, at: usize) -> Entry {
        memory(result.of_pattern.burst_memory().map(|sizes| sizes[at]))
    }
    vec![
        figure("memory when empty", |_, _, result| at(result, 0)),
        figure("when full", |_, _, result| at(result, 1)),
        figure("after", |_, _, result| at(result, 2)),
    ]
}

fn memory(bytes: Option<f64>) -> Entry {
    Entry::optional(bytes, bytes.map_or(String::from("-"), units::memory))
}

fn duration(ns: Option<f64>) -> Entry {
    Entry::optional(ns, time(ns))
}
