//! Pairs: the ratio of two entrants in each round, from which verdicts follow.
//!
//! Two instances that took turns in one heat are compared lap by lap. A cell that is too large for
//! one heat has several in a round, and each of them has an instance of the same entrant, the
//! *anchor*. Two instances of different heats are compared through it: the first with the anchor of
//! its heat, and the anchor of the other heat with the second. So a machine that is slower during
//! one of the heats makes no difference. If the anchor has no valid instance in one of the heats,
//! the two are compared directly.

use std::collections::BTreeMap;

use crate::record::{Figures, InstanceRecord, MIN_LAPS, Outcome, Record, SliceFigure};
use crate::stats::median;

/// An instance that has figures and is not discarded.
#[derive(Clone, Copy)]
pub(crate) struct ValidInstance<'a> {
    instance: &'a InstanceRecord,
    pub(crate) figures: &'a Figures,
}

/// The instances of an entrant that have figures and are not discarded.
pub(crate) fn valid(record: &Record, entrant: usize) -> impl Iterator<Item = ValidInstance<'_>> {
    record.instances.iter().filter(move |instance| instance.entrant == entrant).filter_map(ValidInstance::of)
}

/// The ln ratio of two entrants in each round that has both. Positive if `b` is better.
pub fn log_ratios(record: &Record, a: usize, b: usize) -> Vec<f64> {
    let (a, b) = (by_round(record, a), by_round(record, b));
    a.iter().filter_map(|(round, a)| of_round(record, *round, a, b.get(round)?)).collect()
}

/// The ln ratios of the other measurement, for a cross-check: of the unpaused runs if two entrants
/// are compared by slices, of the slices if they are compared by unpaused runs. Only of rounds in
/// which they shared a heat. Positive if `b` is better.
pub(crate) fn cross_check_log_ratios(record: &Record, a: usize, b: usize) -> Vec<f64> {
    let (a, b) = (by_round(record, a), by_round(record, b));
    let of_round = |(round, a): (&usize, &Vec<ValidInstance<'_>>)| {
        let pairs = a.iter().flat_map(|a| b.get(round).into_iter().flatten().map(move |b| (*a, *b)));
        let ratios: Vec<f64> = pairs.filter_map(|(a, b)| a.cross_check_ratio_to(b)).collect();
        median(&ratios)
    };
    a.iter().filter_map(of_round).collect()
}

/// The valid instances of an entrant, by round. The anchor has several in a round, one for each
/// heat; any other entrant has one.
fn by_round(record: &Record, entrant: usize) -> BTreeMap<usize, Vec<ValidInstance<'_>>> {
    let mut rounds: BTreeMap<usize, Vec<ValidInstance<'_>>> = BTreeMap::new();
    for measured in valid(record, entrant) {
        rounds.entry(measured.instance.round).or_default().push(measured);
    }
    rounds
}

/// The ln ratio of the instances of two entrants in one round. Neither list is empty. `None` if
/// they cannot be compared: see [`ValidInstance::ratio_to`].
fn of_round(record: &Record, round: usize, a: &[ValidInstance<'_>], b: &[ValidInstance<'_>]) -> Option<f64> {
    let pairs = || a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b)));
    let of_one_heat: Vec<f64> = pairs().filter(|(a, b)| a.shares_heat(b)).filter_map(|(a, b)| a.ratio_to(b)).collect();
    median(&of_one_heat)
        .or_else(|| pairs().find_map(|(a, b)| through_anchor(record, round, a, b)))
        .or_else(|| a[a.len() - 1].ratio_to(b[b.len() - 1]))
}

/// The ln ratio of two instances of different heats through an entrant that was measured in both.
/// `None` if there is no such entrant, or if one of the two was not measured in slices.
fn through_anchor(record: &Record, round: usize, a: ValidInstance<'_>, b: ValidInstance<'_>) -> Option<f64> {
    let (heat_a, heat_b) = (a.instance.heat?, b.instance.heat?);
    let of_round = record.instances.iter().filter(|instance| instance.round == round).filter_map(ValidInstance::of);
    let mut in_a: BTreeMap<usize, ValidInstance<'_>> = BTreeMap::new();
    let mut in_b = Vec::new();
    for measured in of_round {
        match measured.instance.heat {
            Some(heat) if heat == heat_a => drop(in_a.insert(measured.instance.entrant, measured)),
            Some(heat) if heat == heat_b => in_b.push(measured),
            _ => {}
        }
    }
    in_b.into_iter()
        .find_map(|anchor_b| Some(a.ratio_to(*in_a.get(&anchor_b.instance.entrant)?)? + anchor_b.ratio_to(b)?))
}

