//! Pacing of mechanisms that may lose: finds the highest rate at which no more than one message in a thousand is lost.
//!
//! A producer that sends as fast as it can measures how much it can throw away. So during the warm-up the producer
//! looks for the rate by bisection, in short slices, and waits after each until what is queued has drained; a rate is
//! too high where it was so twice. While the window is open it holds the rate, and gives way where more is lost after
//! all. The consumer tells it what has arrived over a UNIX datagram pair beside the mechanism. Where several consumers
//! each get every message, the one that lost most decides.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::clock::now_ns;

/// Above this share of messages lost, a rate is too high.
pub const MAX_LOSS: f64 = 0.001;
/// One step of the search, for each consumer: where they share a core, all have had it by the end.
const SLICE_NS: u64 = 2_500_000;
/// After a step, as long as something arrives in it, and no more often than this. A rate that is too high fills every buffer there
/// is; what is left of that would be held against the next one.
const PAUSE: Duration = Duration::from_micros(500);
const MOST_PAUSES: usize = 40;
/// Before it is looked how far consumers are behind that may have waited for each other, for each but one.
const GRACE: Duration = Duration::from_micros(1_500);
/// The slowest rate tried is this part of the fastest.
const SLOWEST: f64 = 1.0 / 256.0;
/// And this of one that was borne once: what comes between the two is tried then, and if none is borne, less.
const ONCE_BORNE: f64 = 0.5;
/// The search ends where a rate that is borne and one that is not are as near to each other.
const NEAR: f64 = 1.05;
/// A slice whose last messages had not arrived as it ended, to more than this share, was too fast: the receiver's buffer
/// fills up, and nothing is lost only because the slice is over. What was sent in the last 200 us may be on its way: who receives it
/// is being woken.
const MAX_BEHIND: f64 = 0.08;
/// And so many more: the last ones have just been sent, 64 of them by one call, or arrived and not been told of.
const FEW: f64 = 96.0;
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

/// A producer's end of a way back, and what the consumer told on it.
struct Told {
    end: UnixDatagram,
    /// Before the slice under way.
    before: Seen,
    last: Seen,
}

/// Decides when a producer may send.
pub(crate) struct Pacer {
    /// One for each consumer that gets every message.
    feedback: Vec<Told>,
    /// Messages a nanosecond; infinite where nothing holds the producer back.
    rate: f64,
    due_ns: f64,
    slice_ends_ns: u64,
    slice_began_ns: u64,
    sent_before: u64,
    /// The rates known to be low enough and too high.
    bracket: Option<(f64, f64)>,
    /// Whether the lower one was guessed, and none was borne since.
    guessed: bool,
    searching: bool,
    /// Whether the slice before, at the same rate, was too fast as well: one such slice may be anybody's fault.
    doubted: bool,
    /// Whether it gives its core away while it waits, as the consumer needs it.
    yields: bool,
}

