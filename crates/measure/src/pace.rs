//! Pacing of lossy mechanisms: finds the highest rate at which at most one message in a thousand is
//! lost.
//!
//! With a producer that sends as fast as it can, the result would be how many messages can be
//! thrown away. So during the warm-up the producer searches for the rate by bisection, in short
//! slices. After each slice it waits until the queues have drained. A rate counts as too high only
//! if two slices in a row were too fast. While the window is open the producer keeps the rate, and
//! lowers it if more messages are lost.
//!
//! The consumer reports over a UNIX datagram socket pair which messages have arrived. If several
//! consumers each get every message, the one that lost most decides.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::clock::now_ns;

/// The maximum share of lost messages. At a higher loss the rate is too high.
pub const MAX_LOSS: f64 = 0.001;
/// The length of one step of the search, for each consumer. If the consumers share a core, each of
/// them runs within it.
const SLICE_NS: u64 = 2_500_000;
/// The length of a pause after a step. Pauses are repeated as long as messages still arrive. A rate
/// that is too high fills all buffers, and the messages left in them would count against the next
/// rate.
const PAUSE: Duration = Duration::from_micros(500);
/// The maximum number of pauses after a step.
const MAX_PAUSES: usize = 40;
/// The waiting time for each consumer but one before the backlog is judged, because the consumers
/// may have waited for each other.
const GRACE: Duration = Duration::from_micros(1_500);
/// The lower bound of the search as a part of full speed, if full speed was too fast from the
/// start.
const SLOWEST: f64 = 1.0 / 256.0;
/// The lower bound of the search as a part of a rate that was once sustained and later too fast. If
/// no higher rate is sustained, the bound is lowered again by this factor.
const ONCE_SUSTAINED: f64 = 0.5;
/// The search ends when the ratio of the lowest rate that was too high and the highest sustained
/// rate is at most this.
const NEAR: f64 = 1.05;
/// The maximum backlog at the end of a slice, as a part of its messages. With a larger backlog the
/// slice was too fast: the receiver's buffer fills up, and nothing is lost only because the slice
/// is over. Messages of the last 200 us may still be in flight, because the receiver is being
/// woken.
const MAX_BACKLOG: f64 = 0.08;
/// The backlog in messages that is always allowed: the last messages may have just been sent, 64 of
/// them by one call, or have arrived and not been reported yet.
const ALLOWED_BACKLOG: f64 = 96.0;
/// The minimum time between two reports of a consumer.
const REPORT_NS: u64 = 25_000;
/// The part of the found rate that is used in the window.
const MARGIN: f64 = 0.95;
/// The factor by which the rate is lowered if too much is lost within the window.
const SLOW_DOWN: f64 = 0.9;

/// What a consumer has received from one producer: the number after the highest that arrived, and
/// how many arrived.
pub(crate) type StreamProgress = (u64, u64);

/// A consumer's ends of the feedback channels, one for each producer.
pub(crate) struct Feedback {
    ends: Vec<UnixDatagram>,
    reported_ns: u64,
}

impl Feedback {
    pub(crate) fn new(ends: Vec<UnixDatagram>) -> Feedback {
        Feedback { ends, reported_ns: 0 }
    }

    /// Reports to each producer what has arrived, unless the last report is less than [`REPORT_NS`]
    /// ago. Does not block. A report that a producer does not read in time is lost; the next one
    /// replaces it.
    pub(crate) fn report(&mut self, now: u64, progress: impl Iterator<Item = StreamProgress>) {
        if now < self.reported_ns + REPORT_NS {
            return;
        }
        self.reported_ns = now;
        for (socket, (next, received)) in self.ends.iter().zip(progress) {
            let mut text = [0; 16];
            text[..8].copy_from_slice(&next.to_le_bytes());
            text[8..].copy_from_slice(&received.to_le_bytes());
            let _ = socket.send(&text);
        }
    }
}

/// A producer's end of a feedback channel, and the consumer's reports.
struct ProducerFeedback {
    end: UnixDatagram,
    /// The last report before the current slice.
    before: StreamProgress,
    /// The last report.
    last: StreamProgress,
}