/// The median ln ratio of two instances over their common laps. `None` with too few.
fn of_laps(a: &[SliceFigure], b: &[SliceFigure]) -> Option<f64> {
    let laps: BTreeMap<u64, f64> = b.iter().map(|slice| (slice.lap, slice.ns)).collect();
    let ratios: Vec<f64> = a.iter().filter_map(|slice| Some((slice.ns / laps.get(&slice.lap)?).ln())).collect();
    median(&ratios).filter(|_| ratios.len() >= MIN_LAPS)
}

impl<'a> ValidInstance<'a> {
    fn of(instance: &'a InstanceRecord) -> Option<ValidInstance<'a>> {
        match &instance.outcome {
            Outcome::Measured(figures) if figures.discarded.is_none() => Some(ValidInstance { instance, figures }),
            _ => None,
        }
    }

    /// The number of its round.
    pub(crate) fn round(&self) -> usize {
        self.instance.round
    }

    /// Whether its metric is the result of its unpaused run.
    fn is_by_unpaused_run(&self) -> bool {
        self.figures.slices.is_empty() && self.figures.unpaused_run_ns.is_some()
    }

    /// Whether it took turns with others, and was stopped in between.
    pub(crate) fn ran_in_slices(&self) -> bool {
        self.instance.heat.is_some()
    }

    fn shares_heat(&self, other: &ValidInstance<'_>) -> bool {
        self.instance.heat.is_some() && self.instance.heat == other.instance.heat
    }

    /// Its slices, whether they count or not.
    fn all_slices(&self) -> &'a [SliceFigure] {
        if self.figures.slices.is_empty() { &self.figures.paused_slices } else { &self.figures.slices }
    }

    /// The ln ratio of two instances of one heat by what [`ValidInstance::ratio_to`] does not use:
    /// of their slices if one of the two is compared by its unpaused run, otherwise of their
    /// unpaused runs.
    fn cross_check_ratio_to(self, other: ValidInstance<'_>) -> Option<f64> {
        if !self.shares_heat(&other) {
            return None;
        }
        if self.is_by_unpaused_run() || other.is_by_unpaused_run() {
            return of_laps(self.all_slices(), other.all_slices());
        }
        of_laps(&self.figures.slices, &other.figures.slices)?;
        Some((self.figures.unpaused_run_ns? / other.figures.unpaused_run_ns?).ln())
    }