impl Pacer {
    /// Hears what has arrived through `feedback`. `yields` where the consumers are on the same core.
    pub(crate) fn new(feedback: Vec<UnixDatagram>, yields: bool) -> Pacer {
        Pacer {
            feedback: feedback.into_iter().map(|end| Told { end, before: (0, 0), last: (0, 0) }).collect(),
            rate: f64::INFINITY,
            due_ns: 0.0,
            slice_ends_ns: 0,
            slice_began_ns: 0,
            sent_before: 0,
            bracket: None,
            guessed: false,
            searching: true,
            doubted: false,
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

    /// Whether a slice is over: then what was sent has to leave before [`Pacer::look`].
    pub(crate) fn slice_is_over(&self, now: u64) -> bool {
        now >= self.slice_ends_ns
    }

    /// At a look at the clock: ends a slice whose time is over and chooses the next rate.
    pub(crate) fn look(&mut self, now: u64, sent: u64, warming_up: bool) {
        if !self.slice_is_over(now) {
            return;
        }
        if self.slice_ends_ns > 0 {
            let slice = (sent - self.sent_before) as f64;
            let offered = slice / (now - self.slice_began_ns) as f64;
            self.hear();
            if self.searching && self.feedback.len() > 1 {
                std::thread::sleep(GRACE * (self.feedback.len() as u32 - 1));
                self.hear();
            }
            let most_behind = FEW + slice * MAX_BEHIND;
            let behind = self.feedback.iter().any(|told| sent.saturating_sub(told.last.0) as f64 > most_behind);
            if self.searching {
                self.drain();
            }
            let lossy = self.feedback.iter().any(|told| loss(told.before, told.last) > MAX_LOSS);
            self.feedback.iter_mut().for_each(|told| told.before = told.last);
            self.step(offered, lossy || self.searching && behind, warming_up);
        }
        self.slice_began_ns = now_ns();
        self.slice_ends_ns = self.slice_began_ns + SLICE_NS * self.feedback.len() as u64;
        self.sent_before = sent;
        self.due_ns = self.slice_began_ns as f64;
    }

    /// Waits until nothing more arrives.
    fn drain(&mut self) {
        for _ in 0..MOST_PAUSES {
            let before: Vec<Seen> = self.feedback.iter().map(|told| told.last).collect();
            std::thread::sleep(PAUSE);
            self.hear();
            if self.feedback.iter().map(|told| told.last).eq(before) {
                break;
            }
        }
    }

    /// Hears the last thing that each consumer told.
    fn hear(&mut self) {
        let mut text = [0; 16];
        for told in &mut self.feedback {
            while let Ok(16) = told.end.recv(&mut text) {
                let word = |at: usize| text[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
                told.last = (word(0), word(8));
            }
        }
    }

    /// At the end of a slice at the rate `offered`, which was or was not too fast.
    fn step(&mut self, offered: f64, too_fast: bool, warming_up: bool) {
        if !self.searching {
            if too_fast {
                self.rate = self.rate.min(offered) * GIVE_WAY;
            }
            return;
        }
        let doubtful = too_fast && !self.doubted;
        self.doubted = doubtful;
        if doubtful && warming_up {
            return;
        }
        self.guessed = match self.bracket {
            Some((_, high)) if high.is_finite() => self.guessed && too_fast,
            _ => too_fast,
        };
        let (low, high) = match self.bracket {
            // The guess was too high.
            Some((low, high)) if high.is_finite() && too_fast && self.guessed && self.rate < low * NEAR => {
                (low * ONCE_BORNE, self.rate.min(high))
            }
            Some((low, high)) if high.is_finite() && too_fast => (low, self.rate.min(high)),
            Some((low, high)) if high.is_finite() => (self.rate.min(offered).max(low), high),
            // At full speed. As long as it bears that, nothing is held back. What it bore it may not have borne for long.
            Some((low, _)) if too_fast => (low.min(offered) * ONCE_BORNE, offered),
            None if too_fast => (offered * SLOWEST, offered),
            _ => (offered, f64::INFINITY),
        };
        self.bracket = Some((low, high));
        self.searching = warming_up && high / low > NEAR;
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
        let mut pacer = Pacer::new(vec![ours], false);
        for _ in 0..30 {
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
        let mut pacer = Pacer::new(vec![ours], false);
        pacer.step(0.001, false, true);
        assert!(pacer.rate.is_infinite());
        pacer.step(0.001, true, true);
        pacer.step(0.001, true, true);
        assert!(pacer.rate < 0.001, "{}", pacer.rate);
    }

    #[test]
    fn what_was_borne_at_full_speed_is_near_what_is_tried_next() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(vec![ours], false);
        for too_fast in [false, true, true] {
            pacer.step(0.001, too_fast, true);
        }
        assert!(pacer.rate > 0.0005 && pacer.rate < 0.001, "{}", pacer.rate);
        // Also where the time is over.
        pacer.step(0.001, true, false);
        assert!(pacer.rate > 0.0004 && !pacer.searching, "{}", pacer.rate);
    }

    #[test]
    fn a_lucky_slice_does_not_keep_the_search_from_what_is_really_borne() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(vec![ours], false);
        pacer.step(0.001, false, true);
        for _ in 0..60 {
            let offered = pacer.rate.min(0.001);
            pacer.step(offered, offered > 0.0002, true);
        }
        pacer.step(pacer.rate, false, false);
        assert!(pacer.rate > 0.00017 && pacer.rate <= 0.0002, "{}", pacer.rate);
    }

    #[test]
    fn one_unlucky_slice_is_played_again() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(vec![ours], false);
        for too_fast in [true, false, true, false] {
            pacer.step(0.001, too_fast, true);
            assert!(pacer.rate.is_infinite());
        }
        // Where there is no time to.
        pacer.step(0.001, true, false);
        assert!(pacer.rate.is_finite() && !pacer.searching);
    }

    #[test]
    fn the_consumer_that_lost_most_decides() {
        let told = |lost: u64| {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            Feedback::new(vec![theirs]).tell(TELL_NS, [(1000, 1000 - lost)].into_iter());
            ours
        };
        let rate = |lost: [u64; 2]| {
            let mut pacer = Pacer::new(lost.map(told).into(), false);
            pacer.doubted = true;
            (pacer.slice_ends_ns, pacer.slice_began_ns) = (now_ns(), now_ns() - SLICE_NS);
            pacer.look(now_ns(), 1000, true);
            pacer.rate
        };
        assert!(rate([0, 0]).is_infinite());
        assert!(rate([0, 100]).is_finite() && rate([100, 0]).is_finite());
    }

    #[test]
    fn loss_is_counted_between_two_tellings() {
        assert_eq!(loss((100, 90), (200, 180)), 0.1);
        assert_eq!(loss((100, 90), (100, 90)), 0.0);
    }
}
