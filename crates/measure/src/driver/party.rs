//! What a party knows as it runs, and what lies between two batches: the same for every mechanism, and compiled once.

use std::io::ErrorKind;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::batch::{Ended, Stopped};
use crate::burst::{Burst, Held};
use crate::case::{BURST, Case, Pattern, Payload, Role, TURN};
use crate::clock::cost_ns;
use crate::mechanism::Tx;
use crate::message::{Generator, Verifier};
use crate::pace::{Feedback, Pacer};
use crate::pauses::Pauses;
use crate::protocol::{LatencyCounts, PartyReport};
use crate::schedule::Schedule;
use crate::usage::Usage;
use crate::window::{Meter, Window};

/// A lossy mechanism's consumer gives up this long after the window when no end mark comes.
const QUIET_NS: u64 = 50_000_000;
/// The same where the window is a count, and ends nobody knows when.
const COUNT_QUIET_NS: u64 = 1_000_000_000;
/// A consumer looks at the clock after so few messages where producers wait to hear of them.
const FEEDBACK_STRIDE: u64 = 4;
/// A round trip that takes longer may be interrupted by a pause.
const LONG_NS: u64 = 1_000_000;
/// A round trip is timed by itself where it takes at least this many readings of the clock.
const CLOCKS_PER_SAMPLE: f64 = 20.0;
/// More different times than this are reported with fewer digits: at 20 characters each they fit a packet.
const MOST_TIMES: usize = 6_000;

/// What a consumer keeps from batch to batch.
#[derive(Debug)]
pub(super) struct Hearing {
    /// How long messages of an open loop took.
    times: Option<Histogram<u64>>,
    /// What a burst took of memory.
    held: Option<Held>,
    /// Messages that were asked for.
    handled: u64,
    /// What had arrived before the batch.
    before: u64,
    /// When something arrived last.
    heard_ns: u64,
}

/// What an asker keeps from round trip to round trip.
#[derive(Debug)]
pub(super) struct Asking {
    /// What a reading of the clock costs.
    clock_ns: f64,
    /// How long round trips took.
    times: Histogram<u64>,
    /// How many are timed together.
    pub(super) batch: u64,
}

/// What the parties of a child have in common.
pub(super) struct Setting<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    pub(super) secret: u64,
    pub(super) window: Window,
    pub(super) start_ns: u64,
    pub(super) pauses: Pauses,
    /// Whose window the processor time is counted in.
    pub(super) leader: Option<Role>,
    pub(super) lossy: bool,
    pub(super) burst: Option<Burst>,
}

/// The state of one party.
pub(super) struct Party {
    pub(super) role: Role,
    pub(super) source: Generator,
    pub(super) verifier: Verifier,
    pub(super) meter: Meter,
    /// How many it sends, where the window is a count.
    pub(super) share: Option<u64>,
    pub(super) lossy: bool,
    /// Whether the stream ends as its producers go: an end mark would reach one of several consumers, or be lost.
    pub(super) ends_by_close: bool,
    /// Whether the consumer drops every receive that has to wait.
    pub(super) cancels: bool,
    pub(super) feedback: Option<Feedback>,
    pub(super) pacer: Option<Pacer>,
    /// Messages missing as the window opened and as it closed, of a mechanism that may lose.
    missing: [u64; 2],
    /// What had arrived of each producer as the window opened and as it closed, where there are several.
    received: [Vec<u64>; 2],
    /// Receives that were dropped while they waited.
    pub(super) dropped: u64,
    /// When messages are due, in an open loop.
    pub(super) schedule: Option<Schedule>,
    /// Messages that were late in an open loop before they were sent, by no fault of the mechanism.
    late: u64,
    /// What was due before this time is late.
    late_until_ns: u64,
    /// How far a burst has got.
    pub(super) burst: Option<Burst>,
    /// What it took of memory.
    held: Option<Held>,
    /// End marks that did not come though every producer has gone.
    end_marks_lost: u64,
    /// How many streams a server answers, or one sender has.
    streams: usize,
}

