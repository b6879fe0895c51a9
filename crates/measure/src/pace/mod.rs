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
//! the one that lost most decides. Between hosts, reports are a round trip old, and what the link itself
//! loses is no reason for a lower rate.

mod feedback;
mod search;

use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use self::feedback::{ConsumerEnd, Feedback, ReportPort, Reports, StreamProgress};
use self::search::RateSearch;
use crate::clock::now_ns;

/// The maximum share of lost messages, beyond what a link between hosts loses. At a higher loss the
/// rate is too high.
pub const MAX_LOSS: f64 = 0.001;
/// The maximum backlog at the end of a slice, as a part of its messages. With a larger backlog the
/// slice was too fast: the receiver's buffer fills up, and nothing is lost only because the slice
/// is over. Messages of the last 200 us (400 us between hosts) may still be in flight, because the
/// receiver is being woken.
const MAX_BACKLOG: f64 = 0.08;
/// The backlog in messages that is always allowed: the last messages may have just been sent, 64 of
/// them by one call, or have arrived and not been reported yet.
const ALLOWED_BACKLOG: f64 = 96.0;
/// The waiting time for each consumer but one before the backlog is judged, because the consumers
/// may have waited for each other.
const GRACE: Duration = Duration::from_micros(1_500);
/// By how many standard deviations a link may lose more than on average.
const LOSS_DEVIATIONS: f64 = 4.0;
/// The data of a UDP packet on Ethernet in bytes. A longer message is lost with any of its packets.
const PACKET_BYTES: usize = 1_472;
/// The messages that may arrive late in each slice between hosts, besides one batch.
const ALLOWED_LATE: f64 = 4.0;
/// The largest batch that a mechanism sends by one call: this many messages, of this many bytes together.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 10;
/// The number of messages in a slice at the rate of the link, in messages that may be late. With fewer, a batch looks like
/// a rate that is too high.
const SLICE_IN_LATE: f64 = 10.0;
/// The shortest slice of a search between hosts, in nanoseconds.
const MIN_SLICE_NS: f64 = 5e6;
/// The longest, and the longest wait for a message that is due.
const MAX_SLICE_NS: f64 = 200e6;
/// The number of steps of a search that a warm-up between hosts allows for.
const REMOTE_STEPS: u64 = 25;
/// The rate at which a search between hosts begins, as a part of the link's rate.
const FIRST_PART_OF_LINK: f64 = 0.25;
/// The highest rate at which a search between hosts begins, in messages per nanosecond.
const MAX_FIRST_RATE: f64 = 50e-6;
/// The rate of a link whose rate is not known, in bytes per second.
const UNKNOWN_RATE: f64 = 1e6;
/// The shortest time over which the loss is judged after a search between hosts, in nanoseconds.
const MIN_JUDGED_NS: u64 = 100_000_000;

/// What is known of the link between producers and consumers on two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEstimate {
    /// The round trip of a packet, in nanoseconds.
    pub round_trip_ns: u64,
    /// The largest share of packets that it may lose by its measured loss, from 0 to 1.
    pub packet_loss: f64,
    /// Its rate in bytes per second. 0 if it is unknown.
    pub rate_bytes_per_s: f64,
}

/// The share of messages of this length that a link loses, which loses this share of packets.
pub(crate) fn message_loss(packet_loss: f64, bytes: usize) -> f64 {
    let packets = bytes.div_ceil(PACKET_BYTES).max(1) as f64;
    1.0 - (1.0 - packet_loss).powf(packets)
}

impl LinkEstimate {
    /// The rate in messages of this length per nanosecond.
    fn rate(&self, bytes: usize) -> f64 {
        let known = self.rate_bytes_per_s.is_finite() && self.rate_bytes_per_s > 0.0;
        let rate = if known { self.rate_bytes_per_s } else { UNKNOWN_RATE };
        rate / (bytes.max(1) as f64 * 1e9)
    }

    /// The time that a search for messages of this length takes because of the link, in nanoseconds.
    pub(crate) fn search_ns(&self, bytes: usize) -> u64 {
        REMOTE_STEPS * Timing::between_hosts(self, bytes).step_ns()
    }
}

/// The durations of a search.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// The length of one step, for each consumer. If the consumers share a core, each of them runs within it.
    slice_ns: u64,
    /// How old a report is when it arrives.
    report_age: Duration,
    /// The length of a pause after a step. Pauses are repeated as long as messages still arrive. A rate
    /// that is too high fills all buffers, and the messages left in them would count against the next
    /// rate.
    pause: Duration,
    /// The longest time of the pauses after a step.
    longest_drain: Duration,
}

impl Timing {
    const SAME_HOST: Timing = Timing {
        slice_ns: 2_500_000,
        report_age: Duration::ZERO,
        pause: Duration::from_micros(500),
        longest_drain: Duration::from_millis(20),
    };

