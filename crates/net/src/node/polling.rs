//! When a node polls epoll, and when it reads the last active connection without polling.
//!
//! While one connection has data again and again, reading it directly saves a system call for each
//! message. Other connections are found by the polls in between.

use std::time::{Duration, Instant};

use crate::backend::Ready;

/// While the node reads the last active connection directly, every 16th attempt polls epoll too.
const READS_PER_POLL: u32 = 16;
/// After a direct read in vain, at most this many waits that return at once are not followed by
/// one.
const MAX_PENALTY: u32 = 64;
/// A wait that returns within this time found something ready at once: the thread did not sleep.
const IMMEDIATE: Duration = Duration::from_micros(3);

/// The state from which the next step is decided.
#[derive(Debug)]
pub(super) struct Polling {
    /// How long the node spins for more after it has received something.
    spin: Duration,
    /// Where spinning started: when the node last asked for work after it had received something.
    spin_start: Instant,
    /// Whether something was received since `spin_start` was set.
    has_received: bool,
    /// The connection that last received something, and when.
    last: Option<(usize, Instant)>,
    eager: Eager,
    penalty: Penalty,
    direct_reads: u32,
    /// When epoll was polled last.
    polled: Instant,
    /// Every turn polls epoll. `AsyncNode` relies on that.
    always_polls: bool,
}

/// Whether the next turn reads the last active connection before it polls epoll, although the node
/// does not spin. It does so after a wait that returned at once because that connection had data,
/// until such a read finds nothing.
#[derive(Debug, Clone, Copy)]
enum Eager {
    No,
    /// The time of that wait.
    AfterWait(Instant),
    /// The time of the last such read. Whatever arrives before the next one counts as found by it,
    /// also if a turn in between polled epoll. That is rare, and changes the speed only.
    AfterRead(Instant),
}

/// How often the node reads directly. A read that finds something saves a wait, and one in vain
/// costs a system call. So the node tries less often after reads in vain and more often after
/// others: it reads directly where more than half of these reads find something.
#[derive(Debug, Default)]
struct Penalty {
    /// How many waits that return at once were to be skipped after the last read in vain; halved by
    /// each read since then that found something.
    waits: u32,
    /// How many of them are left.
    left: u32,
}

impl Penalty {
    fn found_something(&mut self) {
        self.waits /= 2;
    }

    fn found_nothing(&mut self) {
        self.waits = (2 * self.waits + 1).min(MAX_PENALTY);
        self.left = self.waits;
    }

    /// Whether a wait that returned at once may be followed by a direct read.
    fn is_over(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }
}

/// A read without a wait before it.
pub(super) struct DirectRead {
    pub(super) index: usize,
    /// Whether to poll epoll too.
    pub(super) polls: bool,
}

impl Polling {
    pub(super) fn new(now: Instant) -> Polling {
        Polling {
            spin: Duration::ZERO,
            spin_start: now,
            has_received: false,
            last: None,
            eager: Eager::No,
            penalty: Penalty::default(),
            direct_reads: 0,
            polled: now,
            always_polls: false,
        }
    }

    pub(super) fn set_spin(&mut self, time: Duration) {
        self.spin = time;
    }

    /// Every turn polls epoll from now on.
    #[cfg(feature = "tokio")]
    pub(super) fn always_poll(&mut self) {
        self.always_polls = true;
    }

    /// Something arrived, perhaps only a part of a message: spinning continues.
    #[inline]
    pub(super) fn received(&mut self, index: usize, now: Instant) {
        (self.last, self.has_received) = (Some((index, now)), true);
    }

    /// A connection is gone, or is not read.
    pub(super) fn forget(&mut self, index: usize) {
        self.last = self.last.filter(|(last, _)| *last != index);
    }

