//! Pacing of mechanisms that may lose: finds the highest rate at which no more than one message in a thousand is lost.
//!
//! A producer that sends as fast as it can measures how much it can throw away. So during the warm-up the producer
//! looks for the rate by bisection, in short slices with a pause after each so that what is queued drains; while the
//! window is open it holds the rate, and gives way where more is lost after all. The consumer tells it what has
//! arrived over a UNIX datagram pair beside the mechanism.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::clock::now_ns;

/// Above this share of messages lost, a rate is too high.
pub const MAX_LOSS: f64 = 0.001;
/// One step of the search.
const SLICE_NS: u64 = 2_500_000;
/// After a step.
const PAUSE: Duration = Duration::from_micros(500);
/// The slowest rate tried is this part of the fastest.
const SLOWEST: f64 = 1.0 / 256.0;
/// A slice whose last messages had not arrived as it ended, to more than this share, was too fast: the receiver's buffer
/// fills up, and nothing is lost only because the slice is over. Some share is always on its way to the consumer's look.
const MAX_BEHIND: f64 = 0.05;
/// So many may be on their way whatever the share: the last ones have just been sent, or arrived and not been told of.
const FEW: f64 = 32.0;
/// The consumer tells no more often than this.
const TELL_NS: u64 = 25_000;
/// Of the rate that was found, so much is used.
const MARGIN: f64 = 0.95;
/// How much a rate is lowered that loses within the window.
const GIVE_WAY: f64 = 0.9;

/// What a consumer has seen of one producer: the number after the highest that arrived, and how many arrived.
pub(crate) type Seen = (u64, u64);

/// The consumer's ends of the feedback, one for each producer.
pub(crate) struct Feedback {
    ends: Vec<UnixDatagram>,
    told_ns: u64,
}

impl Feedback {
    pub(crate) fn new(ends: Vec<UnixDatagram>) -> Feedback {
        Feedback { ends, told_ns: 0 }
    }

    /// Tells each producer what has arrived, if it was not told just now. One that does not listen misses it: the next
    /// tells all.
    pub(crate) fn tell(&mut self, now: u64, seen: impl Iterator<Item = Seen>) {
        if now < self.told_ns + TELL_NS {
            return;
        }
        self.told_ns = now;
        for (socket, (next, received)) in self.ends.iter().zip(seen) {
            let mut text = [0; 16];
            text[..8].copy_from_slice(&next.to_le_bytes());
            text[8..].copy_from_slice(&received.to_le_bytes());
            let _ = socket.send(&text);
        }
    }
}

/// Decides when a producer may send.
pub(crate) struct Pacer {
    feedback: UnixDatagram,
    /// Messages a nanosecond; infinite where nothing holds the producer back.
    rate: f64,
    due_ns: f64,
    slice_ends_ns: u64,
    slice_began_ns: u64,
    sent_before: u64,
    before: Seen,
    /// The rates known to be low enough and too high.
    bracket: Option<(f64, f64)>,
    searching: bool,
    /// Whether it gives its core away while it waits, as the consumer needs it.
    yields: bool,
}

impl Pacer {
    /// Hears what has arrived through `feedback`. `yields` where the consumer is on the same core.
    pub(crate) fn new(feedback: UnixDatagram, yields: bool) -> Pacer {
        Pacer {
            feedback,
            rate: f64::INFINITY,
            due_ns: 0.0,
            slice_ends_ns: 0,
            slice_began_ns: 0,
            sent_before: 0,
            before: (0, 0),
            bracket: None,
            searching: true,
            yields,
        }
    }