    /// Between two hosts, for messages of this length.
    fn between_hosts(link: &LinkEstimate, bytes: usize) -> Timing {
        let round_trip = Duration::from_nanos(link.round_trip_ns);
        let slice_ns = SLICE_IN_LATE * allowed_late(bytes) / link.rate(bytes);
        Timing {
            slice_ns: slice_ns.clamp(MIN_SLICE_NS, MAX_SLICE_NS) as u64,
            report_age: round_trip + round_trip / 8 + Duration::from_micros(100),
            pause: Duration::from_millis(1) + round_trip / 2,
            // Queues of routers are long.
            longest_drain: Duration::from_secs(1),
        }
    }

    /// The maximum number of pauses after a step.
    fn max_pauses(&self) -> u32 {
        (self.longest_drain.as_nanos() / self.pause.as_nanos()) as u32
    }

    /// The time of a step at a rate that is sustained, in nanoseconds.
    fn step_ns(&self) -> u64 {
        self.slice_ns + (self.report_age + 2 * self.pause).as_nanos() as u64
    }
}

/// The messages of this length that may arrive late in each slice between hosts.
fn allowed_late(bytes: usize) -> f64 {
    ALLOWED_LATE + (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH) as f64
}

/// What a producer knows of the link to consumers on another host.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The largest share of messages that it may lose.
    loss: f64,
    /// The messages that may arrive late in each slice.
    allowed_late: f64,
    /// The time over which the loss is judged after the search, in nanoseconds.
    judged_ns: u64,
}

/// A consumer's reports.
struct ConsumerReports {
    reports: Reports,
    /// The last report when the loss was last judged.
    before: StreamProgress,
}

