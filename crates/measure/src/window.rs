//! The measured window of a party: when to read the clock, when the window opens and closes, and
//! the counts of each slice.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::memory::MemoryProbe;
use crate::pauses::Pauses;
use crate::slices::{SliceCounts, Slices};
use crate::usage::Usage;

/// How long an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// For a time.
    Time {
        /// The warm-up before the window opens, in nanoseconds.
        warmup_ns: u64,
        /// The length of the window, in nanoseconds.
        measure_ns: u64,
    },
    /// For a number of messages, of all producers together.
    Count {
        /// Messages of the warm-up before the window opens.
        warmup: u64,
        /// Messages within the window.
        messages: u64,
    },
}

impl Window {
    /// The number of messages that a producer sends, warm-up included. `None` if the window is a
    /// time.
    pub fn share(&self, producer: usize, producers: usize) -> Option<u64> {
        match *self {
            Window::Time { .. } => None,
            Window::Count { warmup, messages } => {
                let (all, producers, producer) = (warmup + messages, producers as u64, producer as u64);
                Some(all / producers + u64::from(producer < all % producers))
            }
        }
    }

    /// The window for a mechanism whose producers search for its highest rate during the warm-up.
    /// It is always a time, and its warm-up is long enough for the search with this number of
    /// consumers, which takes longer by `link_search_ns` if they are on another host.
    pub(crate) fn paced(self, consumers: usize, link_search_ns: u64) -> Window {
        let (warmup_ns, measure_ns) = match self {
            Window::Time { warmup_ns, measure_ns } => (warmup_ns, measure_ns),
            Window::Count { .. } => (0, PACED_NS),
        };
        let search_ns = SEARCH_NS * consumers as u64 + link_search_ns;
        Window::Time { warmup_ns: warmup_ns.max(search_ns), measure_ns }
    }

    /// The window of an instance in slices, and the length of its unpaused run in nanoseconds,
    /// without the warm-up. The window is longer by that. 0 if the window is a number of messages.
    pub(crate) fn with_unpaused_run(self) -> (Window, u64) {
        match self {
            Window::Time { warmup_ns, measure_ns } => {
                let unpaused_run_ns = (measure_ns / 2).min(MAX_UNPAUSED_NS);
                (Window::Time { warmup_ns, measure_ns: measure_ns + unpaused_run_ns }, unpaused_run_ns)
            }
            Window::Count { .. } => (self, 0),
        }
    }

    /// The time of the warm-up in nanoseconds. 0 if the window is a number of messages.
    pub(crate) fn warmup_ns(&self) -> u64 {
        match *self {
            Window::Time { warmup_ns, .. } => warmup_ns,
            Window::Count { .. } => 0,
        }
    }

    /// The time of warm-up and window together, in nanoseconds. 0 if the window is a number of
    /// messages.
    pub fn length_ns(&self) -> u64 {
        match *self {
            Window::Time { warmup_ns, measure_ns } => warmup_ns + measure_ns,
            Window::Count { .. } => 0,
        }
    }
}

/// The time of a search for the highest rate, for each consumer. It takes 8 slices of 2.5 ms, one
/// more for each rate that was too high, and the time in which queued messages drain after those.
const SEARCH_NS: u64 = 200_000_000;
/// The length of the window of a paced mechanism, if the run's window is a number of messages.
const PACED_NS: u64 = 250_000_000;
/// The maximum time of an unpaused run, without the warm-up before it.
const MAX_UNPAUSED_NS: u64 = 50_000_000;
/// How long producers continue to send after the window. So messages still arrive when a consumer
/// closes its window.
pub const TAIL_NS: u64 = 3_000_000;
/// After this time the other parties have closed their windows too. It is shorter than [`TAIL_NS`],
/// so their ends are still open.
const OTHERS_CLOSE_NS: u64 = 1_000_000;
/// The intended minimum time between two readings of the clock. A reading costs less than a
/// thousandth of it.
const CLOCK_INTERVAL_NS: u64 = 50_000;

#[derive(Clone, Copy, Debug)]
struct WindowMark {
    at_ns: u64,
    messages: u64,
    usage: Usage,
}

/// Follows one party through the warm-up and the window. Its times are [`now_ns`] minus the pauses
/// of the instance.
#[derive(Debug)]
pub struct Meter {
    window: Window,
    start_ns: u64,
    tail_ns: u64,
    pauses: Pauses,
    slices: Slices,
    /// Messages until the next reading of the clock.
    stride: u64,
    checked_ns: u64,
    opened: Option<WindowMark>,
    closed: Option<WindowMark>,
    longest_stall_ns: u64,
    /// Whether this party reads the usage of the whole child.
    leads: bool,
    /// Reads the memory of the whole child once, a little after the window has closed.
    memory: Option<MemoryProbe>,
}

