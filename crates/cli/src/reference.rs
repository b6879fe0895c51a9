//! Tables in the layout of the benchmarks that the suites reproduce, for a direct comparison.
//!
//! This file has the tables of `async-channels-bench`. It prints the time of each channel for a
//! number of messages, for every number of tasks. In `cloned-send` all tasks send into one channel,
//! in `merged-recv` each task has a channel of its own.

use estafette_measure::case::Pattern;
use estafette_measure::ranking::Ranking;
use estafette_measure::record::Record;
use estafette_measure::spec::Scope;
use estafette_measure::units::three_digits;
use estafette_measure::window::Window;

use crate::columns::{Left, Right, columns};
use crate::table::{caveats, percent};

mod flow;
mod network;
mod typed;

pub(crate) use self::flow::tables as flow;
pub(crate) use self::network::tables as network;
pub(crate) use self::typed::tables as typed;

/// Whether a cell belongs to these tables: several tasks send to one, measured by count.
pub(crate) fn is_channels_cell(record: &Record, ranking: &Ranking) -> bool {
    let has_one_receiver = matches!(ranking.cell.pattern, Pattern::FanIn | Pattern::Merge);
    has_one_receiver && ranking.cell.scope == Scope::Task && matches!(record.window, Window::Count { .. })
}

/// Returns one table for each number of tasks, with both scenarios, in the order of the cells.
pub(crate) fn channels(record: &Record, grid: &[&Ranking]) -> String {
    let Window::Count { messages, .. } = record.window else { return String::new() };
    let mut text = String::new();
    let mut done: Vec<&Ranking> = Vec::new();
    for first in grid {
        if done.iter().any(|ranking| differ_in_pattern_only(ranking, first)) {
            continue;
        }
        done.push(first);
        let cell = &first.cell;
        text.push_str(&format!(
            "# {}, tasks: {}, messages per task: {}, capacity per task: {}, {}\n\n",
            cell.runtime,
            cell.producers,
            messages / cell.producers as u64,
            cell.capacity / cell.producers,
            cell.payload,
        ));
        for ranking in grid.iter().filter(|ranking| differ_in_pattern_only(ranking, first)) {
            text.push_str(&scenario(ranking, messages));
        }
        text.push('\n');
    }
    text
}

/// Whether two cells are equal, or differ in their pattern only.
fn differ_in_pattern_only(a: &Ranking, b: &Ranking) -> bool {
    let mut cell = a.cell.clone();
    cell.pattern = b.cell.pattern;
    cell == b.cell
}

fn scenario(ranking: &Ranking, messages: u64) -> String {
    let name = if ranking.cell.pattern == Pattern::Merge { "merged-recv" } else { "cloned-send" };
    let rows = ranking.rows.iter().map(|row| {
        let mechanism = row.spec.name.split_once('/').map_or(row.spec.name.as_str(), |(_, name)| name);
        let ns = row.result.as_ref().map(|result| result.metric_ns);
        vec![
            name.to_owned(),
            mechanism.to_owned(),
            ns.map_or(String::from("failed"), |ns| format!("{:.0} ms", ns * messages as f64 / 1e6)),
            ns.map_or(String::new(), |ns| format!("{} ns/message", three_digits(ns))),
            row.result.as_ref().and_then(|result| result.verdict).map_or(String::new(), |verdict| verdict.to_string()),
        ]
    });
    let mut text = columns(&[], &[Left, Left, Right, Right, Left], &rows.collect::<Vec<_>>());
    text.push_str(&caveats(ranking));
    if let Some(noise) = ranking.noise {
        text.push_str(&format!("  noise {}\n", percent(noise)));
    }
    text
}