/// Decides when a producer may send.
pub(crate) struct Pacer {
    /// One for each consumer that gets every message.
    feedback: Vec<ProducerFeedback>,
    /// Messages per nanosecond. Infinite if the producer is not paced.
    rate: f64,
    due_ns: f64,
    slice_ends_ns: u64,
    slice_began_ns: u64,
    sent_before: u64,
    /// The highest rate known to be low enough, and the lowest known to be too high (infinite if
    /// none).
    bracket: Option<(f64, f64)>,
    /// Whether the lower bound is a guess, and no rate has been sustained since.
    is_low_guessed: bool,
    searching: bool,
    /// Whether the slice before was too fast at the same rate. A single such slice may have another
    /// cause.
    doubted: bool,
    /// Whether it yields its core while it waits, because a consumer needs it.
    yields: bool,
}

impl Pacer {
    /// A pacer that receives the consumers' reports on `feedback`. `yields` says whether the
    /// consumers are on the same core.
    pub(crate) fn new(feedback: Vec<UnixDatagram>, yields: bool) -> Pacer {
        Pacer {
            feedback: feedback.into_iter().map(|end| ProducerFeedback { end, before: (0, 0), last: (0, 0) }).collect(),
            rate: f64::INFINITY,
            due_ns: 0.0,
            slice_ends_ns: 0,
            slice_began_ns: 0,
            sent_before: 0,
            bracket: None,
            is_low_guessed: false,
            searching: true,
            doubted: false,
            yields,
        }
    }

    /// Waits until the next message is due. A producer that is late catches up by at most one
    /// slice.
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

    /// Whether the slice is over. If so, the caller must flush all sent messages before
    /// [`Pacer::update`].
    pub(crate) fn slice_is_over(&self, now: u64) -> bool {
        now >= self.slice_ends_ns
    }

    /// Ends the slice if its time is over, and chooses the next rate. May block for some
    /// milliseconds during the search.
    pub(crate) fn update(&mut self, now: u64, sent: u64, warming_up: bool) {
        if !self.slice_is_over(now) {
            return;
        }
        if self.slice_ends_ns > 0 {
            let slice = (sent - self.sent_before) as f64;
            let offered = slice / (now - self.slice_began_ns) as f64;
            self.receive_reports();
            if self.searching && self.feedback.len() > 1 {
                std::thread::sleep(GRACE * (self.feedback.len() as u32 - 1));
                self.receive_reports();
            }
            let max_backlog = ALLOWED_BACKLOG + slice * MAX_BACKLOG;
            let is_behind =
                self.feedback.iter().any(|feedback| sent.saturating_sub(feedback.last.0) as f64 > max_backlog);
            if self.searching {
                self.drain();
            }
            let is_lossy = self.feedback.iter().any(|feedback| loss(feedback.before, feedback.last) > MAX_LOSS);
            self.feedback.iter_mut().for_each(|feedback| feedback.before = feedback.last);
            self.step(offered, is_lossy || self.searching && is_behind, warming_up);
        }
        self.slice_began_ns = now_ns();
        self.slice_ends_ns = self.slice_began_ns + SLICE_NS * self.feedback.len() as u64;
        self.sent_before = sent;
        self.due_ns = self.slice_began_ns as f64;
    }

    /// Waits until no more messages arrive, for at most [`MAX_PAUSES`] pauses.
    fn drain(&mut self) {
        for _ in 0..MAX_PAUSES {
            let before: Vec<StreamProgress> = self.feedback.iter().map(|feedback| feedback.last).collect();
            std::thread::sleep(PAUSE);
            self.receive_reports();
            if self.feedback.iter().map(|feedback| feedback.last).eq(before) {
                break;
            }
        }
    }

