//! Pacing of lossy mechanisms: finds the highest rate at which at most one message in a thousand is
//! lost.
//!
//! With a producer that sends as fast as it can, the result would be how many messages can be
//! thrown away. So during the warm-up the producer searches for the rate by bisection, in short
//! slices. After each slice it waits until the queues have drained. A rate counts as too high only
//! if two slices in a row were too fast. While the window is open the producer keeps the rate, and
//! lowers it if more messages are lost.
//!
//! The consumer reports which messages have arrived. If several consumers each get every message,
//! the one that lost most decides. Between hosts, reports are a round trip old, and what the link
//! itself loses is no reason for a lower rate.

mod feedback;
mod search;
mod timing;

use std::time::Duration;

use anyhow::{Result, bail};

pub(crate) use self::feedback::{ConsumerEnd, Feedback, ReportPort, Reports, StreamProgress};
use self::search::{RateSearch, Slice};
pub use self::timing::LinkEstimate;
use self::timing::Timing;
pub(crate) use self::timing::message_loss;
use crate::clock::now_ns;

/// The maximum share of lost messages, beyond what a link between hosts loses. At a higher loss the
/// rate is too high.
pub const MAX_LOSS: f64 = 0.001;
/// The maximum backlog at the end of a slice, as a part of its messages. With a larger backlog the
/// slice was too fast: the receiver's buffer fills up, and nothing is lost only because the slice
/// is over. On one host, messages of the last 200 us may still be in flight, because the receiver
/// is being woken.
const MAX_BACKLOG: f64 = 0.08;
/// The backlog in messages that is always allowed: the last messages may have just been sent, 64 of
/// them by one call, or have arrived and not been reported yet.
const ALLOWED_BACKLOG: f64 = 96.0;
/// The waiting time for each consumer but one before the backlog is judged, because the consumers
/// may have waited for each other.
const GRACE: Duration = Duration::from_micros(1_500);
/// By how many standard deviations more may be lost than on average.
const LOSS_DEVIATIONS: f64 = 4.0;
/// The number of messages after which the loss in a window is judged on one host without an
/// allowance for chance. Half of the allowed loss then looks like too much in two of a thousand
/// cases.
const JUDGED_MESSAGES: f64 = 20_000.0;
/// The least number of lost messages by which a rate is lowered before that.
const MIN_LOST: f64 = 3.0;
/// By how much a producer that was late may catch up, in nanoseconds.
const MAX_CATCH_UP_NS: u64 = 2_500_000;
/// The longest wait for a message to another host, in nanoseconds.
const MAX_WAIT_NS: f64 = 200e6;

/// A consumer's reports.
struct ConsumerReports {
    reports: Reports,
    /// The last report when the loss was last judged.
    before: StreamProgress,
}

/// The judgement in the window on the loss between hosts. It begins anew with each rate.
#[derive(Clone, Copy, Debug, Default)]
struct Judgement {
    /// The number of messages sent at other rates. What arrived of them says nothing of this rate.
    sent_before: u64,
    /// When it began, and how many messages had been sent. `None` until all of the others have
    /// arrived or are lost.
    began: Option<(u64, u64)>,
}

/// What was late at the end of a slice.
struct Backlog {
    /// Whether it was too much.
    is_too_much: bool,
    /// The number of late messages, if clearly more than one batch was late. 0 on one host.
    late: f64,
    /// Whether all that had not arrived is known: the deadline came later.
    is_known: bool,
}

/// Decides when a producer may send.
pub(crate) struct Pacer {
    /// One for each consumer that gets every message.
    consumers: Vec<ConsumerReports>,
    search: RateSearch,
    timing: Timing,
    due_ns: f64,
    slice_ends_ns: u64,
    slice_began_ns: u64,
    sent_before: u64,
    /// What is judged in the window between hosts.
    judgement: Judgement,
    /// Whether it yields its core while it waits, because a consumer needs it.
    yields: bool,
}

