//! Core distance: compares what was measured while the cores were equally far apart.
//!
//! The host of a virtual machine moves its virtual cores between physical ones, for seconds or
//! minutes. The round trip of a cache line between two of them then takes 50 ns at one time and 250
//! ns at another. What passes between cores follows it, but each mechanism by its own factor: a
//! stream through a ring may take five times as long, one through a pipe not a tenth more. So the
//! ratio of two mechanisms at one distance is another quantity than their ratio at another
//! distance, and a median over both says little.
//!
//! The readings of a run (before each cell, and between the laps) are grouped. Two readings belong
//! to different distances if no reading lies between them and one is more than 1.5 times the other.
//! The *usual* distance of a run is the one with the most rounds of cells. Only laps and rounds at
//! the usual distance count. A cell with too few of them is compared at the distance at which it
//! has the most rounds, and over all rounds if these are too few as well. Results take no part in
//! this: whether a round counts depends on readings only.

use std::collections::{BTreeMap, BTreeSet};

use crate::case::{Cell, Place};
use crate::laps::{HeatRecord, UNPAUSED_LAP};
use crate::record::{InstanceRecord, MIN_LAPS, Outcome, Record};
use crate::stats::{Interval, median};
use crate::unpaused_runs::{self, PauseEffects};

/// The minimum ratio of two successive readings, in order of size, of different distances.
const GAP: f64 = 1.5;
/// The minimum number of rounds with which a cell is compared at one distance. With fewer, nothing
/// could be decided.
const MIN_ROUNDS: usize = 6;

/// A record without what was measured at another distance than the rest of its cell.
#[derive(Clone, Debug)]
pub struct Comparable {
    /// The record. Instances at another distance are left out, and the slices of laps at another
    /// distance.
    pub record: Record,
    /// What was left out, by the number of the cell's first entrant. Cells without such rounds are
    /// not in it.
    left_out: BTreeMap<usize, LeftOut>,
    /// By how much pauses change all mechanisms of a cell alike.
    pause_effects: PauseEffects,
}

/// The rounds of a cell that do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOut {
    /// How many rounds do not count.
    pub rounds: usize,
    /// How many rounds were measured.
    pub of: usize,
    /// The median cache-line round trip of the rounds that count, in nanoseconds.
    pub counted_ns: f64,
    /// The median cache-line round trip of the others, in nanoseconds.
    pub other_ns: f64,
}

impl Comparable {
    /// Leaves out of a record what was measured at another distance, and the slices of mechanisms
    /// that run differently after a pause.
    pub fn of(record: &Record) -> Comparable {
        let mut comparable = Comparable::by_distance(record);
        comparable.pause_effects = unpaused_runs::apply(&mut comparable.record);
        comparable
    }

    /// Leaves out of a record what was measured at another distance. The results of two records are
    /// comparable only so: whether pauses change a mechanism is found in each record by itself.
    pub fn by_distance(record: &Record) -> Comparable {
        let mut comparable =
            Comparable { record: record.clone(), left_out: BTreeMap::new(), pause_effects: PauseEffects::new() };
        let distances = Distances::of(record);
        if !distances.boundaries.is_empty() {
            comparable.keep_usual(&distances, record);
        }
        comparable
    }

    fn keep_usual(&mut self, distances: &Distances, record: &Record) {
        let usual = distances.usual(record);
        let mut chosen = BTreeMap::new();
        for (first, rounds) in distances.rounds_by_cell(record) {
            let Some(distance) = choose(&rounds, usual) else { continue };
            chosen.insert(first, distance);
            self.left_out.extend(left_out(&rounds, distance).map(|left_out| (first, left_out)));
        }
        self.record.instances.retain_mut(|instance| {
            chosen
                .get(&distances.first_entrants[instance.entrant])
                .is_none_or(|distance| distances.keep(instance, *distance))
        });
    }