impl Party {
    pub(super) fn new(setting: &Setting, role: Role) -> Party {
        let Setting { case, seed, secret, window, start_ns, ref pauses, leader, lossy, ref burst } = *setting;
        let competing = case.pattern == Pattern::Mpmc;
        let cancels = case.pattern == Pattern::Cancel;
        Party {
            role,
            source: Generator::new(seed, producer(role), case.payload.len()).with_secret(secret),
            verifier: verifier(seed, case, role)
                .with_secret(secret)
                .reading(!matches!(case.payload, Payload::Unread(_)))
                .competing(competing),
            meter: Meter::new(window_of(window, role, case.sending()), start_ns, Some(role) == leader, pauses.clone()),
            share: window.share(producer(role), case.sending()),
            lossy,
            ends_by_close: competing || cancels,
            cancels,
            feedback: None,
            pacer: None,
            missing: [0; 2],
            received: Default::default(),
            dropped: 0,
            schedule: Schedule::new(case, start_ns, seed),
            late: 0,
            late_until_ns: 0,
            burst: burst.clone(),
            held: None,
            end_marks_lost: 0,
            streams: case.producers,
        }
    }

    /// How many messages are sent before the next look at the clock.
    pub(super) fn batch_to_send(&self, sent: u64) -> u64 {
        let left = self.share.map_or(u64::MAX, |share| share - sent);
        self.meter.stride(sent).min(left)
    }

    /// The same in whole turns, but for the last.
    pub(super) fn turns_to_send(&self, sent: u64) -> u64 {
        let left = self.share.map_or(u64::MAX, |share| share - sent);
        self.meter.stride(sent).next_multiple_of(TURN).min(left)
    }

    /// Every stream's messages, from the beginning.
    pub(super) fn each_stream(&self) -> Vec<Generator> {
        (0..self.streams).map(|stream| self.source.of(stream)).collect()
    }

    /// Notes whether a message of an open loop is late, and until when the next ones are.
    pub(super) fn note_late(&mut self, due_ns: u64, late_until_ns: Option<u64>) {
        self.late_until_ns = late_until_ns.unwrap_or(self.late_until_ns);
        self.late += u64::from(due_ns < self.late_until_ns);
    }

    /// Looks at the clock after a batch was sent; whether it was the last.
    pub(super) fn has_sent(&mut self, put: Ended, sent: u64) -> Result<bool> {
        put.or_else(|stopped| self.forgive(stopped))?;
        let now = self.meter.look(sent);
        Ok(self.share.map_or(self.schedule.is_none() && self.meter.over(now), |share| sent >= share))
    }

    /// As [`Party::has_sent`], with a look at the pace. What an end has collected leaves before it is asked how much arrived.
    pub(super) async fn has_sent_paced(&mut self, tx: &mut impl Tx) -> Result<bool> {
        let now = self.meter.look(self.source.made());
        if let Some(pacer) = self.pacer.as_mut().filter(|pacer| pacer.slice_is_over(now)) {
            match tx.flush().await {
                // Of many producers on few cores some are still sending when the consumer has given up waiting.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && self.meter.over(now) => return Ok(true),
                flushed => flushed.context("sending")?,
            }
            pacer.look(now, self.source.made(), self.meter.warming_up());
        }
        Ok(self.share.map_or(self.meter.over(now), |share| self.source.made() >= share))
    }

    /// What a consumer begins with; a burst has been sent by then.
    pub(super) fn consumer_state(&mut self) -> Result<Hearing> {
        let mut held = None;
        if let Some(burst) = &self.burst {
            held = Some(burst.full()?);
            self.meter.resume();
        }
        let times = match self.schedule {
            Some(_) => Some(histogram()?),
            None => None,
        };
        Ok(Hearing { times, held, handled: 0, before: 0, heard_ns: self.meter.now() })
    }

    /// How many messages are received before the next look at the clock.
    pub(super) fn batch_to_get(&self, hearing: &mut Hearing) -> u64 {
        hearing.before = self.verifier.received();
        let most = match (&self.feedback, &hearing.times) {
            (_, Some(_)) => 1,
            (Some(_), _) => FEEDBACK_STRIDE,
            _ => u64::MAX,
        };
        self.meter.stride(hearing.before).min(most)
    }

