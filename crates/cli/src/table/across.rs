//! Tables across cells: fairness between producers, and system calls.

use estafette_measure::case::{Cell, Load, Pattern};
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::{Scope, Wait};
use estafette_measure::units;

use super::words::short;
use crate::columns::{Left, Right, columns, wrapped};

/// Returns the fairness tables: the messages of the slowest producer divided by the mean, by number
/// of producers.
///
/// Each scope and pattern with several parties has one table of at most 8 cells. If cells differ in
/// anything but the number of producers, only those like the first are shown. The record has all.
pub(crate) fn fairness(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    for scope in Scope::ALL {
        for pattern in Pattern::ALL.into_iter().filter(|pattern| pattern.has_several_parties()) {
            let mut candidates = rankings
                .iter()
                .filter(|ranking| (ranking.cell.scope, ranking.cell.pattern) == (scope, pattern))
                .filter(|ranking| ranking.cell.load == Load::Saturated)
                .filter(|ranking| ranking.rows.iter().any(|row| fairness_of(row).is_some()));
            let Some(first) = candidates.next() else { continue };
            let same =
                |ranking: &&Ranking| Cell { producers: first.cell.producers, ..ranking.cell.clone() } == first.cell;
            let cells: Vec<_> = std::iter::once(first).chain(candidates.filter(same)).take(8).collect();
            let name = format!("{scope}");
            let heads: Vec<_> =
                cells.iter().map(|of| format!("{}→{}", of.cell.streams(), of.cell.consumers())).collect();
            let rows = first.rows.iter().map(|row| {
                let mut line = vec![short(row).to_owned()];
                line.extend(cells.iter().map(|of| {
                    let here = of.rows.iter().find(|other| other.spec.name == row.spec.name);
                    here.and_then(fairness_of).map_or(String::from("-"), |ratio| format!("{ratio:.2}"))
                }));
                line
            });
            let headers: Vec<&str> = std::iter::once(&*name).chain(heads.iter().map(String::as_str)).collect();
            let alignment: Vec<_> = std::iter::once(Left).chain(heads.iter().map(|_| Right)).collect();
            text.push_str(&columns(&headers, &alignment, &rows.collect::<Vec<_>>()));
            text.push('\n');
        }
    }
    if text.is_empty() { text } else { format!("Fairness: the slowest producer's messages ÷ the mean\n\n{text}") }
}

/// Returns the tables of system calls per message or round trip, and of the processor time that
/// these calls and the kernel's copies take.
pub(crate) fn system_calls(rankings: &[Ranking]) -> String {
    let calls = by_cell(rankings, |row| Some(format!("{:.1}", row.calls?)));
    let time = by_cell(rankings, |row| Some(units::duration(row.kernel_ns.filter(|_| row.calls >= Some(MIN_CALLS))?)));
    let titled = |title: &str, tables: String| match tables.is_empty() {
        true => tables,
        false => format!("{}\n{tables}", wrapped("", title)),
    };
    titled("System calls per message or round trip, of all processes, counted in separate runs", calls)
        + &titled(
            "The least processor time of these calls and of the kernel's copies, estimated: calls × the time of an empty call, and \
             the bytes at the rate of a copy on one core",
            time,
        )
}

/// With fewer calls per message, their time says nothing.
const MIN_CALLS: f64 = 0.05;

/// Returns tables of a figure by mechanism and cell, one for each scope.
///
/// A table shows the first cell of every combination of pattern, payload kind and wait mode.
fn by_cell(rankings: &[Ranking], figure: impl Fn(&Row) -> Option<String>) -> String {
    let mut text = String::new();
    for scope in Scope::ALL {
        let mut cells: Vec<&Ranking> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for ranking in rankings.iter().filter(|ranking| ranking.cell.scope == scope) {
            let cell = &ranking.cell;
            let mut rows = ranking.rows.iter().filter(|row| figure(row).is_some()).peekable();
            // Mechanisms that carry no bytes have a cell of their own.
            let kind = |cell: &Cell| (cell.pattern, cell.wait, cell.payload.kind());
            let is_same_kind = |other: &&Ranking| kind(&other.cell) == kind(cell);
            if rows.peek().is_some() && !cells.iter().any(is_same_kind) {
                cells.push(ranking);
                rows.for_each(|row| {
                    if !names.contains(&short(row)) {
                        names.push(short(row))
                    }
                });
            }
        }
        if cells.is_empty() {
            continue;
        }
        let heads = cells.iter().map(|Ranking { cell, .. }| match cell.wait {
            Wait::Block => format!("{} {}", cell.pattern, cell.payload),
            wait => format!("{} {} {wait}", cell.pattern, cell.payload),
        });
        let headers: Vec<String> = std::iter::once(scope.to_string()).chain(heads).collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let rows = names.iter().map(|name| {
            let of = |ranking: &&Ranking| {
                let row = ranking.rows.iter().find(|row| short(row) == *name);
                row.and_then(&figure).unwrap_or_else(|| String::from("-"))
            };
            std::iter::once((*name).to_owned()).chain(cells.iter().map(of)).collect()
        });
        let alignment: Vec<_> = std::iter::once(Left).chain(cells.iter().map(|_| Right)).collect();
        text.push_str(&columns(&headers, &alignment, &rows.collect::<Vec<Vec<String>>>()));
        text.push('\n');
    }
    text
}

fn fairness_of(row: &Row) -> Option<f64> {
    row.result.as_ref()?.fairness
}