impl Pacer {
    /// A pacer that gets these reports of consumers on the same host. `yields` says whether the
    /// consumers are on the same core.
    pub(crate) fn new(reports: Vec<Reports>, yields: bool) -> Pacer {
        Pacer {
            consumers: reports
                .into_iter()
                .map(|reports| ConsumerReports { reports, before: StreamProgress::default() })
                .collect(),
            search: RateSearch::new(),
            timing: Timing::SAME_HOST,
            due_ns: 0.0,
            slice_ends_ns: 0,
            slice_began_ns: 0,
            sent_before: 0,
            judgement: Judgement::default(),
            yields,
        }
    }

    /// The same, if the consumers are on another host. `bytes` is the length of a message.
    pub(crate) fn over_link(self, link: &LinkEstimate, bytes: usize) -> Pacer {
        Pacer { search: RateSearch::from(link.first_rate(bytes)), timing: Timing::between_hosts(link, bytes), ..self }
    }

    /// Waits until the next message is due. A producer that is late catches up by at most
    /// [`MAX_CATCH_UP_NS`].
    pub(crate) fn wait(&mut self) {
        let rate = self.search.rate();
        if rate.is_infinite() {
            return;
        }
        let mut now = now_ns();
        let wait_ns = if self.timing.link.is_some() { (1.0 / rate).min(MAX_WAIT_NS) } else { 1.0 / rate };
        self.due_ns = (self.due_ns + wait_ns).max(now.saturating_sub(MAX_CATCH_UP_NS) as f64);
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

    /// Ends the slice if its time is over, and chooses the next rate. `warm_up_left_ns` is how much
    /// of the warm-up is left. During the search it blocks for some milliseconds. Between hosts it
    /// blocks for two round trips, or until the queues of the link are empty, for a second at most.
    ///
    /// # Errors
    /// When the search is over and no report has arrived from another host.
    pub(crate) fn update(&mut self, now: u64, sent: u64, warm_up_left_ns: u64) -> Result<()> {
        if !self.slice_is_over(now) {
            return Ok(());
        }
        if self.slice_ends_ns > 0 {
            self.end_slice(now, sent, warm_up_left_ns)?;
        }
        self.slice_began_ns = now_ns();
        self.slice_ends_ns = self.slice_began_ns + self.timing.slice_ns * self.consumers.len() as u64;
        self.sent_before = sent;
        self.due_ns = self.slice_began_ns as f64;
        Ok(())
    }

    /// Chooses the next rate after a slice.
    fn end_slice(&mut self, now: u64, sent: u64, warm_up_left_ns: u64) -> Result<()> {
        self.receive_reports(sent);
        if self.search.is_over() {
            self.judge_window(now, sent);
            return Ok(());
        }
        let ends_ns = now.saturating_add(warm_up_left_ns);
        let before_end = |ns: u64| ends_ns.saturating_sub(ns);
        let slice = (sent - self.sent_before) as f64;
        let slice_ns = (now - self.slice_began_ns) as f64;
        let backlog = self.backlog(slice, sent, self.timing.link.map_or(u64::MAX, |link| before_end(link.empty_ns)));
        let is_too_fast = self.was_lossy() || backlog.is_too_much;
        let is_warming_up =
            warm_up_left_ns > 0 && self.timing.link.is_none_or(|link| now_ns() < before_end(link.reserve_ns));
        if !backlog.is_known && !is_too_fast {
            self.search.finish();
        } else if self.require_reports().is_ok() {
            // Nothing is known before the first report.
            let arrived = (slice - backlog.late) / slice_ns;
            self.search.step(Slice { offered: slice / slice_ns, arrived, is_too_fast }, is_warming_up);
        } else if !is_warming_up {
            self.search.finish();
        }
        self.judgement = Judgement { sent_before: sent, began: None };
        if self.search.is_over() { self.require_reports() } else { Ok(()) }
    }

    /// Lowers the rate if too much is lost after the search.
    fn judge_window(&mut self, now: u64, sent: u64) {
        let Some(link) = self.timing.link else {
            if self.is_clearly_lossy() {
                self.slow_down((self.slice_began_ns, self.sent_before), now, sent);
            }
            return;
        };
        match self.judgement.began {
            None if self.next_numbers().iter().all(|next| *next >= self.judgement.sent_before) => {
                self.was_lossy();
                self.judgement.began = Some((now, sent));
            }
            Some(began) if now >= began.0 + link.judged_ns => {
                if self.was_lossy() {
                    self.slow_down(began, now, sent);
                    self.judgement = Judgement { sent_before: sent, began: None };
                } else {
                    self.judgement.began = Some((now, sent));
                }
            }
            _ => {}
        }
    }

    /// Lowers the rate by a step. What was sent since a time with a number of sent messages only
    /// matters at full speed.
    fn slow_down(&mut self, (began_ns, sent_before): (u64, u64), now: u64, sent: u64) {
        let offered = (sent - sent_before) as f64 / (now - began_ns) as f64;
        self.search.step(Slice { offered, arrived: offered, is_too_fast: true }, false);
    }

    /// What had not arrived when a slice ended. Blocks until it has, between hosts until the
    /// deadline.
    fn backlog(&mut self, slice: f64, sent: u64, deadline_ns: u64) -> Backlog {
        let wait = self.timing.report_age + GRACE * (self.consumers.len() as u32).saturating_sub(1);
        if !wait.is_zero() {
            std::thread::sleep(wait);
            self.receive_reports(sent);
        }
        let in_time = self.next_numbers();
        self.drain(sent, deadline_ns);
        let allowed = slice * MAX_BACKLOG;
        let is_too_much = in_time.iter().any(|&next| sent.saturating_sub(next) as f64 > ALLOWED_BACKLOG + allowed);
        // Behind a slow link, slices have few messages.
        let Some(link) = self.timing.link else { return Backlog { is_too_much, late: 0.0, is_known: true } };
        let (all, before) = (self.next_numbers(), self.sent_before);
        // Of this slice: earlier messages may have been late too.
        let late = all.iter().zip(in_time).map(|(all, in_time)| all.saturating_sub(in_time.max(before))).max();
        let late = late.unwrap_or_default() as f64;
        let missing = all.iter().map(|next| sent.saturating_sub(*next)).max().unwrap_or_default() as f64;
        Backlog {
            is_too_much: is_too_much || late.max(missing) > link.allowed_late + allowed,
            late: if late > link.allowed_late.max(allowed) { late } else { 0.0 },
            is_known: now_ns() < deadline_ns,
        }
    }

    /// The number after the highest message that has arrived, for each consumer.
    fn next_numbers(&self) -> Vec<u64> {
        self.progress().iter().map(|progress| progress.next).collect()
    }

    fn progress(&self) -> Vec<StreamProgress> {
        self.consumers.iter().map(|consumer| consumer.reports.progress()).collect()
    }

    /// Waits until no more messages arrive or the deadline has passed, for at most
    /// [`Timing::max_pauses`] pauses.
    fn drain(&mut self, sent: u64, deadline_ns: u64) {
        for _ in 0..self.timing.max_pauses() {
            if now_ns() >= deadline_ns {
                break;
            }
            let before = self.progress();
            std::thread::sleep(self.timing.pause);
            self.receive_reports(sent);
            if self.progress() == before {
                break;
            }
        }
    }

    /// Whether a consumer has lost too many messages since this was last asked.
    fn was_lossy(&mut self) -> bool {
        let link_loss = self.timing.link.map(|link| link.loss);
        let mut was_lossy = false;
        for ConsumerReports { reports, before } in &mut self.consumers {
            was_lossy |= is_lossy(*before, reports.progress(), link_loss);
            *before = reports.progress();
        }
        was_lossy
    }

    /// Whether a consumer on this host has lost too many messages: of [`JUDGED_MESSAGES`] or more,
    /// or of fewer so many that it is not by chance. What is judged is not judged again.
    fn is_clearly_lossy(&mut self) -> bool {
        let mut is_lossy = false;
        for ConsumerReports { reports, before } in &mut self.consumers {
            let (passed, lost) = lost_between(*before, reports.progress());
            let allowed = passed * MAX_LOSS;
            is_lossy |= if passed < JUDGED_MESSAGES {
                lost >= MIN_LOST && lost > allowed + LOSS_DEVIATIONS * allowed.sqrt()
            } else {
                lost > allowed
            };
            if passed >= JUDGED_MESSAGES {
                *before = reports.progress();
            }
        }
        if is_lossy {
            // What all of them lost at this rate says nothing of the next one.
            self.consumers.iter_mut().for_each(|consumer| consumer.before = consumer.reports.progress());
        }
        is_lossy
    }

    fn receive_reports(&mut self, sent: u64) {
        self.consumers.iter_mut().for_each(|consumer| consumer.reports.receive(sent));
    }

    /// # Errors
    /// When a consumer on another host has not reported.
    fn require_reports(&self) -> Result<()> {
        if let Some(consumer) = self.consumers.iter().find_map(|consumer| consumer.reports.silent_consumer()) {
            bail!(
                "no UDP packet came from {consumer}, which reports what has arrived: open the UDP ports of the other \
                 host, or choose a rate with --load"
            );
        }
        Ok(())
    }
}

/// Whether more messages were lost between two reports than may be. `link_loss` is the share that
/// the link to another host may lose, more or less by chance.
fn is_lossy(before: StreamProgress, after: StreamProgress, link_loss: Option<f64>) -> bool {
    let (passed, lost) = lost_between(before, after);
    match link_loss {
        None => lost > passed * MAX_LOSS,
        Some(link_loss) => {
            let allowed = passed * (MAX_LOSS + link_loss);
            lost > allowed + LOSS_DEVIATIONS * allowed.sqrt()
        }
    }
}

/// The number of messages that arrived or were lost between two reports, and how many of them were
/// lost.
fn lost_between(before: StreamProgress, after: StreamProgress) -> (f64, f64) {
    let passed = after.next.saturating_sub(before.next) as f64;
    (passed, passed - after.received.saturating_sub(before.received) as f64)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    use super::*;

    /// The reports of a consumer that reports that it received `received` of 1,000 messages.
    fn reports(received: u64) -> Reports {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        Feedback::new(vec![ConsumerEnd::SameHost(theirs)])
            .report(1_000_000, [StreamProgress { next: 1000, received }].into_iter());
        Reports::of_socket(ours)
    }

    /// The rate after a slice at full speed in which consumers received so many of 1,000 messages,
    /// and after another one.
    fn rate(received: &[u64]) -> f64 {
        let mut pacer = Pacer::new(received.iter().map(|&received| reports(received)).collect(), false);
        pacer.search.step(Slice { offered: 1.0, arrived: 1.0, is_too_fast: true }, true);
        (pacer.slice_ends_ns, pacer.slice_began_ns) = (now_ns(), now_ns() - pacer.timing.slice_ns);
        pacer.update(now_ns(), 1000, 1_000_000_000).unwrap();
        pacer.search.rate()
    }

    #[test]
    fn the_consumer_that_lost_most_decides() {
        assert!(rate(&[1000, 1000]).is_infinite());
        assert!(rate(&[1000, 900]).is_finite() && rate(&[900, 1000]).is_finite());
    }

    /// After `next` messages, of which some were lost.
    fn after(next: u64, lost: u64) -> StreamProgress {
        StreamProgress { next, received: next - lost }
    }

    #[test]
    fn loss_is_counted_between_two_reports() {
        assert!(is_lossy(after(100, 10), after(200, 20), None));
        assert!(!is_lossy(after(100, 10), after(1100, 11), None), "one of a thousand");
        assert!(is_lossy(after(100, 10), after(1100, 12), None), "two of a thousand");
        assert!(!is_lossy(after(100, 10), after(100, 10), None));
    }

    #[test]
    fn few_lost_messages_of_a_short_slice_do_not_lower_the_rate() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut feedback = Feedback::new(vec![ConsumerEnd::SameHost(theirs)]);
        let mut pacer = Pacer::new(vec![Reports::of_socket(ours)], false);
        let mut judged = |time: u64, next, lost| {
            feedback.report(time * 1_000_000, [after(next, lost)].into_iter());
            pacer.receive_reports(next);
            pacer.is_clearly_lossy()
        };
        // One of a thousand, evenly.
        assert!(!judged(1, 50, 2) && !judged(2, 19_000, 20) && !judged(3, 20_000, 20));
        // Twice as many are too many of 20,000, and eight of 250.
        assert!(!judged(4, 30_000, 40) && judged(5, 40_000, 60));
        assert!(judged(6, 40_250, 68));
    }