impl Meter {
    /// A meter whose warm-up starts at `start_ns`. `leads` says whether this party reads the usage
    /// of the whole child.
    pub fn new(window: Window, start_ns: u64, leads: bool, mut pauses: Pauses) -> Meter {
        let mut slices = Slices::default();
        // The first turn begins before the first message, and not after a pause.
        if pauses.has_turned(u64::MAX) {
            let now = now_ns().saturating_sub(pauses.turn().paused_ns);
            slices.update(now, 0, Some(pauses.turn().lap), false);
        }
        Meter {
            window,
            start_ns,
            tail_ns: TAIL_NS,
            pauses,
            slices,
            stride: 1,
            checked_ns: start_ns,
            opened: None,
            closed: None,
            longest_stall_ns: 0,
            leads,
            memory: None,
        }
    }

    /// Sets how long a producer continues to send after the window, in nanoseconds.
    #[must_use]
    pub(crate) fn with_tail(self, tail_ns: u64) -> Meter {
        Meter { tail_ns, ..self }
    }

    /// Also measures the memory of the whole child, after the window has closed and before the ends
    /// are.
    #[must_use]
    pub(crate) fn with_memory(self, memory: Option<MemoryProbe>) -> Meter {
        Meter { memory, ..self }
    }

    /// The number of messages to handle before the next [`Meter::check_clock`]. `messages` is the
    /// total so far.
    #[inline]
    pub fn stride(&self, messages: u64) -> u64 {
        match self.window {
            Window::Time { .. } => self.stride,
            Window::Count { warmup, messages: measured } => {
                let edge = if messages < warmup { warmup } else { warmup + measured };
                self.stride.min(edge.saturating_sub(messages)).max(1)
            }
        }
    }

    /// The current time in nanoseconds of the monotonic clock, without the pauses of this instance
    /// before the last [`Meter::check_clock`]. Does not update the window.
    pub fn now(&self) -> u64 {
        now_ns().saturating_sub(self.pauses.turn().paused_ns)
    }

    /// Reads the clock and opens or closes the window. `messages` is the total so far. Returns the
    /// same time as [`Meter::now`].
    pub fn check_clock(&mut self, messages: u64) -> u64 {
        self.check_clock_at(now_ns(), messages);
        self.checked_ns
    }

    /// As [`Meter::check_clock`], with a time that was just read from [`now_ns`]. Returns the
    /// nanoseconds for which the instance was paused since the last reading, if it was.
    pub fn check_clock_at(&mut self, clock_ns: u64, messages: u64) -> Option<u64> {
        let (now, paused_ns) = self.without_pauses(clock_ns);
        self.mark_window(now, messages);
        if self.pauses.are_expected() {
            let turn = paused_ns.map(|_| self.pauses.turn().lap);
            self.slices.update(now, messages, turn, self.is_open());
        }
        paused_ns
    }

    /// Converts a reading of the clock to the time of the instance, which stands still during its
    /// pauses. Also returns how long it has been paused since the last conversion, if it has.
    fn without_pauses(&mut self, clock_ns: u64) -> (u64, Option<u64>) {
        let before_ns = self.pauses.turn().paused_ns;
        let has_paused = self.pauses.has_turned(clock_ns.saturating_sub(before_ns + self.checked_ns));
        let paused_ns = self.pauses.turn().paused_ns;
        let now = match clock_ns.saturating_sub(paused_ns) {
            // The instance was paused after the caller had read the clock.
            earlier if earlier < self.checked_ns => clock_ns.saturating_sub(before_ns),
            now => now,
        };
        (now, has_paused.then(|| paused_ns - before_ns))
    }

    /// Records in the current slice that `round_trips` round trips took `took_ns` together.
    pub fn record_round_trips(&mut self, took_ns: u64, round_trips: u64) {
        self.slices.record_round_trips(took_ns, round_trips);
    }

    /// Ends the last slice and returns the counts of all slices.
    pub fn take_slices(&mut self) -> Vec<SliceCounts> {
        std::mem::take(&mut self.slices).finish()
    }

