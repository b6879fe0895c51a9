//! Charts of latency by percentile: how long the slow round trips or messages take.

use estafette_measure::case::{Cell, Load};
use estafette_measure::ranking::Ranking;
use estafette_measure::spec::{Runtime, Wait};

use super::super::chart::Chart;
use super::super::instances::Instances;
use super::super::plot::{Lines, Point, Series, Unit, XAxis, YAxis};
use super::mechanisms::{by_merit, kind};
use super::slug::slug;
use crate::table::short;

/// The quantiles, and their names.
const QUANTILES: [(f64, &str); 5] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99")];

/// Returns a chart for each kind of cell that has times: of its smallest message, at its lowest
/// load.
pub(super) fn charts(rankings: &[&Ranking], instances: &Instances<'_>) -> Vec<Chart> {
    let mut chosen: Vec<&Ranking> = Vec::new();
    let with_times = |ranking: &&&Ranking| {
        ranking.rows.iter().any(|row| row.result.as_ref().is_some_and(|result| result.p50_ns.is_some()))
    };
    for &ranking in rankings.iter().filter(with_times) {
        match chosen.iter_mut().find(|other| family(&other.cell) == family(&ranking.cell)) {
            Some(other) if size(&ranking.cell) < size(&other.cell) => *other = ranking,
            Some(_) => {}
            None => chosen.push(ranking),
        }
    }
    chosen.into_iter().filter_map(|ranking| chart(ranking, instances)).map(Chart::Lines).collect()
}

/// What cells of one chart have in common.
fn family(cell: &Cell) -> (bool, estafette_measure::case::Pattern, Runtime, Wait, estafette_measure::case::Place) {
    (cell.load == Load::Saturated, cell.pattern, cell.runtime, cell.wait, cell.place)
}

fn size(cell: &Cell) -> (usize, u64, usize) {
    (cell.payload.len(), cell.load.rate().unwrap_or(0), cell.producers)
}

fn chart(ranking: &Ranking, instances: &Instances<'_>) -> Option<Lines> {
    let cell = &ranking.cell;
    let quantiles = QUANTILES.map(|(quantile, _)| quantile);
    let series = by_merit(&[ranking]).into_iter().map(|row| {
        let values = instances.quantiles(&row.spec.name, cell, &quantiles).into_iter().zip(quantiles);
        let points = values.filter_map(|(value, quantile)| {
            let value = value?;
            Some(Point { x: x(quantile), y: value.ns, interval: value.interval })
        });
        let (name, points) = (short(row).to_owned(), points.collect());
        Series { name, kind: kind(row), points, earlier: Vec::new(), remark: None, marked_x: None }
    });
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    let is_known = |x: f64| series.iter().any(|series| series.points.iter().any(|point| point.x == x));
    let ticks: Vec<(f64, String)> = QUANTILES
        .into_iter()
        .map(|(quantile, name)| (x(quantile), name.to_owned()))
        .filter(|(x, _)| is_known(*x))
        .collect();
    let name = cell.to_string();
    let name = name.split_once(" · ").map_or(&*name, |(_, rest)| rest).to_owned();
    (ticks.len() > 1).then(|| Lines {
        id: slug(cell, "by-percentile"),
        title: format!("Latency by percentile: {name}"),
        note: String::from(
            "Lower is better. p99 is the time within which 99 in 100 round trips or messages are done; medians over the \
             rounds. A percentile is left out if fewer than ten times of a round lie above it.",
        ),
        x: XAxis { label: "percentile", ticks },
        y: YAxis { label: "time", unit: Unit::Time },
        series,
    })
}

/// The place of a quantile on the axis, which stretches the slow end: one in how many takes longer.
fn x(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}