    #[test]
    fn what_the_link_loses_is_no_reason_for_a_lower_rate() {
        // 10 of 10,000 by the mechanism, 10 by the link, and 4 times the square root of both by chance.
        let lossy = |lost: u64| is_lossy(after(0, 0), after(10_000, lost), Some(0.001));
        assert!(!lossy(37) && lossy(38));
        // Few messages show little.
        let lossy = |lost: u64| is_lossy(after(0, 0), after(600, lost), Some(0.0));
        assert!(!lossy(3) && lossy(4));
    }

    /// Exchanges packets until a condition holds.
    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn reports_come_from_another_host() {
        let (port, published) = ReportPort::bind([127, 0, 0, 1].into()).unwrap();
        let mut feedback = Feedback::new(vec![ConsumerEnd::OtherHost(port)]);
        let mut reports = Reports::of_port(&published).unwrap();
        assert!(reports.silent_consumer().is_some());
        let mut now = 0;
        for progress in [after(10, 1), after(100, 10)] {
            until("a report", || {
                now += 1_000_000;
                feedback.report(now, [progress].into_iter());
                reports.receive(100);
                reports.progress() == progress
            });
        }
        assert!(reports.silent_consumer().is_none());
    }

    #[test]
    fn impossible_reports_and_those_of_strangers_are_ignored() {
        let consumer = UdpSocket::bind("127.0.0.1:0").unwrap();
        consumer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let address = consumer.local_addr().unwrap();
        let mut reports = Reports::of_port(&format!("{address} 00000000000000ff")).unwrap();
        let mut key = [0; 9];
        let (length, producer) = consumer.recv_from(&mut key).unwrap();
        assert_eq!((length, key), (8, [0xff, 0, 0, 0, 0, 0, 0, 0, 0]));
        let send = |words: [u64; 3]| consumer.send_to(&words.map(u64::to_le_bytes).concat(), producer).unwrap();
        // Each is followed by a good one, which arrives after it.
        for (next, wrong) in (1..).zip([[0xfe, 50, 50], [0xff, 101, 10], [0xff, 50, 51], [0xff, 0, 0]]) {
            send(wrong);
            send([0xff, next, next]);
            until("a report", || {
                reports.receive(100);
                reports.progress().next >= next
            });
            assert_eq!(reports.progress(), after(next, 0), "after {wrong:?}");
        }
        for text in ["", "127.0.0.1:1", "127.0.0.1:1 x", "nowhere 1"] {
            assert!(Reports::of_port(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_consumer_that_never_reports_is_an_error() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let reports = Reports::of_port(&format!("{} 1", silent.local_addr().unwrap())).unwrap();
        let link = LinkEstimate { round_trip_ns: 1_000, packet_loss: 0.0, rate_bytes_per_s: 1e9 };
        let mut pacer = Pacer::new(vec![reports], false).over_link(&link, 8);
        pacer.update(now_ns(), 0, 1_000_000_000).unwrap();
        let rate = pacer.search.rate();
        pacer.update(pacer.slice_ends_ns, 250, 1_000_000_000).unwrap();
        assert_eq!(pacer.search.rate(), rate, "nothing is known");
        let error = pacer.update(pacer.slice_ends_ns, 500, 0).unwrap_err().to_string();
        assert!(error.contains("UDP"), "{error}");
    }
}
