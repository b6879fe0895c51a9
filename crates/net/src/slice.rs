//! The time for which the messages of one connection are delivered before others get their turn.
//!
//! A look at the clock costs as much as the delivery of a small message. So there is one look for
//! several messages, and their number adapts to the time that the user takes for each.

use std::time::{Duration, Instant};

/// How many messages are delivered before the first look of a slice, at most.
const FIRST: u32 = 8;
/// The most messages between two looks.
const MOST: u32 = 256;
/// There should be this many looks in a slice.
const LOOKS: u32 = 8;

/// The time of one connection.
#[derive(Debug)]
pub(crate) struct TimeSlice {
    limit: Duration,
    /// The first and the last look at the clock. There was none as long as a connection has had
    /// few messages, so short turns do not read the clock.
    looks: Option<(Instant, Instant)>,
    /// How many messages there are between two looks.
    interval: u32,
    /// How many messages remain before the next look.
    left: u32,
}

impl TimeSlice {
    pub(crate) fn new(limit: Duration) -> TimeSlice {
        TimeSlice { limit, looks: None, interval: FIRST, left: FIRST }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Begins the slice of the next connection.
    pub(crate) fn begin(&mut self) {
        // Its messages may take longer than those of the last one.
        self.interval = self.interval.min(FIRST);
        (self.looks, self.left) = (None, self.interval);
    }

    /// Begins another slice for the same connection.
    pub(crate) fn renew(&mut self, now: Instant) {
        (self.looks, self.left) = (Some((now, now)), self.interval);
    }

    /// How many messages may be delivered before [`TimeSlice::is_over`] is asked again.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Counts messages that were delivered.
    pub(crate) fn count(&mut self, messages: u32) {
        self.left = self.left.saturating_sub(messages);
    }

    /// Whether the time is over. Looks at the clock if enough messages were delivered.
    pub(crate) fn is_over(&mut self) -> bool {
        self.left == 0 && self.is_over_at(Instant::now())
    }

    /// Counts messages, all that were left, and looks at the clock. Returns how many may be
    /// delivered before the next look. None if the time is over: then [`TimeSlice::is_over`] says
    /// so too.
    pub(crate) fn extend(&mut self, messages: u32) -> Option<u32> {
        self.extend_at(messages, Instant::now())
    }

    fn extend_at(&mut self, messages: u32, now: Instant) -> Option<u32> {
        self.count(messages);
        if self.looks.is_some_and(|(first, _)| now.duration_since(first) >= self.limit) {
            return None;
        }
        self.is_over_at(now);
        Some(self.left)
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let Some((first, last)) = self.looks else {
            (self.looks, self.left) = (Some((now, now)), self.interval);
            return false;
        };
        self.adapt(now.duration_since(last));
        (self.looks, self.left) = (Some((first, now)), self.interval);
        now.duration_since(first) >= self.limit
    }

    /// Adapts the number of messages between two looks to the time that the last ones took.
    fn adapt(&mut self, took: Duration) {
        let wanted = self.limit / LOOKS;
        let fitting = u128::from(self.interval) * wanted.as_nanos() / took.as_nanos().max(1);
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX);
        self.interval = fitting.clamp(1, (2 * self.interval).min(MOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(800);

    /// How many messages are delivered in a slice if each takes this long, and how many looks there
    /// are.
    fn delivered(slice: &mut TimeSlice, each: Duration) -> (u32, u32) {
        let (mut now, mut messages, mut looks) = (Instant::now(), 0, 0);
        slice.begin();
        loop {
            now += each * slice.left();
            messages += slice.left();
            slice.count(slice.left());
            looks += 1;
            if slice.is_over_at(now) {
                return (messages, looks);
            }
        }
    }

    #[test]
    fn cheap_messages_take_few_looks() {
        let mut slice = TimeSlice::new(LIMIT);
        let (messages, looks) = delivered(&mut slice, Duration::from_nanos(20));
        assert!((40_000..41_000).contains(&messages), "{messages}");
        assert!(looks < messages / 200, "{looks}");
    }

    #[test]
    fn a_slice_is_exceeded_by_little_once_messages_are_known_to_be_expensive() {
        let mut slice = TimeSlice::new(LIMIT);
        delivered(&mut slice, Duration::from_nanos(20));
        // It is known after 16.
        assert!(delivered(&mut slice, Duration::from_millis(1)).0 <= 16);
        for _ in 0..3 {
            assert!(delivered(&mut slice, Duration::from_millis(1)).0 <= 3);
        }
        let (messages, _) = delivered(&mut slice, Duration::from_micros(50));
        assert!((16..=40).contains(&messages), "{messages}");
    }

    #[test]
    fn a_slice_is_extended_until_its_time_is_over_and_then_it_is_over() {
        let mut slice = TimeSlice::new(LIMIT);
        slice.begin();
        let (mut now, mut messages) = (Instant::now(), 0);
        let mut allowed = slice.left();
        while let Some(more) = slice.extend_at(allowed, now) {
            messages += allowed;
            allowed = more;
            now += Duration::from_micros(1) * more;
        }
        // Each message takes 1 us, and the first look comes after the first messages.
        assert!((700..1_100).contains(&messages), "{messages}");
        assert!(slice.left() == 0 && slice.is_over_at(now));
    }

    #[test]
    fn a_limit_of_zero_ends_a_slice_at_the_second_look_and_an_endless_one_never_does() {
        let mut slice = TimeSlice::new(Duration::ZERO);
        assert_eq!(delivered(&mut slice, Duration::from_nanos(1)).1, 2);
        let mut slice = TimeSlice::new(Duration::MAX);
        let begun = Instant::now();
        assert!((0..1000).all(|i| !slice.is_over_at(begun + Duration::from_secs(i))));
    }
}