    /// Looks at the clock after a batch was received; whether it was the last.
    pub(super) fn has_received(&mut self, hearing: &mut Hearing, got: Ended, count: u64) -> Result<bool> {
        if self.ends_by_close && matches!(&got, Err(stopped) if stopped.at_the_end()) {
            // By count nobody knows when it is due.
            let due = self.share.is_some() || self.meter.over(self.meter.now());
            ensure!(due, "the stream ended while its producers were still sending");
            return Ok(true);
        }
        // Every producer has gone, and whether it came to its end it says itself. Its end mark, perhaps with more, was lost.
        if !self.lossy && matches!(&got, Err(stopped) if stopped.at_the_end()) {
            self.end_marks_lost = self.verifier.not_ended();
            return Ok(true);
        }
        got.or_else(|stopped| self.forgive(stopped))?;
        if self.verifier.ended() {
            return Ok(true);
        }
        let (before, received) = (hearing.before, self.verifier.received());
        hearing.handled += count;
        if let (Some(burst), Some(held)) = (&self.burst, &mut hearing.held)
            && hearing.handled >= BURST
        {
            burst.empty_again(held)?;
        }
        let now = self.look_and_note(received);
        if let (Some(times), Some(schedule), true) = (&mut hearing.times, &mut self.schedule, received > before) {
            let (producer, number) = self.verifier.last();
            let due_ns = schedule.due_ns(producer, number);
            if self.meter.covers(due_ns) {
                times.saturating_record(now.saturating_sub(due_ns));
            }
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.tell(now, self.verifier.progress());
            self.note_missing();
        }
        Ok(self.silent(&mut hearing.heard_ns, now, received > before))
    }

    /// A consumer's report.
    pub(super) fn consumer_report(mut self, hearing: Hearing) -> Result<(PartyReport, Option<Usage>)> {
        let received = self.verifier.received();
        self.close(received);
        self.held = hearing.held;
        let latency = match hearing.times {
            Some(times) => Some(LatencyCounts { batch: 1, counts: counts(&times)? }),
            None => None,
        };
        Ok(self.report(0, received, latency))
    }

    /// Looks at the clock, and notes what has arrived of each producer as the window opens or closes.
    fn look_and_note(&mut self, received: u64) -> u64 {
        let (warming_up, open) = (self.meter.warming_up(), self.meter.open());
        let now = self.meter.look(received);
        if (warming_up, open) != (self.meter.warming_up(), self.meter.open()) {
            self.note_received();
        }
        now
    }

    /// Closes a window that is still open.
    pub(super) fn close(&mut self, received: u64) {
        if self.meter.open() {
            self.meter.end(received);
            self.note_received();
        }
    }

    /// Whether nothing has come for so long that nothing will.
    fn silent(&self, heard_ns: &mut u64, now: u64, heard: bool) -> bool {
        if heard {
            *heard_ns = now;
        }
        !heard && self.given_up(now, *heard_ns)
    }

    /// Notes what has arrived of each producer, as the window opens or closes.
    fn note_received(&mut self) {
        let counts: Vec<u64> = self.verifier.progress().map(|(_, received)| received).collect();
        if counts.len() > 1 {
            self.received[usize::from(self.meter.closed())] = counts;
        }
    }

    /// Notes how many messages are missing as the window opens and as it closes.
    fn note_missing(&mut self) {
        let missing = self.verifier.progress().map(|(next, received)| next.saturating_sub(received)).sum();
        if self.meter.warming_up() || self.meter.open() {
            self.missing[1] = missing;
        }
        if self.meter.warming_up() {
            self.missing[0] = missing;
        }
    }

    /// What an asker begins with.
    pub(super) fn asking() -> Result<Asking> {
        Ok(Asking { clock_ns: cost_ns(), times: histogram()?, batch: 1 })
    }

