//! User signals to the node: normal, urgent and delayed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Identifies a delayed signal: [`Handle::signal_after`](crate::Handle::signal_after) returns it,
/// and [`Handle::cancel_signal`](crate::Handle::cancel_signal) takes it. Timers are not reused, and
/// those of two nodes differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timer {
    at: Instant,
    /// Orders timers of one time, and makes each unique in this process.
    number: u64,
}

impl Timer {
    fn new(at: Instant) -> Timer {
        static TIMERS: AtomicU64 = AtomicU64::new(0);
        Timer { at, number: TIMERS.fetch_add(1, Ordering::Relaxed) }
    }
}

/// The signals that wait for delivery.
pub(crate) struct Signals<S> {
    pub(crate) urgent: VecDeque<S>,
    pub(crate) usual: VecDeque<S>,
    /// In the order of their times; of two with the same time, the one added first.
    timed: BTreeMap<Timer, S>,
}

impl<S> Signals<S> {
    pub(crate) fn new() -> Signals<S> {
        Signals { urgent: VecDeque::new(), usual: VecDeque::new(), timed: BTreeMap::new() }
    }

    /// Keeps a signal until its delay has passed.
    pub(crate) fn push_timed(&mut self, delay: Duration, signal: S) -> Timer {
        // The delay is capped at 2^32 s, about 136 years.
        let timer = Timer::new(Instant::now() + delay.min(Duration::from_secs(1 << 32)));
        self.timed.insert(timer, signal);
        timer
    }

    /// Takes a delayed signal, for delivery or because it is cancelled. `None` if it was taken
    /// before.
    pub(crate) fn take_timed(&mut self, timer: Timer) -> Option<S> {
        self.timed.remove(&timer)
    }

    /// The delayed signals whose time has come.
    pub(crate) fn due(&self, now: Instant) -> impl Iterator<Item = Timer> {
        self.timed.keys().copied().take_while(move |timer| timer.at <= now)
    }

    /// When the first delayed signal is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timed.keys().next().map(|timer| timer.at)
    }
}