/// Decides when a producer may send.
pub(crate) struct Pacer {
    /// One for each consumer that gets every message.
    consumers: Vec<ConsumerReports>,
    search: RateSearch,
    timing: Timing,
    /// `None` on one host.
    link: Option<Link>,
    due_ns: f64,
    slice_ends_ns: u64,
    slice_began_ns: u64,
    sent_before: u64,
    /// When the loss was last judged.
    judged_ns: u64,
    /// The number of messages sent when the rate was last changed. What arrived of them says nothing of the rate.
    sent_at_change: u64,
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
            link: None,
            due_ns: 0.0,
            slice_ends_ns: 0,
            slice_began_ns: 0,
            sent_before: 0,
            judged_ns: 0,
            sent_at_change: 0,
            yields,
        }
    }

    /// The same, if the consumers are on another host. `bytes` is the length of a message.
    pub(crate) fn over_link(self, link: &LinkEstimate, bytes: usize) -> Pacer {
        let first_rate = (FIRST_PART_OF_LINK * link.rate(bytes)).min(MAX_FIRST_RATE);
        Pacer {
            search: RateSearch::from(first_rate),
            timing: Timing::between_hosts(link, bytes),
            link: Some(Link {
                loss: message_loss(link.packet_loss, bytes),
                allowed_late: allowed_late(bytes),
                judged_ns: MIN_JUDGED_NS.max(2 * link.round_trip_ns),
            }),
            ..self
        }
    }

    /// Waits until the next message is due. A producer that is late catches up by at most one
    /// slice.
    pub(crate) fn wait(&mut self) {
        let rate = self.search.rate();
        if rate.is_infinite() {
            return;
        }
        let mut now = now_ns();
        self.due_ns =
            (self.due_ns + (1.0 / rate).min(MAX_SLICE_NS)).max(now.saturating_sub(self.timing.slice_ns) as f64);
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

    /// Ends the slice if its time is over, and chooses the next rate. `warm_up_left_ns` is how much of the warm-up is left.
    /// During the search it blocks for some milliseconds. Between hosts it blocks for two round trips, or until the
    /// queues of the link are empty, for a second at most.
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
        // A window that is open must not have steps of the search in it. That of a consumer on another host opens first.
        if self.link.is_some() && warm_up_left_ns < self.timing.step_ns() {
            self.search.finish();
            (self.judged_ns, self.sent_at_change) = (now, sent);
            return self.require_reports();
        }
        let slice = (sent - self.sent_before) as f64;
        let offered = slice / (now - self.slice_began_ns) as f64;
        let is_behind = self.is_behind(slice, sent);
        let is_lossy = self.was_lossy();
        // Nothing is known before the first report.
        if self.require_reports().is_ok() {
            self.search.step(offered, is_lossy || is_behind, warm_up_left_ns > 0);
            (self.judged_ns, self.sent_at_change) = (now, sent);
        }
        Ok(())
    }

    /// Lowers the rate if too much is lost after the search.
    fn judge_window(&mut self, now: u64, sent: u64) {
        if let Some(link) = self.link {
            // The reports are of messages that were sent before.
            if self.consumers.iter().any(|consumer| consumer.reports.progress().next < self.sent_at_change) {
                self.was_lossy();
                self.judged_ns = now;
            }
            if now < self.judged_ns + link.judged_ns {
                return;
            }
        }
        self.judged_ns = now;
        if self.was_lossy() {
            let offered = (sent - self.sent_before) as f64 / (now - self.slice_began_ns) as f64;
            self.search.step(offered, true, false);
            self.sent_at_change = sent;
        }
    }

    /// Whether too many messages of a slice had not arrived when it ended. Blocks until all have.
    fn is_behind(&mut self, slice: f64, sent: u64) -> bool {
        let wait = self.timing.report_age + GRACE * (self.consumers.len() as u32).saturating_sub(1);
        if !wait.is_zero() {
            std::thread::sleep(wait);
            self.receive_reports(sent);
        }
        let in_time = self.next_numbers();
        self.drain(sent);
        let exceeds = |messages: u64, allowed: f64| messages as f64 > allowed + slice * MAX_BACKLOG;
        let is_backlogged = in_time.iter().any(|&in_time| exceeds(sent.saturating_sub(in_time), ALLOWED_BACKLOG));
        // Behind a slow link, slices have few messages.
        let Some(link) = self.link else { return is_backlogged };
        let mut late = self.next_numbers().into_iter().zip(&in_time).map(|(all, in_time)| all.saturating_sub(*in_time));
        is_backlogged || late.any(|late| exceeds(late, link.allowed_late))
    }

    /// The number after the highest message that has arrived, for each consumer.
    fn next_numbers(&self) -> Vec<u64> {
        self.progress().iter().map(|progress| progress.next).collect()
    }

    fn progress(&self) -> Vec<StreamProgress> {
        self.consumers.iter().map(|consumer| consumer.reports.progress()).collect()
    }

    /// Waits until no more messages arrive, for at most [`Timing::max_pauses`] pauses.
    fn drain(&mut self, sent: u64) {
        for _ in 0..self.timing.max_pauses() {
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
        let link_loss = self.link.map_or(0.0, |link| link.loss);
        let mut was_lossy = false;
        for ConsumerReports { reports, before } in &mut self.consumers {
            was_lossy |= is_lossy(*before, reports.progress(), link_loss);
            *before = reports.progress();
        }
        was_lossy
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

/// Whether more messages were lost between two reports than may be, if the link itself loses this share.
fn is_lossy(before: StreamProgress, after: StreamProgress, link_loss: f64) -> bool {
    let passed = after.next.saturating_sub(before.next) as f64;
    let lost = passed - after.received.saturating_sub(before.received) as f64;
    let by_link = passed * link_loss;
    lost > passed * MAX_LOSS + by_link + LOSS_DEVIATIONS * by_link.sqrt()
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

    /// The rate after a slice at full speed in which consumers received so many of 1,000 messages, and after another one.
    fn rate(received: &[u64]) -> f64 {
        let mut pacer = Pacer::new(received.iter().map(|&received| reports(received)).collect(), false);
        pacer.search.step(1.0, true, true);
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
        assert!(is_lossy(after(100, 10), after(200, 20), 0.0));
        assert!(!is_lossy(after(100, 10), after(1100, 11), 0.0), "one of a thousand");
        assert!(is_lossy(after(100, 10), after(1100, 12), 0.0), "two of a thousand");
        assert!(!is_lossy(after(100, 10), after(100, 10), 0.0));
    }

    #[test]
    fn what_the_link_loses_is_no_reason_for_a_lower_rate() {
        // The link loses 10 of 10,000 on average, and up to 12 more by chance; the mechanism may lose 10.
        let lossy = |lost: u64| is_lossy(after(0, 0), after(10_000, lost), 0.001);
        assert!(!lossy(32) && lossy(33));
        assert!((message_loss(0.01, 1_000) - 0.01).abs() < 1e-12);
        assert!((message_loss(0.01, 2 * PACKET_BYTES) - 0.0199).abs() < 1e-12);
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

    #[test]
    fn a_batch_is_not_mistaken_for_a_rate_that_is_too_high() {
        for (bytes, rate_bytes_per_s) in [(64, 1e6), (1_024, 6e6), (1_024, 1e9), (32 << 10, 6e6), (65_507, 1e3)] {
            let link = LinkEstimate { round_trip_ns: 1_000_000, packet_loss: 0.0, rate_bytes_per_s };
            let timing = Timing::between_hosts(&link, bytes);
            let messages = link.rate(bytes) * timing.slice_ns as f64;
            let is_long = timing.slice_ns as f64 >= MAX_SLICE_NS - 1.0;
            assert!(messages >= 9.9 * allowed_late(bytes) || is_long, "{messages} of {bytes} B at {rate_bytes_per_s}");
        }
        assert_eq!([64, 1_024, 32 << 10, 65_507].map(allowed_late), [68.0, 68.0, 6.0, 5.0]);
    }
}