    /// The ln ratio of this instance's time to the other's: the median over the laps of their heat.
    /// If they have too few common laps, it is the ratio of their unpaused runs, or of their
    /// windows; in different heats it is the ratio of their metrics. `None` if one of the two has
    /// to be compared by its unpaused run, and the other only has slices.
    fn ratio_to(self, other: ValidInstance<'_>) -> Option<f64> {
        if self.shares_heat(&other) {
            if let Some(median) = of_laps(&self.figures.slices, &other.figures.slices) {
                return Some(median);
            }
            if let (Some(a), Some(b)) = (self.figures.unpaused_run_ns, other.figures.unpaused_run_ns) {
                return Some((a / b).ln());
            }
        }
        let mixes = |one: ValidInstance<'_>, other: ValidInstance<'_>| {
            one.is_by_unpaused_run() && !other.figures.slices.is_empty()
        };
        let is_comparable = !mixes(self, other) && !mixes(other, self);
        // A whole window has the beginnings of its slices too, so it is compared with a whole window.
        let is_whole = |one: ValidInstance<'_>| one.figures.slices.is_empty();
        let of_whole = self.shares_heat(&other) && is_whole(self) != is_whole(other);
        let ns = |one: ValidInstance<'_>| if of_whole { one.figures.whole_ns() } else { one.figures.metric_ns() };
        is_comparable.then(|| (ns(self) / ns(other)).ln())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::message::Faults;
    use crate::pattern_figures::PatternFigures;

    /// An instance with the given nanoseconds per message: `whole_ns` for the whole window, `laps`
    /// in laps 1, 2, ...
    pub(crate) fn instance(entrant: usize, heat: Option<usize>, whole_ns: u64, laps: &[f64]) -> InstanceRecord {
        let slices = (1..).zip(laps).map(|(lap, &ns)| SliceFigure { lap, ns }).collect();
        let figures = Figures {
            messages: 1,
            window_ns: whole_ns,
            latency: None,
            cpu_ns_per_message: None,
            sender_cpu_ns: None,
            receiver_cpu_ns: None,
            switches_per_message: None,
            fairness: None,
            of_pattern: PatternFigures::None,
            memory: None,
            offered: 1,
            delivered: 1,
            lost_in_window: 0,
            faults: Faults::default(),
            breach: None,
            steal: 0.0,
            peer_load: None,
            clock_error: None,
            discarded: None,
            slices,
            unpaused_run_ns: None,
            paused_slices: Vec::new(),
        };
        InstanceRecord { round: 0, entrant, line_ns: None, heat, outcome: Outcome::Measured(Box::new(figures)) }
    }

    fn ratio(a: &InstanceRecord, b: &InstanceRecord) -> f64 {
        ValidInstance::of(a).unwrap().ratio_to(ValidInstance::of(b).unwrap()).unwrap().exp()
    }

    #[test]
    fn instances_of_one_heat_are_compared_lap_by_lap() {
        // The machine becomes ten times slower in the middle. One lap of `b` is disturbed.
        let a = instance(0, Some(1), 5, &[10.0, 10.0, 10.0, 10.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        let mut laps = [5.0, 5.0, 5.0, 5.0, 50.0, 50.0, 50.0, 50.0, 999.0];
        let b = instance(1, Some(1), 1, &laps);
        assert!((ratio(&a, &b) - 2.0).abs() < 1e-9);
        // With too few laps, or in different heats, they are compared as a whole.
        let few = instance(1, Some(1), 1, &laps[..4]);
        assert!((ratio(&instance(0, Some(1), 5, &[1.0]), &few) - 5.0).abs() < 1e-9);
        laps.reverse();
        let elsewhere = instance(1, Some(2), 1, &laps);
        assert!((ratio(&a, &elsewhere) - 100.0 / 50.0).abs() < 1e-9, "by the medians of their own laps");
    }

    #[test]
    fn an_unpaused_run_is_compared_with_unpaused_runs_and_windows_but_not_with_slices() {
        let with_unpaused_run = |ns, laps: &[f64]| {
            let mut instance = instance(0, Some(1), 1, laps);
            if let Outcome::Measured(figures) = &mut instance.outcome {
                figures.unpaused_run_ns = Some(ns);
            }
            instance
        };
        let compare = |a: &InstanceRecord, b: &InstanceRecord| {
            let ratio = ValidInstance::of(a).unwrap().ratio_to(ValidInstance::of(b).unwrap());
            ratio.map(|ln| (ln.exp() * 100.0).round() / 100.0)
        };
        let (sensitive, laps) = (with_unpaused_run(20.0, &[]), [10.0; MIN_LAPS]);
        assert_eq!(compare(&sensitive, &with_unpaused_run(5.0, &laps)), Some(4.0));
        assert_eq!(compare(&sensitive, &instance(1, None, 40, &[])), Some(0.5), "a window");
        assert_eq!(compare(&sensitive, &instance(1, Some(1), 40, &laps)), None);
        assert_eq!(compare(&instance(1, Some(1), 40, &laps), &sensitive), None);
    }

    #[test]
    fn instances_of_different_heats_are_compared_through_the_anchor() {
        let mut record = crate::ranking::tests::record(&[("task/a", &[1]), ("task/b", &[1]), ("task/anchor", &[1])]);
        let laps = |ns: f64| vec![ns; MIN_LAPS];
        // The machine is ten times slower during the second heat. `b` takes twice the time of `a`.
        record.instances = vec![
            instance(0, Some(1), 1, &laps(10.0)),
            instance(2, Some(1), 1, &laps(30.0)),
            instance(1, Some(2), 1, &laps(200.0)),
            instance(2, Some(2), 1, &laps(300.0)),
        ];
        let one = |record: &Record, a, b| match &*log_ratios(record, a, b) {
            [ratio] => ratio.exp(),
            ratios => panic!("{ratios:?}"),
        };
        assert!((one(&record, 0, 1) - 0.5).abs() < 1e-9);
        assert!((one(&record, 1, 0) - 2.0).abs() < 1e-9);
        assert!((one(&record, 2, 0) - 3.0).abs() < 1e-9, "the anchor of the same heat");
        assert!((one(&record, 2, 1) - 1.5).abs() < 1e-9);
        record.instances.pop();
        assert!((one(&record, 0, 1) - 0.05).abs() < 1e-9, "without an anchor in both heats, as they are");
    }
}