    /// Notes how long round trips took, and how many they were, where they were answered; whether they were the last. Those
    /// that a pause interrupted count only where they are so long that stopping and starting takes a small part of their time.
    pub(super) fn has_asked(&mut self, asking: &mut Asking, clock_ns: u64, took: Option<(u64, u64)>) -> bool {
        let (warming_up, closed) = (self.meter.warming_up(), self.meter.closed());
        let paused_ns = self.meter.look_at(clock_ns, self.source.made());
        let took = took.map(|(took_ns, round_trips)| (took_ns.saturating_sub(paused_ns.unwrap_or(0)), round_trips));
        let counts = |took_ns| !closed && (paused_ns.is_none() || took_ns > LONG_NS);
        if let Some((took_ns, round_trips)) = took.filter(|(took_ns, _)| counts(*took_ns)) {
            asking.times.saturating_record((took_ns / round_trips.max(1)).max(1));
            self.meter.note_time(took_ns, round_trips);
        }
        if warming_up && !self.meter.warming_up() && !asking.times.is_empty() {
            // By the middle one of the warm-up: a lucky one says nothing about the others.
            let middle_ns = asking.times.value_at_quantile(0.5) as f64;
            asking.batch = (CLOCKS_PER_SAMPLE * asking.clock_ns / middle_ns).ceil().max(1.0) as u64;
            asking.times.reset();
        }
        self.share.map_or(self.meter.closed(), |share| self.source.made() >= share)
    }

    /// An asker's report; `sent` does not count the end mark.
    pub(super) fn asked(self, sent: u64, asking: Asking) -> Result<(PartyReport, Option<Usage>)> {
        let latency = LatencyCounts { batch: asking.batch, counts: counts(&asking.times)? };
        Ok(self.report(sent, sent, Some(latency)))
    }

    /// Looks at the clock after a batch was answered; whether it was the last.
    pub(super) fn has_answered(&mut self, done: Ended, before: u64, heard_ns: &mut u64) -> Result<bool> {
        done.or_else(|stopped| self.forgive(stopped))?;
        if self.verifier.ended() {
            return Ok(true);
        }
        let answered = self.source.made();
        let now = self.meter.look(answered);
        Ok(self.silent(heard_ns, now, answered > before))
    }

    /// As [`Party::has_answered`], of a server.
    pub(super) fn has_served(&mut self, done: Ended, before: u64, heard_ns: &mut u64) -> Result<bool> {
        done.or_else(|stopped| self.forgive(stopped))?;
        if self.verifier.ended() {
            return Ok(true);
        }
        let served = self.verifier.received();
        let now = self.look_and_note(served);
        Ok(self.silent(heard_ns, now, served > before))
    }

    /// Lets pass what a mechanism that may lose has to live with.
    #[cold]
    pub(super) fn forgive(&self, stopped: Stopped) -> Result<()> {
        let error = match stopped {
            Stopped::Sending(error) => return Err(error).context("sending"),
            Stopped::Receiving(error) => error,
        };
        // A datagram socket hears so of a peer that has had its end mark and gone.
        let passing =
            matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::ConnectionRefused);
        if self.lossy && passing { Ok(()) } else { Err(error).context("receiving") }
    }

    /// The report of a party whose end sent messages without taking them from their source, so many of them: whatever arrived was
    /// not what was to be sent.
    #[cold]
    pub(super) fn not_filled(self, messages: u64) -> (PartyReport, Option<Usage>) {
        let sent = self.source.made();
        let (mut report, usage) = self.report(sent, sent, None);
        report.faults.damaged += messages;
        (report, usage)
    }

    fn given_up(&self, now: u64, heard_ns: u64) -> bool {
        self.lossy
            && self.meter.over(now)
            && now > heard_ns + if self.share.is_some() { COUNT_QUIET_NS } else { QUIET_NS }
    }

    pub(super) fn report(
        mut self,
        sent: u64,
        handled: u64,
        latency: Option<LatencyCounts>,
    ) -> (PartyReport, Option<Usage>) {
        let (messages, window_ns, usage) = self.meter.result();
        let receives = self.verifier.received() > 0 || matches!(self.role, Role::Consumer(_)) || latency.is_some();
        let (received, mut faults) = if receives { self.verifier.finish() } else { Default::default() };
        faults.lost += self.end_marks_lost;
        debug_assert!(messages <= handled);
        let longest_stall_ns = self.meter.longest_stall_ns();
        let lost = self.missing[1].saturating_sub(self.missing[0]);
        let role = self.role;
        let slices = if receives { self.meter.take_slices() } else { Vec::new() };
        let [opened, closed] = &self.received;
        let shares = closed.iter().zip(opened).map(|(closed, opened)| closed - opened).collect();
        let (dropped, late, held) = (self.dropped, self.late, self.held);
        let report = PartyReport {
            role,
            sent,
            received,
            faults,
            messages,
            shares,
            dropped,
            late,
            codec: None,
            held,
            lost,
            window_ns,
            longest_stall_ns,
            slices,
            latency,
        };
        (report, usage)
    }
}

