//! Unpaused runs: finds the mechanisms that run differently after a pause.
//!
//! A mechanism with several ways of running may start each slice in the same one. A receiver that
//! sleeps whenever its channel is empty may have to be woken for each message after a pause, and
//! only once in some milliseconds without pauses. Then its slices say nothing about a program that
//! never stops.
//!
//! So the first turn of each instance, if its window is a time, has an unpaused run: after the
//! warm-up, half the time of all slices, at most 50 ms. In each round, each mechanism has the ratio
//! of its slices to its unpaused run. The machine may be faster in one of the two, so this ratio is
//! divided by the median of the cell. If the interval over the rounds lies completely beyond the
//! margin of equivalence, pauses change the mechanism. It is then compared by its unpaused runs,
//! with those of the others.
//!
//! If slices and unpaused runs disagree about which of two mechanisms is better, nothing is decided
//! between them ([`crate::ranking::Comparison::is_contradicted`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::case::{Case, Cell};
use crate::record::{Figures, Outcome, Record};
use crate::stats::{CONFIDENCE, Interval, Margins, median, median_interval};

/// For each cell, the interval of the ln ratio of slices to unpaused runs: the median of its
/// mechanisms in each round, over the rounds.
pub(crate) type PauseEffects = BTreeMap<Cell, Interval>;

/// Removes the slices of mechanisms that run differently after a pause, so that they are compared
/// by their unpaused runs, and those of their instances that have none. Returns by how much pauses
/// change all mechanisms of a cell alike.
pub(crate) fn apply(record: &mut Record) -> PauseEffects {
    let Changes { of_cases, of_cells } = Changes::of(record);
    let sensitive = sensitive(record, &of_cases);
    let effects = of_cells.into_iter().filter_map(|(cell, usual)| Some((cell, median_interval(&usual, CONFIDENCE)?)));
    let effects = effects.collect();
    record.instances.retain_mut(|instance| {
        let Outcome::Measured(figures) = &mut instance.outcome else { return true };
        if figures.breach.is_some() || !sensitive.contains(&instance.entrant) {
            return true;
        }
        figures.paused_slices = std::mem::take(&mut figures.slices);
        // Without an unpaused run, it has nothing that can be compared with the other rounds.
        figures.unpaused_run_ns.is_some()
    });
    effects
}

/// The entrants that run differently after a pause. If a mechanism does, its control does.
fn sensitive(record: &Record, changes: &BTreeMap<Case, Vec<f64>>) -> BTreeSet<usize> {
    let margin = Margins::default().equivalent.ln_1p();
    let is_changed = |case: &Case| {
        let interval = changes.get(case).and_then(|changes| median_interval(changes, CONFIDENCE));
        interval.is_some_and(|interval| interval.low > margin || interval.high < -margin)
    };
    let entrants = record.entrants.iter().enumerate();
    entrants.filter(|(_, entrant)| is_changed(&entrant.case)).map(|(at, _)| at).collect()
}

/// The ln ratios of slices to unpaused runs, one for each round.
#[derive(Default)]
struct Changes {
    /// Of each case, relative to the median of its cell. A case with several instances in a round,
    /// such as the one with the control, has their mean.
    of_cases: BTreeMap<Case, Vec<f64>>,
    /// The median of the cases of each cell.
    of_cells: BTreeMap<Cell, Vec<f64>>,
}

