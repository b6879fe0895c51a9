//! The tables of `ipc-channel-throughput`: the time per message and the throughput in bytes per
//! second, for every size of the message's data.
//!
//! The reference measures wall-clock time at one end of a channel. Here a stream has three tables:
//! the time per message from end to end, and the processor time at the sender and at the receiver.
//! A codec, which has no channel, has three tables too: the times to encode and to decode, and the
//! encoded length.

use estafette_measure::case::{Cell, Pattern, PayloadKind};
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::record::Record;
use estafette_measure::units;

use crate::columns::{plain, wrapped};

/// The maximum number of sizes in one table, which is then at most 100 columns wide.
const SIZES: usize = 4;
/// The width of the column with names, in characters.
const NAME: usize = 14;
/// The width of each of the two figures of a cell, in characters.
const FIGURE: usize = 10;

/// A table's title, and the function that returns a cell's two figures for a message length.
type Shown = (&'static str, fn(&RowResult, usize) -> Option<[String; 2]>);

const STREAM: [Shown; 3] = [
    ("time a message · throughput", |result, len| Some(at(result.metric_ns, len))),
    ("processor time at the sender · throughput", |result, len| Some(at(result.sides_cpu_ns[0]?, len))),
    ("processor time at the receiver · throughput", |result, len| Some(at(result.sides_cpu_ns[1]?, len))),
];

const CODEC: [Shown; 3] = [
    ("encode · throughput", |result, len| Some(at(result.of_pattern.codec()?.encode_ns, len))),
    ("decode, every byte looked at · throughput", |result, len| Some(at(result.of_pattern.codec()?.decode_ns, len))),
    ("bytes of an encoded message · times the data's", |result, len| {
        let bytes = result.of_pattern.codec()?.encoded_bytes;
        Some([units::grouped(bytes.round() as u64), format!("{}×", units::three_digits(bytes / len as f64))])
    }),
];

/// Formats a time per message and its throughput, in the units of the reference.
fn at(ns: f64, len: usize) -> [String; 2] {
    [units::duration(ns), units::bandwidth(len as f64 * 1e9 / ns)]
}

/// Returns the tables of a record; empty if it has no typed messages.
pub(crate) fn tables(record: &Record, rankings: &[Ranking]) -> String {
    let wanted = |ranking: &&Ranking| {
        let cell = &ranking.cell;
        cell.payload.kind() == PayloadKind::Message && matches!(cell.pattern, Pattern::Stream | Pattern::Codec)
    };
    let mut left: Vec<&Ranking> = rankings.iter().filter(wanted).collect();
    let mut text = String::new();
    while let Some(first) = left.first().copied() {
        let (alike, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|ranking| differ_in_size_only(ranking, first));
        left = others;
        let shown = if first.cell.pattern == Pattern::Codec { &CODEC } else { &STREAM };
        for sizes in alike.chunks(SIZES) {
            shown.iter().for_each(|shown| text.push_str(&table(record, sizes, shown)));
        }
    }
    match &*text {
        "" => text,
        _ => format!("In the shape of ipc-channel-throughput: by the bytes of a message's data\n\n{text}"),
    }
}

/// Whether two cells are equal, or differ in their payload only.
fn differ_in_size_only(a: &Ranking, b: &Ranking) -> bool {
    Cell { payload: b.cell.payload, ..a.cell.clone() } == b.cell
}

/// Returns a table with a column for each of these cells and a row for each of their mechanisms, in
/// the order of the record.
fn table(record: &Record, sizes: &[&Ranking], (title, shown): &Shown) -> String {
    let heading = sizes[0].cell.to_string().replace(&format!(" · {}", sizes[0].cell.payload), "");
    let mut text = format!("{}{:NAME$}", wrapped("", &format!("{heading}: {title}")), "");
    for ranking in sizes {
        text.push_str(&format!("{:>1$}", ranking.cell.payload.len(), 2 * FIGURE + 1));
    }
    let mut group = "";
    for spec in &record.mechanisms {
        let of = |ranking: &Ranking| {
            let row = ranking.rows.iter().find(|row| row.spec.name == spec.name)?;
            Some(figures(row, ranking.cell.payload.len(), *shown))
        };
        let cells: Vec<_> = sizes.iter().map(|ranking| of(ranking)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let (family, variant) = parts(&spec.name);
        if variant.is_some() && family != group {
            text.push_str(&format!("\n{}", plain(family)));
        }
        group = family;
        let label = variant.map_or(family.to_owned(), |variant| format!("  {variant}"));
        text.push_str(&format!("\n{:NAME$}", plain(&label)));
        for cell in cells {
            let [figure, derived] = cell.unwrap_or_else(|| [String::from("-"), String::new()]);
            text.push_str(&format!("{figure:>FIGURE$} {derived:>FIGURE$}"));
        }
    }
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    format!("{}\n", lines.collect::<String>())
}

fn figures(row: &Row, len: usize, shown: fn(&RowResult, usize) -> Option<[String; 2]>) -> [String; 2] {
    let none = |why: &str| [why.to_owned(), String::new()];
    match &row.result {
        Some(result) => shown(result, len).unwrap_or_else(|| none("-")),
        None => none("failed"),
    }
}

/// Splits a mechanism's name without its scope at the last dot into a library and a way to use it.
///
/// A dot in a version, as in `ipc-channel-0.13`, does not split the name.
fn parts(name: &str) -> (&str, Option<&str>) {
    let name = name.split_once('/').map_or(name, |(_, name)| name);
    match name.rsplit_once('.') {
        Some((library, way)) if way.starts_with(|c: char| c.is_ascii_alphabetic()) => (library, Some(way)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests;
