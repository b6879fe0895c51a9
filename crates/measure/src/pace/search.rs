//! The search for the highest rate that is sustained: a bisection between a rate that was sustained
//! and one that was too fast. It begins at full speed, or at a low rate that is doubled as long as
//! it is sustained.

/// The lower bound of the search as a part of full speed, if full speed was too fast from the
/// start.
const SLOWEST: f64 = 1.0 / 256.0;
/// The lower bound of the search as a part of a rate that was once sustained and later too fast. If
/// no higher rate is sustained, the bound is lowered again by this factor.
const ONCE_SUSTAINED: f64 = 0.5;
/// The search ends when the ratio of the lowest rate that was too fast and the highest sustained
/// rate is at most this.
const NEAR: f64 = 1.05;
/// The part of the found rate that is used in the window.
const MARGIN: f64 = 0.95;
/// A producer that sends at less than this part of the rate, in a few slices in a row, is at full
/// speed.
const MIN_PART_OF_RATE: f64 = 0.8;
/// The number of these slices. In one or two it may not have had its core.
const FULL_SPEED_SLICES: u32 = 3;
/// The factor by which the rate is lowered if too much is lost after the search.
const SLOW_DOWN: f64 = 0.9;

/// A search. All rates are in messages per nanosecond.
pub(super) struct RateSearch {
    /// The rate to send at now. Infinite: as fast as possible.
    rate: f64,
    phase: SearchPhase,
    /// Whether the slice before was too fast at the same rate. A single such slice may have another
    /// cause.
    is_doubted: bool,
    /// The highest rate of a slice at full speed. In some of them the producer may not have had its
    /// core.
    full_speed: f64,
    /// In how many slices in a row the producer did not reach the rate.
    missed: u32,
    /// Whether the search began at a low rate.
    doubles: bool,
}

/// What a slice has shown. Rates are in messages per nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// The rate at which the producer has sent.
    pub(super) offered: f64,
    /// The rate of what arrived in time: that of what was sent, or less if clearly more was late
    /// than one batch.
    pub(super) arrived: f64,
    /// Whether messages were lost or late, too many of them.
    pub(super) is_too_fast: bool,
}

/// What is known of the highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SearchPhase {
    /// Nothing yet.
    Start,
    /// This rate was sustained, and the next is twice as high.
    Doubling { low: f64 },
    /// Full speed, which was this rate in the last slice, is sustained so far.
    FullSpeed { low: f64 },
    /// It is from `low` to `high`, which was too fast. If `low` is guessed, it may be lower.
    Between { low: f64, high: f64, is_low_guessed: bool },
    /// It is from `low` to `high`, unless `high` was too fast for another reason. It is tried once
    /// more.
    Near { low: f64, high: f64 },
    /// It is found.
    Found,
}

impl RateSearch {
    /// A search that begins at full speed.
    pub(super) fn new() -> RateSearch {
        RateSearch {
            rate: f64::INFINITY,
            phase: SearchPhase::Start,
            is_doubted: false,
            full_speed: 0.0,
            missed: 0,
            doubles: false,
        }
    }

    /// A search that begins at this rate, for queues that take long to drain. Until the producer is
    /// at full speed, no slice is faster than twice what is sustained.
    pub(super) fn from(rate: f64) -> RateSearch {
        RateSearch { rate, doubles: true, ..RateSearch::new() }
    }