/// A window by count is counted in the messages of all senders: one of them opens and closes its own by its share.
fn window_of(window: Window, role: Role, senders: usize) -> Window {
    match (window, role) {
        (Window::Count { warmup, .. }, Role::Producer(index)) => {
            let share = |window: Window| window.share(index, senders).unwrap_or_default();
            let warmup = share(Window::Count { warmup, messages: 0 });
            Window::Count { warmup, messages: share(window) - warmup }
        }
        _ => window,
    }
}

/// Whose sequence a party sends. In a ping-pong both sides send that of producer 0, so that an answer is the same
/// bytes as its question, and a mechanism that hands the question back answers right.
pub(super) fn producer(role: Role) -> usize {
    if let Role::Producer(index) = role { index } else { 0 }
}

/// For times up to a minute, with three significant digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")
}

/// A histogram as pairs of a time and its count: with three significant digits, or with two where that is more than a
/// packet holds.
pub(super) fn counts(times: &Histogram<u64>) -> Result<Vec<(u64, u64)>> {
    let pairs = |times: &Histogram<u64>| -> Vec<(u64, u64)> {
        times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    };
    let fine = pairs(times);
    if fine.len() <= MOST_TIMES {
        return Ok(fine);
    }
    let mut coarse = Histogram::<u64>::new_with_bounds(1, times.high(), 2).context("a histogram")?;
    for (time, count) in fine {
        coarse.saturating_record_n(time, count);
    }
    Ok(pairs(&coarse))
}

/// What a party checks: every producer's messages, where it hears all of them.
fn verifier(seed: u64, case: &Case, role: Role) -> Verifier {
    let len = case.payload.len();
    match (case.pattern, role) {
        // The answers are in the client's own sequence.
        (Pattern::RequestReply, Role::Producer(client)) => Verifier::only(seed, client, len),
        (Pattern::Duplex, Role::Consumer(other)) => Verifier::only(seed, other, len),
        _ => Verifier::new(seed, case.senders(), len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_of_a_ping_pong_follows_from_the_middle_round_trip_of_the_warm_up() {
        let case: Case = serde_json::from_str(
            r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "ping-pong", "payload": "u64", "producers": 1,
                "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free"}}"#,
        )
        .unwrap();
        let window = Window::Count { warmup: 5, messages: 10 };
        let setting = Setting {
            case: &case,
            seed: 1,
            secret: 2,
            window,
            start_ns: 0,
            pauses: Pauses::default(),
            leader: None,
            lossy: false,
            burst: None,
        };
        let mut party = Party::new(&setting, Role::Producer(0));
        let mut asking = Asking { clock_ns: 25.0, ..Party::asking().unwrap() };
        let mut batches = Vec::new();
        // One round trip is lucky, and one is not.
        for (at_ns, took_ns) in (1..).zip([1, 400, 400, 400, 90_000]) {
            party.source.word();
            assert!(!party.has_asked(&mut asking, at_ns, Some((took_ns, 1))));
            batches.push(asking.batch);
        }
        assert_eq!(batches, [1, 1, 1, 1, 2], "20 readings of the clock are 500 ns");
        assert!(asking.times.is_empty(), "the warm-up does not count");
    }
}