    /// The ln ratio of slices to runs without pauses, of all mechanisms of a cell together. Negative
    /// if messages take less time in slices. `None` with fewer than 6 rounds that have both.
    pub fn pause_effect(&self, cell: &Cell) -> Option<Interval> {
        self.pause_effects.get(cell).copied()
    }

    /// The rounds of a cell that do not count. `None` if all do.
    pub fn left_out(&self, cell: &Cell) -> Option<LeftOut> {
        let first = self.record.entrants.iter().position(|entrant| entrant.case.cell == *cell)?;
        self.left_out.get(&first).copied()
    }
}

/// The distance at which a cell is compared. `None` if it has too few rounds at any. `rounds` has
/// the distance of each round and its reading.
fn choose(rounds: &[(usize, f64)], usual: usize) -> Option<usize> {
    let count = |distance: usize| rounds.iter().filter(|(of, _)| *of == distance).count();
    let farthest = rounds.iter().map(|(of, _)| *of).max()?;
    let most = (0..=farthest).max_by_key(|distance| (count(*distance), *distance == usual));
    [Some(usual), most].into_iter().flatten().find(|distance| count(*distance) >= MIN_ROUNDS)
}

/// The rounds of a cell that do not count at a distance. `None` if all do.
fn left_out(rounds: &[(usize, f64)], distance: usize) -> Option<LeftOut> {
    let (counted, others): (Vec<_>, Vec<_>) = rounds.iter().partition(|(of, _)| *of == distance);
    let typical = |rounds: &[(usize, f64)]| median(&rounds.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    let (counted_ns, other_ns) = typical(&counted).zip(typical(&others))?;
    Some(LeftOut { rounds: others.len(), of: rounds.len(), counted_ns, other_ns })
}

/// The distances that occurred in a run. They are numbered from 0, nearest first.
struct Distances {
    /// The reading, in nanoseconds, that separates each distance from the next.
    boundaries: Vec<f64>,
    /// For each heat, the distance of each of its laps: see [`Distances::of_laps`].
    laps: BTreeMap<usize, BTreeMap<u64, Option<usize>>>,
    /// The median reading of each heat.
    heats: BTreeMap<usize, f64>,
    /// For each entrant, the first entrant of its cell.
    first_entrants: Vec<usize>,
}

impl Distances {
    fn of(record: &Record) -> Distances {
        let typical = |heat: &HeatRecord| median(&heat.line_ns.iter().copied().flatten().collect::<Vec<_>>());
        let heats: BTreeMap<usize, f64> =
            record.heats.iter().filter_map(|heat| Some((heat.heat, typical(heat)?))).collect();
        let before_cells = record
            .instances
            .iter()
            .filter(|instance| depends(record, instance))
            .filter_map(|instance| instance.line_ns);
        let mut readings: Vec<f64> = before_cells.chain(heats.values().copied()).filter(|ns| *ns > 0.0).collect();
        readings.sort_by(f64::total_cmp);
        let gaps = readings.windows(2).filter(|pair| pair[1] > GAP * pair[0]);
        let boundaries = gaps.map(|pair| (pair[0] * pair[1]).sqrt()).collect();
        let first_entrants = first_entrants(record);
        let mut distances = Distances { boundaries, laps: BTreeMap::new(), heats, first_entrants };
        for heat in &record.heats {
            let laps = distances.of_laps(heat);
            distances.laps.insert(heat.heat, laps);
        }
        distances
    }

    fn distance(&self, ns: f64) -> usize {
        self.boundaries.iter().filter(|boundary| ns > **boundary).count()
    }

    /// The distance of each lap of a heat that has a reading before and after it. `None` if these
    /// two differ.
    fn of_laps(&self, heat: &HeatRecord) -> BTreeMap<u64, Option<usize>> {
        // Lap 1 lies between the first and the second reading.
        let laps = (1..).zip(heat.line_ns.windows(2)).filter_map(|(lap, pair)| {
            let (before, after) = (self.distance(pair[0]?), self.distance(pair[1]?));
            Some((lap, (before == after).then_some(before)))
        });
        laps.collect()
    }

    /// The distance of an instance's round and its reading. `None` without a reading.
    fn of_instance(&self, instance: &InstanceRecord) -> Option<(usize, f64)> {
        let heat = instance.heat.and_then(|heat| self.heats.get(&heat)).copied();
        let ns = heat.or(instance.line_ns)?;
        Some((self.distance(ns), ns))
    }

    /// The distance of each round of each cell, by the cell's first entrant, with its reading.
    fn rounds_by_cell(&self, record: &Record) -> BTreeMap<usize, Vec<(usize, f64)>> {
        let mut rounds: BTreeMap<usize, BTreeMap<usize, (usize, f64)>> = BTreeMap::new();
        for instance in record.instances.iter().filter(|instance| depends(record, instance)) {
            if let Some(reading) = self.of_instance(instance) {
                let first = self.first_entrants[instance.entrant];
                rounds.entry(first).or_default().entry(instance.round).or_insert(reading);
            }
        }
        rounds.into_iter().map(|(first, rounds)| (first, rounds.into_values().collect())).collect()
    }

    /// The distance at which most rounds of cells were measured. The nearest of equals.
    fn usual(&self, record: &Record) -> usize {
        let rounds: Vec<usize> = self.rounds_by_cell(record).into_values().flatten().map(|(of, _)| of).collect();
        let count = |distance: usize| rounds.iter().filter(|of| **of == distance).count();
        (0..=self.boundaries.len()).rev().max_by_key(|distance| count(*distance)).unwrap_or(0)
    }

    /// Whether an instance counts at this distance. Removes its slices of laps at another.
    fn keep(&self, instance: &mut InstanceRecord, distance: usize) -> bool {
        let whole = self.of_instance(instance).is_none_or(|(of, _)| of == distance);
        // A failure or a broken promise is reported, whenever it happened.
        let Outcome::Measured(figures) = &mut instance.outcome else { return true };
        if figures.breach.is_some() {
            return true;
        }
        let Some(laps) =
            instance.heat.and_then(|heat| self.laps.get(&heat)).filter(|_| figures.slices.len() >= MIN_LAPS)
        else {
            return whole;
        };
        figures.unpaused_run_ns =
            figures.unpaused_run_ns.filter(|_| laps.get(&UNPAUSED_LAP).is_none_or(|of| *of == Some(distance)));
        let before = figures.slices.len();
        figures.slices.retain(|slice| laps.get(&slice.lap).is_none_or(|of| *of == Some(distance)));
        figures.slices.len() >= MIN_LAPS && figures.slices.len() * 2 >= before
    }
}

/// Whether the result of an instance depends on the distance between two cores.
fn depends(record: &Record, instance: &InstanceRecord) -> bool {
    record.entrants[instance.entrant].case.cell.place != Place::SameCore
}

/// For each entrant, the first entrant of its cell.
fn first_entrants(record: &Record) -> Vec<usize> {
    let mut first: BTreeMap<&Cell, usize> = BTreeMap::new();
    let entrants = record.entrants.iter().enumerate();
    entrants.map(|(at, entrant)| *first.entry(&entrant.case.cell).or_insert(at)).collect()
}

/// The rounds in which an instance of a cell was measured at another distance than the cell is
/// compared at.
pub(crate) fn rounds_at_other_distances(record: &Record) -> BTreeSet<(usize, usize)> {
    let comparable = Comparable::by_distance(record);
    let key = |instance: &InstanceRecord| (instance.round, instance.entrant);
    let counted: BTreeSet<_> = comparable.record.instances.iter().map(key).collect();
    record.instances.iter().map(key).filter(|key| !counted.contains(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::log_ratios;
    use crate::pairs::tests::instance;

    /// A record of two mechanisms, one round for each reading. `ratio` is the second one's time,
    /// relative to the first's, at a distance.
    fn record(readings: &[f64], ratio: impl Fn(f64) -> f64) -> Record {
        let mut record = crate::ranking::tests::record(&[("task/a", &[1]), ("task/b", &[1])]);
        record.instances.clear();
        for (round, &ns) in readings.iter().enumerate() {
            let heat = round + 1;
            let line_ns = vec![Some(ns); MIN_LAPS + 1];
            record.heats.push(HeatRecord { heat, laps: MIN_LAPS as u64, line_ns, ..HeatRecord::default() });
            for (entrant, time) in [(0, 100.0), (1, 100.0 * ratio(ns))] {
                let slices = vec![time; MIN_LAPS];
                record.instances.push(InstanceRecord { round, ..instance(entrant, Some(heat), 1, &slices) });
            }
        }
        record
    }

    /// The ratios of the second mechanism to the first, in the rounds that count.
    fn ratios(record: &Record) -> Vec<f64> {
        log_ratios(&Comparable::of(record).record, 1, 0).into_iter().map(|ln| ln.exp().round()).collect()
    }

    #[test]
    fn only_rounds_at_the_usual_distance_count() {
        let record =
            record(&[50.0, 250.0, 52.0, 58.0, 47.0, 251.0, 55.0, 49.0], |ns| if ns > 100.0 { 9.0 } else { 2.0 });
        assert_eq!(ratios(&record), [2.0; 6]);
        let left_out = Comparable::of(&record).left_out(&record.entrants[0].case.cell).unwrap();
        assert_eq!((left_out.rounds, left_out.of), (2, 8));
        assert_eq!((left_out.counted_ns, left_out.other_ns), (51.0, 250.5));
    }

    #[test]
    fn a_machine_that_stays_as_it_is_loses_no_round() {
        let record = record(&[50.0, 60.0, 70.0, 90.0, 110.0, 95.0], |_| 2.0);
        assert_eq!(ratios(&record), [2.0; 6], "they differ by more than a factor of two, but without a gap");
        assert_eq!(Comparable::of(&record).left_out(&record.entrants[0].case.cell), None);
    }

    #[test]
    fn laps_at_another_distance_do_not_count_within_a_round() {
        let mut record = record(&[50.0; 6], |_| 2.0);
        record.heats[0].line_ns = [vec![Some(50.0); 12], vec![Some(250.0); 9]].concat();
        // 11 laps near, one between, 8 laps far.
        for instance in record.instances.iter_mut().filter(|instance| instance.round == 0) {
            let Outcome::Measured(figures) = &mut instance.outcome else { unreachable!() };
            let factor = if instance.entrant == 1 { 9.0 } else { 1.0 };
            let slice = figures.slices[0];
            let lap = |lap| crate::record::SliceFigure { lap, ns: if lap > 11 { slice.ns * factor } else { slice.ns } };
            figures.slices = (1..=20).map(lap).collect();
        }
        record.heats.push(HeatRecord { heat: 99, line_ns: vec![Some(250.0); 3], ..HeatRecord::default() });
        assert_eq!(ratios(&record), [2.0; 6]);
    }

    #[test]
    fn a_cell_that_was_measured_at_another_distance_is_compared_there() {
        let distance = |usual_rounds, other_rounds, usual| {
            let rounds = [vec![(0, 50.0); usual_rounds], vec![(1, 250.0); other_rounds]].concat();
            choose(&rounds, usual)
        };
        assert_eq!(distance(6, 12, 0), Some(0), "enough at the usual distance");
        assert_eq!(distance(5, 7, 0), Some(1));
        assert_eq!(distance(0, 9, 0), Some(1));
        assert_eq!(distance(5, 5, 0), None, "all ten rounds together can decide more");
    }

    #[test]
    fn one_core_has_no_distance() {
        let mut record = record(&[50.0, 250.0, 50.0, 250.0, 50.0, 50.0], |_| 2.0);
        record.entrants.iter_mut().for_each(|entrant| entrant.case.cell.place = Place::SameCore);
        assert_eq!(ratios(&record).len(), 6);
    }
}
