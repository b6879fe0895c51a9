//! The state of the machine around the laps of a heat.
//!
//! Two slices of one lap are compared because the machine was in the same state for both. In a
//! virtual machine the host can take a core away for some time (steal), and it can move the cores
//! to other places, which changes the way between them by a factor of four. So both are read
//! between the laps. A lap with a change does not count, whatever was measured in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::steady;

/// The state of the machine around the laps of one heat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeatRecord {
    /// The number of the heat, from 1.
    pub heat: usize,
    /// The number of laps.
    pub laps: u64,
    /// The laps in which the hypervisor took time from the cores.
    pub stolen_laps: Vec<u64>,
    /// The round trip of a cache line between the cores in nanoseconds: before each lap, and after
    /// the last. Empty if the cell runs on one core; `null` where a measurement failed.
    pub line_ns: Vec<Option<f64>>,
}

impl HeatRecord {
    /// The laps whose slices do not count. If a disturbance is present in most laps, it is the
    /// usual state of this machine, and is no reason.
    pub fn discarded_laps(&self) -> Vec<u64> {
        let unless_usual = |laps: Vec<u64>| if laps.len() as u64 * 2 > self.laps { Vec::new() } else { laps };
        let mut discarded = unless_usual(self.stolen_laps.clone());
        discarded.extend(unless_usual(self.moved_laps()));
        discarded.sort_unstable();
        discarded.dedup();
        discarded
    }

    /// The laps during which the host moved the cores: the readings before and after it cannot
    /// belong to one placement.
    pub fn moved_laps(&self) -> Vec<u64> {
        let has_moved = |pair: &[Option<f64>]| match pair {
            &[Some(before), Some(after)] => !steady((before.min(after), before.max(after))),
            _ => false,
        };
        (1..).zip(self.line_ns.windows(2)).filter(|(_, pair)| has_moved(pair)).map(|(lap, _)| lap).collect()
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
    fn what_happens_in_most_laps_is_usual() {
        let line_ns = vec![Some(50.0), None, Some(210.0), Some(50.0), Some(49.0)];
        let heat = HeatRecord { heat: 1, laps: 4, stolen_laps: vec![1, 2, 4], line_ns };
        assert_eq!(heat.discarded_laps(), [3]);
    }

    #[test]
    fn one_core_has_no_readings() {
        let heat = HeatRecord { heat: 1, laps: 9, ..HeatRecord::default() };
        assert_eq!(heat.discarded_laps(), [0_u64; 0]);
    }
}
