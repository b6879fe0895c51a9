//! The state of the machine around the laps of a heat. A heat is a group of instances that are open
//! at the same time and take turns; a lap is one turn (slice) of each.
//!
//! Two slices of one lap are compared because the machine was in the same state for both. In a
//! virtual machine the host can take a core away for some time (steal), and it can move the cores
//! to other places, which changes the round trip of a cache line between them by a factor of four.
//! So both are read between the laps. A lap with a change does not count, whatever was measured in
//! it, unless most laps have one: then that is the usual state of this machine.

use serde::{Deserialize, Serialize};

use crate::limits::steady;

/// The lap with the unpaused runs, if the window is a time: see [`crate::unpaused_runs`].
pub(crate) const UNPAUSED_LAP: u64 = 1;

/// The state of the machine around the laps of one heat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeatRecord {
    /// The number of the heat, from 1.
    pub heat: usize,
    /// The number of laps.
    pub laps: u64,
    /// The laps in which the hypervisor took time from the cores. Never the lap of the unpaused
    /// runs: there it counts against the turn in which it happened.
    pub stolen_laps: Vec<u64>,
    /// The round trip of a cache line between the cores in nanoseconds: before each lap, and after
    /// the last. Empty if the cell runs on one core; `null` where a measurement failed.
    pub line_ns: Vec<Option<f64>>,
}

impl HeatRecord {
    /// The laps whose slices do not count. Time that is stolen in most laps is the usual state of
    /// this machine, and is no reason.
    pub fn discarded_laps(&self) -> Vec<u64> {
        let mut discarded = self.moved_laps();
        if self.stolen_laps.len() as u64 * 2 <= self.laps {
            discarded.extend(&self.stolen_laps);
        }
        discarded.sort_unstable();
        discarded.dedup();
        discarded
    }

    /// Whether the host moved the cores during the laps. A single reading between two that belong
    /// to one placement is a disturbed reading, and no move.
    pub fn has_moved(&self) -> bool {
        let readings: Vec<f64> = self.line_ns.iter().copied().flatten().collect();
        let is_outlier = |at: usize| {
            let (Some(before), Some(after)) = (at.checked_sub(1).and_then(|at| readings.get(at)), readings.get(at + 1))
            else {
                return false;
            };
            let moved = |a: f64, b: f64| !steady((a.min(b), a.max(b)));
            moved(*before, readings[at]) && moved(readings[at], *after) && !moved(*before, *after)
        };
        let kept = (0..readings.len()).filter(|at| !is_outlier(*at)).map(|at| Some(readings[at])).collect();
        !HeatRecord { line_ns: kept, ..self.clone() }.moved_laps().is_empty()
    }

    /// The laps during which the host moved the cores: the readings before and after them cannot
    /// belong to one placement. A single disturbed reading also makes its two laps such laps. Empty
    /// if they are most laps: then the readings say nothing.
    pub fn moved_laps(&self) -> Vec<u64> {
        let readings: Vec<(u64, f64)> = (0..).zip(&self.line_ns).filter_map(|(at, ns)| Some((at, (*ns)?))).collect();
        let has_moved = |pair: &[(u64, f64)]| !steady((pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1)));
        // After the reading before lap 1 there was no lap, and so on.
        let between = |pair: &[(u64, f64)]| pair[0].0 + 1..=pair[1].0;
        let laps: Vec<u64> = readings.windows(2).filter(|pair| has_moved(pair)).flat_map(between).collect();
        if laps.len() as u64 * 2 > self.laps { Vec::new() } else { laps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lap_between_two_placements_does_not_count() {
        let line_ns = [50.0, 52.0, 49.0, 210.0, 205.0, 210.0, 208.0].map(Some).to_vec();
        let heat = HeatRecord { heat: 1, laps: 6, stolen_laps: vec![1], line_ns };
        assert_eq!(heat.moved_laps(), [3]);
        assert_eq!(heat.discarded_laps(), [1, 3]);
    }

    #[test]
    fn a_single_reading_that_differs_is_no_move() {
        let has_moved = |line_ns: &[f64]| {
            let line_ns: Vec<Option<f64>> = line_ns.iter().copied().map(Some).collect();
            HeatRecord { heat: 1, laps: line_ns.len() as u64 - 1, stolen_laps: Vec::new(), line_ns }.has_moved()
        };
        assert!(!has_moved(&[50.0, 52.0, 210.0, 51.0, 50.0, 49.0]));
        assert!(has_moved(&[50.0, 52.0, 51.0, 210.0, 205.0, 210.0]));
        assert!(has_moved(&[50.0, 52.0, 51.0, 50.0, 49.0, 210.0]), "the last reading may be the first of a new place");
    }

    #[test]
    fn what_happens_in_most_laps_is_usual() {
        let line_ns = [50.0, 49.0, 51.0, 210.0, 220.0].map(Some).to_vec();
        let heat = HeatRecord { heat: 1, laps: 4, stolen_laps: vec![1, 2, 4], line_ns };
        assert_eq!(heat.discarded_laps(), [3]);
        let line_ns = [50.0, 210.0, 51.0, 210.0, 50.0].map(Some).to_vec();
        assert_eq!(HeatRecord { line_ns, ..heat }.discarded_laps(), [0_u64; 0]);
    }

    #[test]
    fn a_move_while_no_reading_succeeded_discards_all_laps_since_the_last() {
        let line_ns = vec![Some(50.0), Some(51.0), None, Some(210.0), Some(211.0), Some(210.0)];
        let heat = HeatRecord { heat: 1, laps: 5, stolen_laps: Vec::new(), line_ns };
        assert_eq!(heat.discarded_laps(), [2, 3]);
    }

    #[test]
    fn one_core_has_no_readings() {
        let heat = HeatRecord { heat: 1, laps: 9, ..HeatRecord::default() };
        assert_eq!(heat.discarded_laps(), [0_u64; 0]);
    }
}
