//! The search for the highest rate that is sustained: a bisection between a rate that was sustained and one that was
//! too fast. It begins at full speed, or at a low rate that is doubled as long as it is sustained.

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
/// A producer that sends at less than this part of the rate, in two slices in a row, is at full speed.
const MIN_PART_OF_RATE: f64 = 0.8;
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
    /// Whether the producer did not reach the rate in the slice before. It may have lost its core for a moment.
    was_rate_missed: bool,
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
    /// It is found.
    Found,
}

impl RateSearch {
    /// A search that begins at full speed.
    pub(super) fn new() -> RateSearch {
        RateSearch { rate: f64::INFINITY, phase: SearchPhase::Start, is_doubted: false, was_rate_missed: false }
    }

    /// A search that begins at this rate, for queues that take long to drain: none is faster than twice what is
    /// sustained.
    pub(super) fn from(rate: f64) -> RateSearch {
        RateSearch { rate, ..RateSearch::new() }
    }

    /// The rate to send at now. Infinite: as fast as possible.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == SearchPhase::Found
    }

    /// Chooses the next rate after a slice at the rate `offered`. `is_too_fast` says whether that
    /// slice was too fast. The search ends with the warm-up.
    pub(super) fn step(&mut self, offered: f64, is_too_fast: bool, is_warming_up: bool) {
        if self.is_over() {
            if is_too_fast {
                self.rate = self.rate.min(offered) * SLOW_DOWN;
            }
            return;
        }
        self.is_doubted = is_too_fast && !self.is_doubted;
        if self.is_doubted && is_warming_up {
            return;
        }
        let is_rate_missed = offered < self.rate * MIN_PART_OF_RATE;
        let was_rate_missed = std::mem::replace(&mut self.was_rate_missed, is_rate_missed);
        if is_rate_missed && !was_rate_missed && self.is_doubling() && !is_too_fast && is_warming_up {
            return;
        }
        self.phase = self.narrowed(offered, is_too_fast);
        let is_near = matches!(self.phase, SearchPhase::Between { low, high, .. } if high / low <= NEAR);
        if is_near || !is_warming_up {
            return self.finish();
        }
        self.rate = match self.phase {
            SearchPhase::Between { low, high, .. } => (low * high).sqrt(),
            SearchPhase::Doubling { .. } => self.rate * 2.0,
            _ => f64::INFINITY,
        };
    }

    /// Ends the search with what is known.
    pub(super) fn finish(&mut self) {
        self.rate = match self.phase {
            SearchPhase::Between { low, .. } => low * MARGIN,
            SearchPhase::Doubling { low } => low,
            SearchPhase::Start | SearchPhase::FullSpeed { .. } | SearchPhase::Found => self.rate,
        };
        self.phase = SearchPhase::Found;
    }

    /// Whether the rate is still doubled with each slice.
    fn is_doubling(&self) -> bool {
        matches!(self.phase, SearchPhase::Start | SearchPhase::Doubling { .. }) && self.rate.is_finite()
    }

    /// What is known after another slice.
    fn narrowed(&self, offered: f64, is_too_fast: bool) -> SearchPhase {
        match self.phase {
            SearchPhase::Start if is_too_fast => {
                SearchPhase::Between { low: offered * SLOWEST, high: offered, is_low_guessed: true }
            }
            SearchPhase::Doubling { low } if is_too_fast => {
                SearchPhase::Between { low, high: self.rate.min(offered), is_low_guessed: false }
            }
            // An earlier slice at full speed may have been lucky.
            SearchPhase::FullSpeed { low } if is_too_fast => {
                SearchPhase::Between { low: low.min(offered) * ONCE_SUSTAINED, high: offered, is_low_guessed: true }
            }
            SearchPhase::Between { low, high, is_low_guessed } if is_too_fast => {
                let was_guess_too_high = is_low_guessed && self.rate < low * NEAR;
                let low = if was_guess_too_high { low * ONCE_SUSTAINED } else { low };
                SearchPhase::Between { low, high: self.rate.min(high), is_low_guessed }
            }
            SearchPhase::Between { low, high, .. } => {
                SearchPhase::Between { low: self.rate.min(offered).max(low), high, is_low_guessed: false }
            }
            SearchPhase::Start | SearchPhase::Doubling { .. }
                if self.is_doubling() && offered >= self.rate * MIN_PART_OF_RATE =>
            {
                SearchPhase::Doubling { low: self.rate.min(offered) }
            }
            SearchPhase::Start | SearchPhase::Doubling { .. } | SearchPhase::FullSpeed { .. } => {
                SearchPhase::FullSpeed { low: offered }
            }
            SearchPhase::Found => SearchPhase::Found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::MAX_LOSS;

    /// The rate that is found for a mechanism that loses everything above `capacity` messages
    /// per nanosecond.
    fn found(capacity: f64, fastest: f64) -> f64 {
        let mut search = RateSearch::new();
        for _ in 0..30 {
            let offered = search.rate.min(fastest);
            search.step(offered, 1.0 - capacity / offered > MAX_LOSS, true);
        }
        search.step(search.rate.min(fastest), false, false);
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
        search.step(0.001, false, true);
        assert!(search.rate.is_infinite());
        search.step(0.001, true, true);
        search.step(0.001, true, true);
        assert!(search.rate < 0.001, "{}", search.rate);
    }

    #[test]
    fn after_full_speed_was_once_sustained_the_next_rate_is_near_it() {
        let mut search = RateSearch::new();
        for is_too_fast in [false, true, true] {
            search.step(0.001, is_too_fast, true);
        }
        assert!(search.rate > 0.0005 && search.rate < 0.001, "{}", search.rate);
        // Also when the warm-up is over.
        search.step(0.001, true, false);
        assert!(search.rate > 0.0004 && search.is_over(), "{}", search.rate);
    }

    #[test]
    fn the_search_finds_the_sustained_rate_after_a_lucky_slice() {
        let mut search = RateSearch::new();
        search.step(0.001, false, true);
        for _ in 0..60 {
            let offered = search.rate.min(0.001);
            search.step(offered, offered > 0.0002, true);
        }
        search.step(search.rate, false, false);
        assert!(search.rate > 0.00017 && search.rate <= 0.0002, "{}", search.rate);
    }

    #[test]
    fn one_unlucky_slice_is_repeated() {
        let mut search = RateSearch::new();
        for is_too_fast in [true, false, true, false] {
            search.step(0.001, is_too_fast, true);
            assert!(search.rate.is_infinite());
        }
        // There is no repetition when the warm-up is over.
        search.step(0.001, true, false);
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
                search.step(offered, 1.0 - capacity / offered > MAX_LOSS, true);
            }
            search.step(search.rate.min(fastest), false, false);
            let (rate, best) = (search.rate.min(fastest), capacity.min(fastest));
            assert!(rate <= best * 1.002 && rate > best * 0.85, "{rate} of {best}");
            assert!(fastest_offered <= (2.0 * best).max(0.000_000_1), "{fastest_offered} of {best}");
        }
    }

    #[test]
    fn a_warm_up_that_ends_while_the_rate_is_doubled_keeps_the_last_one() {
        let mut search = RateSearch::from(0.001);
        search.step(0.001, false, true);
        search.step(0.002, false, false);
        assert_eq!((search.rate, search.is_over()), (0.002, true));
        let mut search = RateSearch::from(0.001);
        search.step(0.001, false, true);
        search.step(0.002, true, false);
        assert_eq!((search.rate, search.is_over()), (0.001 * MARGIN, true));
    }

    #[test]
    fn after_the_search_the_rate_is_only_lowered() {
        let mut search = RateSearch::new();
        search.step(0.001, false, false);
        assert!(search.is_over() && search.rate.is_infinite());
        search.step(0.001, true, false);
        search.step(0.001, false, false);
        assert!((search.rate - 0.0009).abs() < 1e-9, "{}", search.rate);
    }
}
