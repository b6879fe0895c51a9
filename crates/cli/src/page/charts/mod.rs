//! The charts of a scope, from its rankings.

mod mechanisms;
mod percentiles;
mod quantity;
mod shares;
mod slug;
mod sweeps;

use std::collections::HashSet;

use estafette_measure::ranking::Ranking;
use estafette_measure::spec::Scope;

use super::chart::Chart;
use super::instances::Instances;
use crate::table::matrix::Axis;

/// The most charts of one scope. A record has that many only if it is not from `bench`.
const MAX_CHARTS: usize = 60;

/// Returns the charts of a scope.
pub(crate) fn charts(rankings: &[Ranking], instances: &Instances<'_>, scope: Scope) -> Vec<Chart> {
    let rankings: Vec<&Ranking> = rankings.iter().filter(|ranking| ranking.cell.scope == scope).collect();
    let mut charts = sweeps::charts(&rankings, instances, Axis::Size);
    charts.extend(percentiles::charts(&rankings, instances));
    charts.extend(sweeps::charts(&rankings, instances, Axis::Load));
    charts.extend(sweeps::charts(&rankings, instances, Axis::Producers));
    charts.extend(shares::charts(&rankings));
    charts.truncate(MAX_CHARTS);
    let mut known = HashSet::new();
    for chart in &mut charts {
        let first = chart.id().to_owned();
        let mut count = 1;
        while !known.insert(chart.id().to_owned()) {
            count += 1;
            *chart.id_mut() = format!("{first}-{count}");
        }
    }
    charts
}