impl Changes {
    fn of(record: &Record) -> Changes {
        let mut rounds: BTreeMap<(&Cell, usize), BTreeMap<&Case, Vec<f64>>> = BTreeMap::new();
        for instance in &record.instances {
            let Outcome::Measured(figures) = &instance.outcome else { continue };
            if let Some(change) = change(figures) {
                let case = &record.entrants[instance.entrant].case;
                rounds.entry((&case.cell, instance.round)).or_default().entry(case).or_default().push(change);
            }
        }
        let mut all = Changes::default();
        for ((cell, _), round) in rounds {
            let mean = |changes: Vec<f64>| changes.iter().sum::<f64>() / changes.len() as f64;
            let round: Vec<(&Case, f64)> = round.into_iter().map(|(case, changes)| (case, mean(changes))).collect();
            let Some(usual) = median(&round.iter().map(|(_, change)| *change).collect::<Vec<_>>()) else { continue };
            all.of_cells.entry(cell.clone()).or_default().push(usual);
            for (case, change) in round {
                all.of_cases.entry(case.clone()).or_default().push(change - usual);
            }
        }
        all
    }
}

/// The ln ratio of an instance's slices to its unpaused run. `None` if it is not compared by
/// slices.
fn change(figures: &Figures) -> Option<f64> {
    let unpaused_ns = figures.unpaused_run_ns.filter(|_| figures.discarded.is_none() && !figures.slices.is_empty())?;
    Some((figures.metric_ns() / unpaused_ns).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::log_ratios;
    use crate::pairs::tests::instance;
    use crate::record::{InstanceRecord, MIN_LAPS};
    use crate::stats::Verdict;

    /// A record of three mechanisms and a control of the first, in 9 rounds. `of_slices` and
    /// `of_unpaused_run` are the times of each entrant in a round.
    fn record(of_slices: impl Fn(usize, usize) -> f64, of_unpaused_run: impl Fn(usize, usize) -> f64) -> Record {
        let mut record = crate::ranking::tests::record(&[("task/a", &[1]), ("task/b", &[1]), ("task/c", &[1])]);
        record.instances.clear();
        for (round, entrant) in (0..9).flat_map(|round| (0..4).map(move |entrant| (round, entrant))) {
            let mut instance = instance(entrant, Some(round + 1), 1, &[of_slices(round, entrant); MIN_LAPS]);
            if let Outcome::Measured(figures) = &mut instance.outcome {
                figures.unpaused_run_ns = Some(of_unpaused_run(round, entrant));
            }
            record.instances.push(InstanceRecord { round, ..instance });
        }
        record
    }

    fn sensitive_of(record: &Record) -> BTreeSet<usize> {
        sensitive(record, &Changes::of(record).of_cases)
    }

    /// The ratio of `b` to `a`, the median over the rounds.
    fn ratio(record: &Record, a: usize, b: usize) -> f64 {
        median(&log_ratios(record, b, a)).unwrap().exp()
    }

    #[test]
    fn a_mechanism_that_pauses_change_is_compared_by_unpaused_runs() {
        // Entrant 1 takes twice as long after pauses. Entrant 2 is a tenth slower than entrant 0 in slices.
        let times = [10.0, 24.0, 11.0, 10.0];
        let mut record = record(|_, of| times[of], |_, of| [10.0, 12.0, 11.2, 10.0][of]);
        assert_eq!(sensitive_of(&record), BTreeSet::from([1]));
        apply(&mut record);
        assert!((ratio(&record, 0, 1) - 1.2).abs() < 1e-9, "both by their unpaused runs");
        assert!((ratio(&record, 0, 2) - 1.1).abs() < 1e-9, "both by their slices");
    }

    /// The comparison of `b` with `a`.
    fn comparison(record: &Record, a: &str, b: &str) -> crate::ranking::Comparison {
        let ranking = crate::ranking::rank(record).remove(0);
        let at = |name: &str| ranking.rows.iter().position(|row| row.spec.name == name).unwrap();
        ranking.comparison(at(a), at(b))
    }

    #[test]
    fn what_unpaused_runs_decide_and_slices_contradict_is_not_decided() {
        // Entrant 1 takes more than twice as long in slices, and a tenth less in unpaused runs.
        let record = record(|_, of| [10.0, 24.0, 11.0, 10.0][of], |_, of| [10.0, 9.0, 11.2, 10.0][of]);
        let of_two = comparison(&record, "task/a", "task/b");
        assert!(of_two.interval.unwrap().low > 0.1, "by unpaused runs: {:?}", of_two.interval);
        assert!(of_two.verdict == Verdict::Inconclusive && of_two.is_contradicted);
        assert_eq!(comparison(&record, "task/a", "task/c").verdict, Verdict::Slower);
    }

    #[test]
    fn what_slices_decide_and_unpaused_runs_contradict_is_not_decided() {
        // Entrant 1 takes twice as long in slices. Its unpaused runs have two modes, the faster in 7 of 9 rounds.
        let with_modes = |fast: f64| {
            record(
                |_, of| [10.0, 20.0, 11.0, 10.0][of],
                move |round, of| match of {
                    1 => [fast, 40.0, fast, fast][round % 4],
                    _ => [10.0, 20.0, 11.0, 10.0][of],
                },
            )
        };
        let of_two = comparison(&with_modes(9.0), "task/a", "task/b");
        assert!(of_two.interval.unwrap().high < -0.5, "by slices: {:?}", of_two.interval);
        assert!(of_two.verdict == Verdict::Inconclusive && of_two.is_contradicted);
        assert_eq!(comparison(&with_modes(10.0), "task/a", "task/b").verdict, Verdict::Slower, "no contradiction");
    }

    #[test]
    fn a_change_of_the_whole_machine_says_nothing_about_a_mechanism() {
        let record = record(|_, of| 10.0 + of as f64, |round, of| (10.0 + of as f64) * (1.0 + round as f64));
        assert_eq!(sensitive_of(&record), BTreeSet::new());
    }

    #[test]
    fn what_pauses_do_to_all_mechanisms_alike_is_returned() {
        let mut record = record(|_, of| 6.0 + of as f64, |_, of| 1.5 * (6.0 + of as f64));
        let effects = apply(&mut record);
        let effect = effects[&record.entrants[0].case.cell];
        assert!((effect.estimate.exp() - 1.0 / 1.5).abs() < 1e-9, "{effect:?}");
    }

    #[test]
    fn a_control_is_compared_as_its_mechanism_is() {
        let record = record(
            |_, of| if of % 3 == 0 { 20.0 } else { 10.0 },
            |_, of| if of == 0 { 10.0 } else { 11.0 + of as f64 },
        );
        assert!(sensitive_of(&record).contains(&0) && sensitive_of(&record).contains(&3));
    }

    #[test]
    fn of_two_mechanisms_that_differ_both_are_compared_by_unpaused_runs() {
        // Entrants 0 and 3 are one mechanism and its control, which take twice as long after pauses. Entrant 2 is not measured.
        let mut record = record(|_, of| if of % 3 == 0 { 20.0 } else { 10.0 }, |_, _| 10.0);
        record.instances.retain(|instance| instance.entrant != 2);
        assert_eq!(sensitive_of(&record), BTreeSet::from([0, 1, 3]));
        apply(&mut record);
        assert!((ratio(&record, 0, 1) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn noise_does_not_change_the_way_of_comparing() {
        // A factor of two in single rounds, in both directions.
        let record = record(|_, _| 10.0, |round, of| if of == 1 { [5.0, 10.0, 20.0][round % 3] } else { 10.0 });
        assert_eq!(sensitive_of(&record), BTreeSet::new());
    }

    #[test]
    fn a_round_without_an_unpaused_run_does_not_count() {
        let mut record = record(|_, of| if of == 1 { 20.0 } else { 10.0 }, |_, _| 10.0);
        let Some(Outcome::Measured(figures)) = record.instances.get_mut(1).map(|instance| &mut instance.outcome) else {
            panic!("entrant 1 in round 0")
        };
        figures.unpaused_run_ns = None;
        apply(&mut record);
        assert_eq!((log_ratios(&record, 0, 1).len(), log_ratios(&record, 0, 2).len()), (8, 9));
    }
}