    /// The node asks for work.
    #[inline]
    pub(super) fn asks(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_received) {
            self.spin_start = now;
        }
    }

    /// The node polls epoll.
    pub(super) fn polls(&mut self, now: Instant) {
        self.polled = now;
    }

    /// The node has waited for `ready` since this time.
    pub(super) fn waited(&mut self, since: Instant, now: Instant, ready: &[Ready]) {
        self.polled = now;
        let had_data = |last| ready.iter().any(|ready| ready.index == last && ready.readable);
        let at_once = now.duration_since(since) < IMMEDIATE && self.last.is_some_and(|(last, _)| had_data(last));
        let is_eager = at_once && !self.always_polls && self.penalty.is_over();
        self.eager = if is_eager { Eager::AfterWait(since) } else { Eager::No };
    }

    /// Returns the connection to read directly, while the node spins or reads eagerly. `longest` is
    /// the longest time between two polls.
    pub(super) fn direct_read(&mut self, now: Instant, longest: Duration) -> Option<DirectRead> {
        let (index, received) = self.last?;
        let eager = match self.eager {
            Eager::No => false,
            Eager::AfterWait(at) => at <= received,
            Eager::AfterRead(at) if at <= received => {
                self.penalty.found_something();
                true
            }
            Eager::AfterRead(_) => {
                self.penalty.found_nothing();
                false
            }
        };
        self.eager = if eager { Eager::AfterRead(now) } else { Eager::No };
        if !eager && (self.spin.is_zero() || now.duration_since(self.spin_start) >= self.spin) {
            return None;
        }
        self.direct_reads = self.direct_reads.wrapping_add(1);
        let overdue = now.duration_since(self.polled) >= longest;
        Some(DirectRead { index, polls: overdue || self.direct_reads.is_multiple_of(READS_PER_POLL) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);
    const LONGEST: Duration = Duration::from_millis(1);

    fn readable(index: usize) -> [Ready; 1] {
        [Ready { index, readable: true, writable: false, read_closed: false, write_closed: None }]
    }

    #[test]
    fn without_spinning_a_wait_that_slept_is_followed_by_a_wait() {
        let begun = Instant::now();
        let mut polling = Polling::new(begun);
        polling.received(7, begun);
        polling.waited(begun, begun + LONGEST, &readable(7));
        assert!(polling.direct_read(begun + LONGEST, LONGEST).is_none());
    }

    #[test]
    fn a_connection_with_data_at_once_is_read_directly_until_it_has_none() {
        let begun = Instant::now();
        let mut polling = Polling::new(begun);
        polling.received(7, begun);
        polling.waited(begun, begun + MICROSECOND, &readable(7));
        for step in 1..100 {
            let now = begun + step * MICROSECOND;
            polling.received(7, now);
            let read = polling.direct_read(now, LONGEST).expect("a direct read");
            assert_eq!((read.index, read.polls), (7, step % READS_PER_POLL == 0));
        }
        // The last read found nothing.
        let later = begun + 100 * MICROSECOND;
        let _ = polling.direct_read(later, LONGEST);
        assert!(polling.direct_read(later + MICROSECOND, LONGEST).is_none());
    }

    /// What a node does that never spins and whose waits return at once: how many of its turns
    /// begin with a direct read. `has_data` says whether such a read finds something.
    fn direct_reads(turns: u32, mut has_data: impl FnMut(u32) -> bool) -> u32 {
        let begun = Instant::now();
        let mut polling = Polling::new(begun);
        polling.received(7, begun);
        let mut reads = 0;
        for turn in 1..=turns {
            let now = begun + turn * MICROSECOND;
            if polling.direct_read(now, LONGEST).is_some() {
                reads += 1;
                if has_data(turn) {
                    polling.received(7, now);
                }
            } else {
                polling.waited(now, now, &readable(7));
                polling.received(7, now);
            }
        }
        reads
    }

    #[test]
    fn direct_reads_become_rare_if_they_find_nothing_and_continue_if_most_find_something() {
        assert_eq!(direct_reads(10_000, |_| true), 9_999);
        let never = direct_reads(10_000, |_| false);
        assert!((100..400).contains(&never), "{never}");
        let often = direct_reads(10_000, |turn| !turn.is_multiple_of(8));
        assert!(often > 7_000, "{often}");
        let seldom = direct_reads(10_000, |turn| turn.is_multiple_of(4));
        assert!(seldom < 1_000, "{seldom}");
        // They become frequent again.
        let later = direct_reads(20_000, |turn| turn > 10_000);
        assert!(later > 9_000, "{later}");
    }

    #[test]
    fn epoll_is_polled_when_the_longest_time_has_passed() {
        let begun = Instant::now();
        let mut polling = Polling::new(begun);
        polling.set_spin(10 * LONGEST);
        polling.received(7, begun);
        polling.asks(begun);
        assert!(!polling.direct_read(begun, LONGEST).expect("it spins").polls);
        assert!(polling.direct_read(begun + LONGEST, LONGEST).expect("it spins").polls);
        polling.polls(begun + LONGEST);
        assert!(!polling.direct_read(begun + LONGEST, LONGEST).expect("it spins").polls);
        assert!(polling.direct_read(begun + 10 * LONGEST, LONGEST).is_none(), "spinning is over");
    }

    #[test]
    fn a_connection_that_is_gone_is_not_read() {
        let begun = Instant::now();
        let mut polling = Polling::new(begun);
        polling.set_spin(LONGEST);
        polling.received(7, begun);
        polling.forget(8);
        assert!(polling.direct_read(begun, LONGEST).is_some());
        polling.forget(7);
        assert!(polling.direct_read(begun, LONGEST).is_none());
    }
}