    /// Waits until the next message is due. One that is late stays late by no more than a slice: a rate that cannot be
    /// reached is not made up for.
    pub(crate) fn wait(&mut self) {
        if self.rate.is_infinite() {
            return;
        }
        let mut now = now_ns();
        self.due_ns = (self.due_ns + 1.0 / self.rate).max(now.saturating_sub(SLICE_NS) as f64);
        while (now as f64) < self.due_ns {
            if self.yields {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
            now = now_ns();
        }
    }

    /// At a look at the clock: ends a slice whose time is over and chooses the next rate.
    pub(crate) fn look(&mut self, now: u64, sent: u64, warming_up: bool) {
        if now < self.slice_ends_ns {
            return;
        }
        if self.slice_ends_ns > 0 {
            let slice = (sent - self.sent_before) as f64;
            let offered = slice / (now - self.slice_began_ns) as f64;
            let mut seen = self.latest(self.before);
            let behind = sent.saturating_sub(seen.0) as f64 > FEW.max(slice * MAX_BEHIND);
            if self.searching {
                std::thread::sleep(PAUSE);
                seen = self.latest(seen);
            }
            let lossy = loss(self.before, seen) > MAX_LOSS;
            self.before = seen;
            self.step(offered, lossy || self.searching && behind, warming_up);
        }
        self.slice_began_ns = now_ns();
        self.slice_ends_ns = self.slice_began_ns + SLICE_NS;
        self.sent_before = sent;
        self.due_ns = self.slice_began_ns as f64;
    }

    /// The last thing the consumer told.
    fn latest(&self, mut seen: Seen) -> Seen {
        let mut text = [0; 16];
        while let Ok(16) = self.feedback.recv(&mut text) {
            let word = |at: usize| text[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            seen = (word(0), word(8));
        }
        seen
    }

    /// At the end of a slice at the rate `offered`, which was or was not too fast.
    fn step(&mut self, offered: f64, too_fast: bool, warming_up: bool) {
        if !self.searching {
            if too_fast {
                self.rate = self.rate.min(offered) * GIVE_WAY;
            }
            return;
        }
        let (low, high) = match self.bracket {
            Some((low, high)) if high.is_finite() && too_fast => (low, self.rate.min(high)),
            Some((low, high)) if high.is_finite() => (self.rate.min(offered).max(low), high),
            // At full speed. As long as it bears that, nothing is held back.
            _ if too_fast => (offered * SLOWEST, offered),
            _ => (offered, f64::INFINITY),
        };
        self.bracket = Some((low, high));
        self.searching = warming_up && high / low > 1.05;
        self.rate = match (self.searching, high.is_infinite()) {
            (_, true) => f64::INFINITY,
            (true, _) => (low * high).sqrt(),
            (false, _) => low * MARGIN,
        };
    }
}

/// The share lost of what passed between two tellings.
fn loss(before: Seen, after: Seen) -> f64 {
    let passed = after.0.saturating_sub(before.0);
    let arrived = after.1.saturating_sub(before.1);
    if passed == 0 { 0.0 } else { passed.saturating_sub(arrived) as f64 / passed as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pacer's search against a mechanism that loses whatever exceeds `capacity` messages a nanosecond.
    fn found(capacity: f64, fastest: f64) -> f64 {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(ours, false);
        for _ in 0..20 {
            let offered = pacer.rate.min(fastest);
            pacer.step(offered, 1.0 - capacity / offered > MAX_LOSS, true);
        }
        pacer.step(pacer.rate.min(fastest), false, false);
        pacer.rate.min(fastest)
    }

    #[test]
    fn the_search_ends_just_below_the_capacity() {
        for capacity in [0.0001, 0.001, 0.0009] {
            let rate = found(capacity, 0.001);
            assert!(rate <= capacity * 1.002 && rate > capacity * 0.85, "{rate} of {capacity}");
        }
    }

    #[test]
    fn a_mechanism_that_keeps_up_is_not_held_back() {
        assert_eq!(found(0.01, 0.001), 0.001);
    }

    #[test]
    fn one_lucky_slice_at_full_speed_does_not_end_the_search() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(ours, false);
        pacer.step(0.001, false, true);
        assert!(pacer.rate.is_infinite());
        pacer.step(0.001, true, true);
        assert!(pacer.rate < 0.001, "{}", pacer.rate);
    }

    #[test]
    fn loss_is_counted_between_two_tellings() {
        assert_eq!(loss((100, 90), (200, 180)), 0.1);
        assert_eq!(loss((100, 90), (100, 90)), 0.0);
    }
}