    fn mark_window(&mut self, now: u64, messages: u64) {
        let since = now.saturating_sub(self.checked_ns);
        self.checked_ns = now;
        self.longest_stall_ns = self.longest_stall_ns.max(since);
        if since < CLOCK_INTERVAL_NS {
            self.stride = (self.stride * 2).min(1 << 20);
        } else if since > 4 * CLOCK_INTERVAL_NS {
            self.stride = (self.stride / 2).max(1);
        }
        if self.opened.is_none() && self.opens(now, messages) {
            self.opened = Some(self.mark(now, messages));
            // A party that slept through its whole window has no result.
            let slept = matches!(self.window, Window::Time { .. }) && self.closes(now, messages);
            self.closed = self.opened.filter(|_| slept);
        } else if self.opened.is_some() && self.closed.is_none() && self.closes(now, messages) {
            self.closed = Some(self.mark(now, messages));
        } else if self.closed.is_some_and(|closed| now >= closed.at_ns + OTHERS_CLOSE_NS) {
            self.read_memory();
        }
    }

    fn read_memory(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.read();
        }
    }

    fn opens(&self, now: u64, messages: u64) -> bool {
        match self.window {
            Window::Time { warmup_ns, .. } => now >= self.start_ns + warmup_ns,
            Window::Count { warmup, .. } => messages >= warmup,
        }
    }

    fn closes(&self, now: u64, messages: u64) -> bool {
        match self.window {
            Window::Time { .. } => now >= self.start_ns + self.window.length_ns(),
            Window::Count { warmup, messages: measured } => messages >= warmup + measured,
        }
    }

    fn mark(&self, at_ns: u64, messages: u64) -> WindowMark {
        WindowMark { at_ns, messages, usage: if self.leads { Usage::now() } else { Usage::default() } }
    }

    /// Starts to watch for stalls now, so that the time before does not count as a stall.
    pub fn resume(&mut self) {
        self.checked_ns = self.now();
    }

    /// Whether the window has not opened yet.
    pub fn is_warming_up(&self) -> bool {
        self.opened.is_none()
    }

    /// How much of the warm-up is left, in nanoseconds. 0 if the window has opened, the maximum if
    /// nobody knows because it is a number of messages.
    pub(crate) fn warm_up_left_ns(&self, now_ns: u64) -> u64 {
        match self.times_ns() {
            _ if !self.is_warming_up() => 0,
            Some(times_ns) => times_ns.start.saturating_sub(now_ns).max(1),
            None => u64::MAX,
        }
    }

    /// Whether the window is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.opened.is_some() && self.closed.is_none()
    }

    /// Whether the window has closed.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether a producer may stop at the time `now` (see [`Meter::now`]), because the windows of its
    /// consumers have closed. A window of a number of messages counts as 0 ns long here.
    pub fn may_stop_sending(&self, now: u64) -> bool {
        now >= self.start_ns + self.window.length_ns() + self.tail_ns
    }

    /// Whether a message that was due at this time belongs to the window.
    pub fn contains(&self, due_ns: u64) -> bool {
        self.times_ns().map_or_else(|| self.is_open(), |times_ns| times_ns.contains(&due_ns))
    }

    /// From when until when the window is open. `None` if it is a number of messages.
    pub(crate) fn times_ns(&self) -> Option<Range<u64>> {
        match self.window {
            Window::Time { warmup_ns, .. } => Some(self.start_ns + warmup_ns..self.start_ns + self.window.length_ns()),
            Window::Count { .. } => None,
        }
    }

    /// Closes the window if it is still open, because the stream has ended.
    pub fn end(&mut self, messages: u64) {
        if self.is_open() {
            // The last receive may have lasted for a pause.
            let (now, _) = self.without_pauses(now_ns());
            self.closed = Some(self.mark(now, messages));
        }
        if self.is_closed() {
            self.read_memory();
        }
    }

    /// The messages and nanoseconds within the window. If this party leads, also the child's usage
    /// in it.
    pub fn result(&self) -> (u64, u64, Option<Usage>) {
        match (self.opened, self.closed) {
            (Some(opened), Some(closed)) => (
                closed.messages - opened.messages,
                closed.at_ns - opened.at_ns,
                self.leads.then(|| closed.usage.since(&opened.usage)),
            ),
            _ => (0, 0, None),
        }
    }

    /// The longest time between two readings of the clock, in nanoseconds.
    pub fn longest_stall_ns(&self) -> u64 {
        self.longest_stall_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::{Turn, TurnWriter};

    #[test]
    fn a_paced_window_is_a_time_with_a_long_warm_up() {
        let paced = Window::Count { warmup: 10, messages: 100 }.paced(1, 0);
        assert_eq!(paced, Window::Time { warmup_ns: SEARCH_NS, measure_ns: PACED_NS });
        assert_eq!(TIME.paced(4, 0), Window::Time { warmup_ns: 4 * SEARCH_NS, measure_ns: 2_000_000 });
        assert_eq!(paced.paced(1, 0), paced);
    }

    const TIME: Window = Window::Time { warmup_ns: 1_000_000, measure_ns: 2_000_000 };

    #[test]
    fn a_window_by_time_opens_and_closes_at_the_next_reading() {
        let mut meter = Meter::new(TIME, 10_000_000, false, Pauses::default());
        for (at, messages) in [(10_900_000, 9), (11_100_000, 11), (12_000_000, 20), (13_200_000, 32), (14_000_000, 40)]
        {
            meter.check_clock_at(at, messages);
        }
        assert_eq!(meter.result(), (21, 2_100_000, None));
        assert!(!meter.may_stop_sending(13_200_000) && meter.may_stop_sending(16_000_000));
    }

    #[test]
    fn a_pause_after_the_clock_was_read_does_not_turn_time_back() {
        const MS: u64 = 1_000_000;
        let turns = TurnWriter::new().unwrap();
        let mut meter = Meter::new(TIME, 10 * MS, false, Pauses::new(turns.file().try_clone().unwrap()));
        meter.check_clock_at(10 * MS, 0);
        // The pause of 5 s begins after the reading of 11 ms, and before the file is read.
        turns.write(Turn { lap: 2, paused_ns: 5_000 * MS }).unwrap();
        assert_eq!(meter.check_clock_at(11 * MS, 10), Some(5_000 * MS));
        assert_eq!(meter.checked_ns, 11 * MS);
        meter.check_clock_at(5_013 * MS, 30);
        assert_eq!((meter.longest_stall_ns(), meter.result()), (2 * MS, (20, 2 * MS, None)));
    }

    #[test]
    fn a_pause_before_the_end_of_the_stream_does_not_count() {
        let turns = TurnWriter::new().unwrap();
        let start_ns = now_ns();
        let pauses = Pauses::new(turns.file().try_clone().unwrap());
        let mut meter = Meter::new(Window::Count { warmup: 0, messages: 100 }, start_ns, false, pauses);
        meter.check_clock(10);
        let paused_at_ns = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let resumed_at_ns = now_ns();
        turns.write(Turn { lap: 2, paused_ns: resumed_at_ns - paused_at_ns }).unwrap();
        meter.end(50);
        let (messages, window_ns, _) = meter.result();
        assert_eq!(messages, 40);
        let active_ns = (paused_at_ns - start_ns) + (now_ns() - resumed_at_ns);
        assert!(window_ns <= active_ns, "{window_ns} ns of {active_ns} ns");
    }

    #[test]
    fn a_longer_tail_lets_a_producer_go_on_for_longer() {
        let meter = Meter::new(TIME, 10_000_000, false, Pauses::default()).with_tail(20_000_000);
        assert!(!meter.may_stop_sending(32_900_000) && meter.may_stop_sending(33_000_000));
    }

    #[test]
    fn a_window_that_was_slept_through_is_empty() {
        let mut meter = Meter::new(TIME, 10_000_000, false, Pauses::default());
        meter.check_clock_at(10_900_000, 9);
        meter.check_clock_at(13_200_000, 10);
        meter.check_clock_at(13_300_000, 500);
        assert!(meter.is_closed());
        assert_eq!(meter.result().0, 0);
    }

    #[test]
    fn a_window_by_count_is_exact() {
        let mut meter = Meter::new(Window::Count { warmup: 10, messages: 100 }, 0, false, Pauses::default());
        let mut messages = 0;
        let mut at = 0;
        while !meter.is_closed() {
            messages += meter.stride(messages);
            at += 10;
            meter.check_clock_at(at, messages);
        }
        assert_eq!((messages, meter.result().0), (110, 100));
    }

    #[test]
    fn shares_add_up() {
        let window = Window::Count { warmup: 3, messages: 100 };
        assert_eq!((0..7).map(|p| window.share(p, 7).unwrap()).sum::<u64>(), 103);
    }

    #[test]
    fn the_stride_follows_the_speed() {
        let mut meter = Meter::new(TIME, 0, false, Pauses::default());
        for n in 1..30 {
            meter.check_clock_at(n * 100, n);
        }
        assert!(meter.stride(0) > 1000);
        for n in 1..30 {
            meter.check_clock_at(n * 1_000_000, n);
        }
        assert_eq!(meter.stride(0), 1);
    }
}
