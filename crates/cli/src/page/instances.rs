//! The valid instances of each case: intervals of their figures, and quantiles of their times.

use std::collections::HashMap;

use estafette_measure::case::Cell;
use estafette_measure::record::{Figures, Outcome, Record};
use estafette_measure::stats::{CONFIDENCE, median, median_interval};

/// The figures of the instances that count, without those of controls, by mechanism and cell.
pub(crate) struct Instances<'a> {
    by_case: HashMap<&'a str, HashMap<&'a Cell, Vec<&'a Figures>>>,
}

impl<'a> Instances<'a> {
    pub(crate) fn of(record: &'a Record) -> Instances<'a> {
        let mut by_case: HashMap<&str, HashMap<&Cell, Vec<&Figures>>> = HashMap::new();
        for instance in &record.instances {
            let entrant = &record.entrants[instance.entrant];
            if let Outcome::Measured(figures) = &instance.outcome
                && figures.discarded.is_none()
                && !entrant.control
            {
                let of_mechanism = by_case.entry(&entrant.case.mechanism).or_default();
                of_mechanism.entry(&entrant.case.cell).or_default().push(figures);
            }
        }
        Instances { by_case }
    }

    fn figures(&self, mechanism: &str, cell: &Cell) -> &[&'a Figures] {
        self.by_case.get(mechanism).and_then(|cells| cells.get(cell)).map_or(&[], |figures| figures)
    }

    /// The interval of the median of a case's metric in nanoseconds. `None` with too few instances.
    pub(crate) fn interval(&self, mechanism: &str, cell: &Cell) -> Option<(f64, f64)> {
        interval(self.figures(mechanism, cell).iter().map(|figures| figures.metric_ns()))
    }

    /// The median over the instances of a case, and its interval, at each quantile of its times, in
    /// nanoseconds.
    pub(crate) fn quantiles(&self, mechanism: &str, cell: &Cell, quantiles: &[f64]) -> Vec<Option<Quantile>> {
        let timed = self.figures(mechanism, cell).iter().filter(|figures| figures.latency.is_some());
        let instances: Vec<Vec<Option<u64>>> = timed.map(|figures| figures.quantiles(quantiles)).collect();
        let at = |at: usize| {
            let values: Vec<f64> = instances.iter().filter_map(|values| values[at]).map(|ns| ns as f64).collect();
            // A quantile that half of the instances lack is not of all.
            let ns = median(&values).filter(|_| values.len() * 2 > instances.len())?;
            Some(Quantile { ns, interval: interval(values.into_iter()) })
        };
        (0..quantiles.len()).map(at).collect()
    }
}

/// A quantile of a case's times in nanoseconds.
pub(crate) struct Quantile {
    pub(crate) ns: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

/// The distribution-free interval of the median of some times.
fn interval(times: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let logarithms: Vec<f64> = times.map(f64::ln).collect();
    if logarithms.iter().any(|logarithm| !logarithm.is_finite()) {
        return None;
    }
    median_interval(&logarithms, CONFIDENCE).map(|interval| (interval.low.exp(), interval.high.exp()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_needs_six_instances_and_times_above_zero() {
        assert_eq!(interval([1.0; 5].into_iter()), None);
        let (low, high) = interval((1..=6).map(f64::from)).unwrap();
        assert!((low - 1.0).abs() < 1e-9 && (high - 6.0).abs() < 1e-9);
        assert_eq!(interval([1.0, 1.0, 1.0, 1.0, 1.0, 0.0].into_iter()), None);
        assert_eq!(interval([f64::NAN; 6].into_iter()), None);
    }
}
