//! The charts of a scope, from its rankings.

mod percentiles;
mod shares;
mod sweeps;

use std::collections::{HashMap, HashSet};

use estafette_measure::case::{Cell, Load, Pattern};
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::spec::{Scope, Standing};

use super::instances::Instances;
use super::plot::{Chart, Kind, Unit, YAxis};
use crate::table::matrix::Axis;
use crate::table::short;

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

/// The figure by which a cell's mechanisms are compared, as a chart shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Messages or bytes per second.
    Throughput(Unit),
    /// The median round trip.
    RoundTrip,
    /// The time to encode and decode.
    Coding,
    /// The 99th percentile of an open loop.
    Latency,
}

impl Quantity {
    fn of(cell: &Cell) -> Quantity {
        match cell.load {
            Load::Saturated if cell.pattern.is_round_trip() => Quantity::RoundTrip,
            Load::Saturated if cell.pattern == Pattern::Codec => Quantity::Coding,
            Load::Saturated if cell.payload.len() > 8 && !cell.scope.in_process() => {
                Quantity::Throughput(Unit::Bandwidth)
            }
            Load::Saturated => Quantity::Throughput(Unit::Rate),
            Load::Rate(_) | Load::Poisson(_) => Quantity::Latency,
        }
    }

    /// The figure of a time per message or round trip, in the unit of [`Quantity::axis`].
    fn value(self, cell: &Cell, ns: f64) -> f64 {
        match self {
            Quantity::Throughput(Unit::Bandwidth) => cell.payload.len() as f64 * 1e9 / ns,
            Quantity::Throughput(_) => 1e9 / ns,
            Quantity::RoundTrip | Quantity::Coding | Quantity::Latency => ns,
        }
    }

    fn axis(self) -> YAxis {
        let (label, unit) = match self {
            Quantity::Throughput(Unit::Bandwidth) => ("bytes per second", Unit::Bandwidth),
            Quantity::Throughput(_) => ("messages per second", Unit::Rate),
            Quantity::RoundTrip => ("median round trip", Unit::Time),
            Quantity::Coding => ("time to encode and decode", Unit::Time),
            Quantity::Latency => ("time within which 99 % arrive", Unit::Time),
        };
        YAxis { label, unit }
    }

    fn word(self) -> &'static str {
        match self {
            Quantity::Throughput(_) => "Throughput",
            Quantity::RoundTrip => "Round trips",
            Quantity::Coding => "Encoding",
            Quantity::Latency => "Latency",
        }
    }
}

/// What a series of a mechanism is.
fn kind(row: &Row) -> Kind {
    if row.spec.standing == Standing::Candidate { Kind::Candidate } else { Kind::Reference }
}

/// The mechanisms of some cells, the best first, by their mean distance to the fastest of each
/// cell. Those with figures in more cells come before those with fewer.
fn by_merit<'a>(group: &[&'a Ranking]) -> Vec<&'a Row> {
    let mut known: HashMap<&str, (&Row, usize, f64)> = HashMap::new();
    for ranking in group {
        let metric = |row: &'a Row| Some((row, row.result.as_ref()?.metric_ns));
        let metrics: Vec<(&Row, f64)> = ranking.rows.iter().filter_map(metric).collect();
        let best = metrics.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
        for (row, ns) in metrics {
            let (_, count, sum) = known.entry(short(row)).or_insert((row, 0, 0.0));
            *count += 1;
            *sum += (ns / best).ln();
        }
    }
    let mut rows: Vec<(&Row, usize, f64)> = known.into_values().collect();
    rows.sort_by(|(a, a_count, a_sum), (b, b_count, b_sum)| {
        let (a_mean, b_mean) = (a_sum / *a_count as f64, b_sum / *b_count as f64);
        b_count.cmp(a_count).then(a_mean.total_cmp(&b_mean)).then(a.spec.name.cmp(&b.spec.name))
    });
    rows.into_iter().map(|(row, ..)| row).collect()
}

/// The row and the result of a mechanism in a cell.
fn found<'a>(ranking: &'a Ranking, name: &str) -> Option<(&'a Row, &'a RowResult)> {
    let row = ranking.rows.iter().find(|row| short(row) == name)?;
    Some((row, row.result.as_ref()?))
}

/// A name for files and links, of a cell without some of its values.
fn slug(cell: &Cell, what: &str) -> String {
    let runtime = if cell.runtime == estafette_measure::spec::Runtime::Thread {
        format!("{}-{}", cell.wait, cell.place)
    } else {
        cell.runtime.to_string()
    };
    format!("{}-{}-{runtime}-{what}", cell.scope, cell.pattern)
}