    /// The rate to send at now. Infinite: as fast as possible.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == SearchPhase::Found
    }

    /// Chooses the next rate after a slice. The search ends with the warm-up.
    pub(super) fn step(&mut self, slice: Slice, is_warming_up: bool) {
        if self.rate.is_infinite() {
            self.full_speed = self.full_speed.max(slice.offered);
        }
        if self.is_over() {
            if slice.is_too_fast {
                // Not from what a slice offered in which the producer did not have its core.
                let had_core = slice.offered >= MIN_PART_OF_RATE * self.full_speed;
                let rate = match self.rate.is_finite() {
                    true => self.rate,
                    false if had_core => slice.offered,
                    false => self.full_speed,
                };
                self.rate = rate * SLOW_DOWN;
            }
            return;
        }
        self.is_doubted = slice.is_too_fast && !self.is_doubted;
        if self.is_doubted && is_warming_up {
            return;
        }
        let is_missed = self.is_doubling() && slice.offered < self.rate * MIN_PART_OF_RATE;
        self.missed = if is_missed { self.missed + 1 } else { 0 };
        if !slice.is_too_fast && (1..FULL_SPEED_SLICES).contains(&self.missed) && is_warming_up {
            return;
        }
        self.phase = self.narrowed(slice);
        if !is_warming_up {
            return self.finish();
        }
        self.rate = match self.phase {
            SearchPhase::Between { low, high, .. } if high / low > NEAR => (low * high).sqrt(),
            SearchPhase::Between { low, high, .. } if self.doubles => {
                self.phase = SearchPhase::Near { low, high };
                high
            }
            SearchPhase::Between { .. } | SearchPhase::Near { .. } => return self.finish(),
            SearchPhase::Doubling { .. } => self.rate * 2.0,
            SearchPhase::Start | SearchPhase::FullSpeed { .. } | SearchPhase::Found => f64::INFINITY,
        };
    }

    /// Ends the search with what is known.
    pub(super) fn finish(&mut self) {
        self.rate = match self.phase {
            SearchPhase::Between { low, .. } | SearchPhase::Near { low, .. } => low * MARGIN,
            SearchPhase::Doubling { low } => low,
            SearchPhase::FullSpeed { low } if self.is_doubted => low * ONCE_SUSTAINED,
            SearchPhase::Start | SearchPhase::FullSpeed { .. } | SearchPhase::Found => self.rate,
        };
        self.phase = SearchPhase::Found;
    }

    /// Whether the rate is still doubled with each slice.
    fn is_doubling(&self) -> bool {
        matches!(self.phase, SearchPhase::Start | SearchPhase::Doubling { .. }) && self.rate.is_finite()
    }

    /// What is known after another slice.
    fn narrowed(&self, slice: Slice) -> SearchPhase {
        let Slice { offered, arrived, is_too_fast } = slice;
        let sustained = self.rate.min(arrived);
        // Not too fast, but more than passes: what is sustained is known.
        let is_saturated = !is_too_fast && arrived < offered;
        match self.phase {
            SearchPhase::Between { low, high, .. } if is_saturated => {
                SearchPhase::Between { low: sustained.max(low), high: self.rate.min(high), is_low_guessed: false }
            }
            SearchPhase::Start | SearchPhase::Doubling { .. } | SearchPhase::FullSpeed { .. } if is_saturated => {
                SearchPhase::Between { low: sustained, high: self.rate.min(offered), is_low_guessed: false }
            }
            SearchPhase::Start if is_too_fast => {
                let high = self.rate.min(self.full_speed.max(offered));
                SearchPhase::Between { low: high * SLOWEST, high, is_low_guessed: true }
            }
            // The queues of a link may have hidden that the slice before was too fast.
            SearchPhase::Doubling { low } if is_too_fast => {
                SearchPhase::Between { low, high: self.rate.min(offered), is_low_guessed: true }
            }
            // An earlier slice at full speed may have been lucky.
            SearchPhase::FullSpeed { low } if is_too_fast => {
                let low = low.min(offered) * ONCE_SUSTAINED;
                SearchPhase::Between { low, high: self.full_speed, is_low_guessed: true }
            }
            SearchPhase::Between { low, high, is_low_guessed } if is_too_fast => {
                let was_guess_too_high = is_low_guessed && self.rate < low * NEAR;
                let low = if was_guess_too_high { low * ONCE_SUSTAINED } else { low };
                SearchPhase::Between { low, high: self.rate.min(high), is_low_guessed }
            }
            SearchPhase::Between { low, high, .. } => {
                SearchPhase::Between { low: sustained.max(low), high, is_low_guessed: false }
            }
            SearchPhase::Near { .. } if !is_too_fast && !is_saturated => SearchPhase::Doubling { low: sustained },
            SearchPhase::Start | SearchPhase::Doubling { .. } if self.is_doubling() && self.missed == 0 => {
                SearchPhase::Doubling { low: sustained }
            }
            SearchPhase::Start | SearchPhase::Doubling { .. } | SearchPhase::FullSpeed { .. } => {
                SearchPhase::FullSpeed { low: offered }
            }
            SearchPhase::Near { .. } | SearchPhase::Found => self.phase,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::MAX_LOSS;

    fn slice(offered: f64, is_too_fast: bool) -> Slice {
        Slice { offered, arrived: offered, is_too_fast }
    }

    /// The rate that is found for a mechanism that loses everything above `capacity` messages
    /// per nanosecond.
    fn found(capacity: f64, fastest: f64) -> f64 {
        let mut search = RateSearch::new();
        for _ in 0..30 {
            let offered = search.rate.min(fastest);
            search.step(slice(offered, 1.0 - capacity / offered > MAX_LOSS), true);
        }
        search.step(slice(search.rate.min(fastest), false), false);
        search.rate.min(fastest)
    }

    #[test]
    fn the_search_ends_just_below_the_capacity() {
        for capacity in [0.0001, 0.001, 0.0009] {
            let rate = found(capacity, 0.001);
            assert!(rate <= capacity * 1.002 && rate > capacity * 0.85, "{rate} of {capacity}");
        }
    }

    #[test]
    fn a_mechanism_that_keeps_up_is_not_slowed_down() {
        assert_eq!(found(0.01, 0.001), 0.001);
    }

    #[test]
    fn one_lucky_slice_at_full_speed_does_not_end_the_search() {
        let mut search = RateSearch::new();
        search.step(slice(0.001, false), true);
        assert!(search.rate.is_infinite());
        search.step(slice(0.001, true), true);
        search.step(slice(0.001, true), true);
        assert!(search.rate < 0.001, "{}", search.rate);
    }

    #[test]
    fn after_full_speed_was_once_sustained_the_next_rate_is_near_it() {
        let mut search = RateSearch::new();
        for is_too_fast in [false, true, true] {
            search.step(slice(0.001, is_too_fast), true);
        }
        assert!(search.rate > 0.0005 && search.rate < 0.001, "{}", search.rate);
        // Also when the warm-up is over.
        search.step(slice(0.001, true), false);
        assert!(search.rate > 0.0004 && search.is_over(), "{}", search.rate);
    }

    #[test]
    fn the_search_finds_the_sustained_rate_after_a_lucky_slice() {
        let mut search = RateSearch::new();
        search.step(slice(0.001, false), true);
        for _ in 0..60 {
            let offered = search.rate.min(0.001);
            search.step(slice(offered, offered > 0.0002), true);
        }
        search.step(slice(search.rate, false), false);
        assert!(search.rate > 0.00017 && search.rate <= 0.0002, "{}", search.rate);
    }

    #[test]
    fn one_unlucky_slice_is_repeated() {
        let mut search = RateSearch::new();
        for is_too_fast in [true, false, true, false] {
            search.step(slice(0.001, is_too_fast), true);
            assert!(search.rate.is_infinite());
        }
        // There is no repetition when the warm-up is over.
        search.step(slice(0.001, true), false);
        assert!(search.rate.is_finite() && search.is_over());
    }

    #[test]
    fn a_search_from_a_low_rate_never_sends_much_more_than_is_sustained() {
        for (capacity, fastest) in [(0.0005, 0.1), (0.000_000_3, 0.1), (0.02, 0.002), (0.000_000_01, 0.1)] {
            let mut search = RateSearch::from(0.000_000_1);
            let mut fastest_offered: f64 = 0.0;
            for _ in 0..40 {
                let offered = search.rate.min(fastest);
                fastest_offered = fastest_offered.max(offered);
                search.step(slice(offered, 1.0 - capacity / offered > MAX_LOSS), true);
            }
            search.step(slice(search.rate.min(fastest), false), false);
            let (rate, best) = (search.rate.min(fastest), capacity.min(fastest));
            assert!(rate <= best * 1.002 && rate > best * 0.85, "{rate} of {best}");
            assert!(fastest_offered <= (2.0 * best).max(0.000_000_1), "{fastest_offered} of {best}");
        }
    }

    #[test]
    fn a_rate_that_was_too_high_for_another_reason_is_tried_again() {
        let mut search = RateSearch::from(0.001);
        for step in 0..60 {
            let offered = search.rate.min(0.1);
            search.step(slice(offered, step < 2 || offered > 0.02), true);
        }
        assert!(search.is_over() && search.rate > 0.017 && search.rate <= 0.02, "{}", search.rate);
    }

    #[test]
    fn a_lucky_slice_while_the_rate_is_doubled_does_not_decide() {
        let mut search = RateSearch::from(0.001);
        for _ in 0..60 {
            let offered = search.rate.min(0.1);
            // 0.004 was four times too fast, and a queue had space for it.
            let is_lucky = offered == 0.004;
            search.step(slice(offered, offered > 0.001 && !is_lucky), true);
        }
        assert!(search.is_over() && search.rate > 0.00085 && search.rate <= 0.001, "{}", search.rate);
    }

    #[test]
    fn a_producer_that_lost_its_core_for_a_moment_is_not_at_full_speed() {
        let mut search = RateSearch::from(0.001);
        for offered in [0.0005, 0.0004] {
            search.step(slice(offered, false), true);
            assert_eq!(search.rate, 0.001);
        }
        search.step(slice(0.001, false), true);
        assert_eq!(search.rate, 0.002);
        for _ in 0..3 {
            search.step(slice(0.0015, false), true);
        }
        assert!(search.rate.is_infinite());
    }

    /// The steps of a search over a link that queues what it cannot carry, until the queue has
    /// drained. Of a slice of 100 ms, late messages count from 8 % or 68 on, and are too many from
    /// 8 % and 68 on.
    fn steps_over_link(search: &mut RateSearch, capacity: f64) -> usize {
        for step in 1..100 {
            let (sent, time) = (search.rate * 1e8, 1e8);
            let late = (sent - capacity * time).max(0.0);
            let arrived = if late > f64::max(68.0, 0.08 * sent) { sent - late } else { sent };
            let is_too_fast = late > 68.0 + 0.08 * sent;
            search.step(Slice { offered: sent / time, arrived: arrived / time, is_too_fast }, true);
            if search.is_over() {
                return step;
            }
        }
        panic!("not found: {:?} of {capacity}", search.phase)
    }

    #[test]
    fn the_search_over_a_link_with_a_queue_ends_near_its_rate() {
        for messages in [680.0, 1_360.0, 5_000.0, 50_000.0] {
            for part in [0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.7, 2.5, 3.9] {
                let link = messages / 1e8;
                let mut search = RateSearch::from(link / 4.0);
                let steps = steps_over_link(&mut search, link * part);
                let found = search.rate / (link * part);
                assert!(steps <= 20, "{steps} steps for {part} of {messages}");
                // With few messages in a slice, a batch is a larger part of it.
                let most = if messages * part < 1_000.0 { 1.2 } else { 1.08 };
                assert!((0.85..most).contains(&found), "{found} for {part} of {messages}");
            }
        }
    }

    #[test]
    fn a_slice_that_was_too_fast_at_full_speed_counts_when_the_warm_up_ends() {
        let mut search = RateSearch::from(0.001);
        (0..3).for_each(|_| search.step(slice(0.0005, false), true));
        assert!(search.rate.is_infinite());
        search.step(slice(0.002, true), true);
        search.finish();
        assert_eq!(search.rate, 0.0005 * ONCE_SUSTAINED);
    }

    #[test]
    fn a_warm_up_that_ends_while_the_rate_is_doubled_keeps_the_last_one() {
        let mut search = RateSearch::from(0.001);
        search.step(slice(0.001, false), true);
        search.step(slice(0.002, false), false);
        assert_eq!((search.rate, search.is_over()), (0.002, true));
        let mut search = RateSearch::from(0.001);
        search.step(slice(0.001, false), true);
        search.step(slice(0.002, true), false);
        assert_eq!((search.rate, search.is_over()), (0.001 * MARGIN, true));
    }

    #[test]
    fn a_producer_without_its_core_does_not_lower_the_rate_by_more_than_a_step() {
        for mut search in [RateSearch::new(), RateSearch::from(0.001)] {
            for _ in 0..60 {
                let offered = search.rate.min(0.002);
                search.step(slice(offered, offered > 0.001), true);
            }
            let found = search.rate;
            assert!(search.is_over() && found > 0.000_85, "{found}");
            search.step(slice(found / 10.0, true), false);
            assert_eq!(search.rate, found * SLOW_DOWN);
        }
        // At full speed, too.
        let mut search = RateSearch::new();
        search.step(slice(0.001, false), true);
        search.step(slice(0.001, false), false);
        search.step(slice(0.0001, true), false);
        assert_eq!(search.rate, 0.001 * SLOW_DOWN);
    }

    #[test]
    fn a_slice_at_full_speed_without_the_core_does_not_bound_the_rate() {
        let mut search = RateSearch::new();
        search.step(slice(0.001, true), true);
        search.step(slice(0.0001, true), true);
        for _ in 0..60 {
            let offered = search.rate.min(0.001);
            search.step(slice(offered, offered > 0.0005), true);
        }
        assert!(search.rate > 0.0004 && search.rate <= 0.0005, "{}", search.rate);
    }

    #[test]
    fn after_the_search_the_rate_is_only_lowered() {
        let mut search = RateSearch::new();
        search.step(slice(0.001, false), false);
        assert!(search.is_over() && search.rate.is_infinite());
        search.step(slice(0.001, true), false);
        search.step(slice(0.001, false), false);
        assert!((search.rate - 0.0009).abs() < 1e-9, "{}", search.rate);
    }
}