    /// Receives all pending reports and keeps the last one of each consumer.
    fn receive_reports(&mut self) {
        let mut text = [0; 16];
        for feedback in &mut self.feedback {
            while let Ok(16) = feedback.end.recv(&mut text) {
                let word = |at: usize| text[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
                feedback.last = (word(0), word(8));
            }
        }
    }

    /// Chooses the next rate after a slice at the rate `offered`. `too_fast` says whether that
    /// slice was too fast.
    fn step(&mut self, offered: f64, too_fast: bool, warming_up: bool) {
        if !self.searching {
            if too_fast {
                self.rate = self.rate.min(offered) * SLOW_DOWN;
            }
            return;
        }
        let doubtful = too_fast && !self.doubted;
        self.doubted = doubtful;
        if doubtful && warming_up {
            return;
        }
        self.is_low_guessed = match self.bracket {
            Some((_, high)) if high.is_finite() => self.is_low_guessed && too_fast,
            _ => too_fast,
        };
        let (low, high) = match self.bracket {
            // The guess was too high.
            Some((low, high)) if high.is_finite() && too_fast && self.is_low_guessed && self.rate < low * NEAR => {
                (low * ONCE_SUSTAINED, self.rate.min(high))
            }
            Some((low, high)) if high.is_finite() && too_fast => (low, self.rate.min(high)),
            Some((low, high)) if high.is_finite() => (self.rate.min(offered).max(low), high),
            // The slice was at full speed, which continues as long as it is sustained. An earlier
            // slice at full speed may have been lucky.
            Some((low, _)) if too_fast => (low.min(offered) * ONCE_SUSTAINED, offered),
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

/// The share of lost messages between two reports.
fn loss(before: StreamProgress, after: StreamProgress) -> f64 {
    let passed = after.0.saturating_sub(before.0);
    let arrived = after.1.saturating_sub(before.1);
    if passed == 0 { 0.0 } else { passed.saturating_sub(arrived) as f64 / passed as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate that a pacer finds for a mechanism that loses everything above `capacity` messages
    /// per nanosecond.
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
    fn a_mechanism_that_keeps_up_is_not_slowed_down() {
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
    fn after_full_speed_was_once_sustained_the_next_rate_is_near_it() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(vec![ours], false);
        for too_fast in [false, true, true] {
            pacer.step(0.001, too_fast, true);
        }
        assert!(pacer.rate > 0.0005 && pacer.rate < 0.001, "{}", pacer.rate);
        // Also when the warm-up is over.
        pacer.step(0.001, true, false);
        assert!(pacer.rate > 0.0004 && !pacer.searching, "{}", pacer.rate);
    }

    #[test]
    fn the_search_finds_the_sustained_rate_after_a_lucky_slice() {
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
    fn one_unlucky_slice_is_repeated() {
        let (ours, _theirs) = UnixDatagram::pair().unwrap();
        let mut pacer = Pacer::new(vec![ours], false);
        for too_fast in [true, false, true, false] {
            pacer.step(0.001, too_fast, true);
            assert!(pacer.rate.is_infinite());
        }
        // There is no repetition when the warm-up is over.
        pacer.step(0.001, true, false);
        assert!(pacer.rate.is_finite() && !pacer.searching);
    }

    #[test]
    fn the_consumer_that_lost_most_decides() {
        let report_loss = |lost: u64| {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            Feedback::new(vec![theirs]).report(REPORT_NS, [(1000, 1000 - lost)].into_iter());
            ours
        };
        let rate = |lost: [u64; 2]| {
            let mut pacer = Pacer::new(lost.map(report_loss).into(), false);
            pacer.doubted = true;
            (pacer.slice_ends_ns, pacer.slice_began_ns) = (now_ns(), now_ns() - SLICE_NS);
            pacer.update(now_ns(), 1000, true);
            pacer.rate
        };
        assert!(rate([0, 0]).is_infinite());
        assert!(rate([0, 100]).is_finite() && rate([100, 0]).is_finite());
    }

    #[test]
    fn loss_is_counted_between_two_reports() {
        assert_eq!(loss((100, 90), (200, 180)), 0.1);
        assert_eq!(loss((100, 90), (100, 90)), 0.0);
    }
}
