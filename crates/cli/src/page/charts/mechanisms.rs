//! The mechanisms of a chart: their order, their kind, and their results.

use std::collections::HashMap;

use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::spec::Standing;

use super::super::plot::Kind;
use crate::table::short;

/// What a series of a mechanism is.
pub(super) fn kind(row: &Row) -> Kind {
    if row.spec.standing == Standing::Candidate { Kind::Candidate } else { Kind::Reference }
}

/// The mechanisms of some cells, the best first, by their mean distance to the fastest of each
/// cell. Those with figures in more cells come before those with fewer.
pub(super) fn by_merit<'a>(group: &[&'a Ranking]) -> Vec<&'a Row> {
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
pub(super) fn found<'a>(ranking: &'a Ranking, name: &str) -> Option<(&'a Row, &'a RowResult)> {
    let row = ranking.rows.iter().find(|row| short(row) == name)?;
    Some((row, row.result.as_ref()?))
}
