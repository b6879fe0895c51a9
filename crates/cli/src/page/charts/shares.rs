//! The bound chart: each mechanism's time beside the least time that the machine allows.

use estafette_measure::case::Cell;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::Standing;
use estafette_measure::units;

use super::super::chart::Chart;
use super::super::plot::{Bar, Bars};
use super::slug::slug;
use crate::table::short;

/// Returns a chart for the first cell with a bound of each kind.
pub(super) fn charts(rankings: &[&Ranking]) -> Vec<Chart> {
    let mut chosen: Vec<&Ranking> = Vec::new();
    for &ranking in rankings.iter().filter(|ranking| ranking.bound.is_some()) {
        if !chosen.iter().any(|other| family(&other.cell) == family(&ranking.cell)) {
            chosen.push(ranking);
        }
    }
    chosen.into_iter().filter_map(chart).map(Chart::Bars).collect()
}

fn family(cell: &Cell) -> impl PartialEq {
    (cell.pattern, cell.payload.kind(), cell.runtime, cell.wait, cell.place)
}

fn chart(ranking: &Ranking) -> Option<Bars> {
    let (cell, bound) = (&ranking.cell, ranking.bound.as_ref()?);
    let per = if cell.pattern.is_round_trip() { "round trip" } else { "message" };
    let bar = |row: &Row| {
        let ns = row.result.as_ref()?.metric_ns;
        Some(Bar {
            name: short(row).to_owned(),
            is_candidate: row.spec.standing == Standing::Candidate,
            share: bound.ns() / ns,
            earlier: None,
            figure: units::duration(ns),
        })
    };
    let mut bars: Vec<Bar> = ranking.rows.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| b.share.total_cmp(&a.share));
    let name = cell.to_string();
    let name = name.split_once(" · ").map_or(&*name, |(_, rest)| rest).to_owned();
    (!bars.is_empty()).then(|| Bars {
        id: slug(cell, "bound"),
        title: format!("Share of what the machine allows: {name}"),
        note: format!(
            "A longer bar is better. The full length is the least time per {per} that this machine allows; what sets it is: {}. \
             A pale bar is the reference ring or a baseline.",
            bound.cost()
        ),
        full: format!("{} per {per}: {}", units::duration(bound.ns()), bound.cost()),
        bars,
    })
}
