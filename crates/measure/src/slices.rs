//! Slices: the measurements of an instance in each of its turns.
//!
//! A slice begins some time after its turn begins, when the caches are warm again. It ends with the
//! last reading of the clock before the next pause. So the time in which processes are being
//! stopped or resumed does not count.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The time at the beginning of each turn that does not count.
pub(crate) const SETTLE_NS: u64 = 200_000;
/// Round-trip times are recorded in units of 1/64 ns. In whole nanoseconds a round trip of 50 ns
/// would have an error of 2 %.
const UNITS: u64 = 64;
/// The maximum number of slices kept for each party. Later ones are dropped.
const MAX_SLICES: usize = 1_000;

/// The counts of one party in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SliceCounts {
    /// The number of the lap.
    pub lap: u64,
    /// Messages or round trips.
    pub messages: u64,
    /// The length of the slice in nanoseconds.
    pub ns: u64,
    /// The median round-trip time in nanoseconds. Only for the side that sends requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at_ns: u64,
    messages: u64,
}

/// The slices of one party.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    lap: u64,
    /// The time at which the current turn begins to count.
    settled_ns: u64,
    /// The beginning of the current slice, if one has begun.
    first: Option<Mark>,
    last: Mark,
    /// The round-trip times of the slice.
    times: Option<Histogram<u64>>,
    done: Vec<SliceCounts>,
}

impl Slices {
    /// Updates the slices. Called at each reading of the clock. `turn` is the lap number of a turn
    /// that has begun since the last call. `counts` says whether the window is open.
    pub(crate) fn update(&mut self, now_ns: u64, messages: u64, turn: Option<u64>, counts: bool) {
        if let Some(lap) = turn {
            self.end_slice();
            (self.lap, self.settled_ns) = (lap, now_ns + SETTLE_NS);
        }
        self.last = Mark { at_ns: now_ns, messages };
        match self.first {
            None if counts && now_ns >= self.settled_ns => {
                self.first = Some(self.last);
                self.times.iter_mut().for_each(Histogram::reset);
            }
            Some(_) if !counts => self.end_slice(),
            _ => {}
        }
    }

    /// Records that `round_trips` round trips took `took_ns` together.
    pub(crate) fn record_round_trips(&mut self, took_ns: u64, round_trips: u64) {
        if self.first.is_some() {
            let bounds = || Histogram::new_with_bounds(1, 60_000_000_000 * UNITS, 3).expect("the bounds are fine");
            self.times.get_or_insert_with(bounds).saturating_record(took_ns * UNITS / round_trips.max(1));
        }
    }

    fn end_slice(&mut self) {
        let Some(first) = self.first.take() else { return };
        let (messages, ns) = (self.last.messages - first.messages, self.last.at_ns.saturating_sub(first.at_ns));
        if messages > 0 && ns > 0 && self.done.len() < MAX_SLICES {
            let times = self.times.as_ref().filter(|times| !times.is_empty());
            let p50_ns = times.map(|times| times.value_at_quantile(0.5) as f64 / UNITS as f64);
            self.done.push(SliceCounts { lap: self.lap, messages, ns, p50_ns });
        }
    }

    /// Ends the last slice and returns all slices.
    pub(crate) fn finish(mut self) -> Vec<SliceCounts> {
        self.end_slice();
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_begins_after_the_settling_time_and_ends_with_the_last_reading_before_the_pause() {
        let mut slices = Slices::default();
        slices.update(0, 0, Some(1), true);
        slices.update(SETTLE_NS, 10, None, true);
        slices.update(SETTLE_NS + 1_000, 30, None, true);
        slices.update(SETTLE_NS + 2_000, 50, None, true);
        // In the next turn, messages since the last reading belong to no slice.
        slices.update(SETTLE_NS + 2_500, 99, Some(2), true);
        slices.update(SETTLE_NS * 2 + 2_500, 100, None, true);
        slices.update(SETTLE_NS * 2 + 3_500, 105, None, false);
        slices.update(SETTLE_NS * 2 + 9_500, 500, None, false);
        let slice = |lap, messages, ns| SliceCounts { lap, messages, ns, p50_ns: None };
        assert_eq!(slices.finish(), [slice(1, 40, 2_000), slice(2, 5, 1_000)]);
    }

    #[test]
    fn no_slice_begins_before_the_window_and_round_trips_have_a_median() {
        let mut slices = Slices::default();
        slices.update(0, 0, Some(1), false);
        slices.update(SETTLE_NS, 10, None, false);
        slices.record_round_trips(1, 1);
        slices.update(SETTLE_NS * 2, 20, None, true);
        [40, 101, 120].iter().for_each(|ns| slices.record_round_trips(*ns, 2));
        slices.update(SETTLE_NS * 3, 23, None, true);
        let [slice] = slices.finish()[..] else { panic!("one slice") };
        assert_eq!((slice.lap, slice.messages, slice.ns), (1, 3, SETTLE_NS));
        assert!(slice.p50_ns.is_some_and(|ns| (50.4..50.6).contains(&ns)), "{slice:?}");
    }
}
