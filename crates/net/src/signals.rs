//! User signals to the node: normal, urgent and delayed.

use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// The signals that wait for delivery.
pub(crate) struct Signals<S> {
    pub(crate) urgent: VecDeque<S>,
    pub(crate) usual: VecDeque<S>,
    pub(crate) timed: BinaryHeap<Timed<S>>,
    count: u64,
}

impl<S> Signals<S> {
    pub(crate) fn new() -> Signals<S> {
        Signals { urgent: VecDeque::new(), usual: VecDeque::new(), timed: BinaryHeap::new(), count: 0 }
    }

    /// Keeps a signal until its delay has passed.
    pub(crate) fn push_timed(&mut self, delay: Duration, signal: S) {
        self.count += 1;
        // The delay is capped at 2^32 s, about 136 years.
        let at = Instant::now() + delay.min(Duration::from_secs(1 << 32));
        self.timed.push(Timed { at, order: self.count, signal });
    }
}

/// A delayed signal. The earliest compares as the greatest; of two with the same time, the one
/// added first does.
pub(crate) struct Timed<S> {
    pub(crate) at: Instant,
    order: u64,
    pub(crate) signal: S,
}

impl<S> PartialEq for Timed<S> {
    fn eq(&self, other: &Timed<S>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S> Eq for Timed<S> {}

impl<S> PartialOrd for Timed<S> {
    fn partial_cmp(&self, other: &Timed<S>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for Timed<S> {
    fn cmp(&self, other: &Timed<S>) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}
