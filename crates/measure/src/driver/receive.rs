//! The loop of a consumer: receives until every producer has ended.

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use super::party::{LoopSetup, Party};
use super::step::{Action, ActionResult, Control, PartyResult, Step, Waiting};
use crate::burst_memory::{BURST_POLL, BurstMemory, SharedBurst};
use crate::latency_counts::{counts, histogram};
use crate::message::Verifier;
use crate::pace::{Feedback, StreamProgress};
use crate::pattern::{BURST, StreamEnd};
use crate::pattern_figures::PatternFigures;
use crate::protocol::{LatencyCounts, PartyReport};
use crate::schedule::Schedule;

/// A consumer with feedback reads the clock after this number of messages, because producers wait
/// for the feedback.
const FEEDBACK_STRIDE: u64 = 4;

/// The state of a consumer.
pub(super) struct ReceiveLoop {
    pub(super) verifier: Verifier,
    /// Whether it drops every receive that is not ready at once.
    pub(super) drops_receives: bool,
    /// The number of receives that were dropped.
    pub(super) dropped: u64,
    party: Party,
    stream_end: StreamEnd,
    phase: ReceivePhase,
    /// The times of an open loop's messages.
    times: Option<Times>,
    burst: Option<BurstState>,
    feedback: Option<FeedbackState>,
    received: ReceivedOfEach,
    /// The number of messages received before the batch.
    before: u64,
    /// The number of messages requested from the end.
    requested: u64,
    /// End marks that did not arrive although every producer has closed.
    end_marks_lost: u64,
}

/// What a consumer is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceivePhase {
    /// Waits until a burst has been sent.
    WaitingForBurst,
    Receiving,
    Over,
}

/// How long the messages of an open loop took.
struct Times {
    schedule: Schedule,
    /// The same schedule at its beginning.
    from_start: Schedule,
    histogram: Histogram<u64>,
}

impl Times {
    fn new(schedule: Schedule) -> Result<Times> {
        Ok(Times { from_start: schedule.clone(), schedule, histogram: histogram()? })
    }

    /// The number of messages that were due in the window and have not arrived. `None` if the
    /// window is a number of messages.
    fn lost(&self, party: &Party) -> Option<u64> {
        let due = self.from_start.clone().due_within(&party.meter.times_ns()?);
        Some(due.saturating_sub(self.histogram.len()))
    }
}

/// A burst, and the memory of its channel once all messages have been sent.
struct BurstState {
    burst: SharedBurst,
    memory: Option<BurstMemory>,
}

/// What a lossy mechanism's consumer reports to its producers, and how many messages are missing.
struct FeedbackState {
    feedback: Feedback,
    /// Missing messages when the window opened.
    missing_at_opening: u64,
    /// Missing messages when the window closed.
    missing_at_closing: u64,
}

/// The number of messages received from each producer, if there are several producers.
#[derive(Default)]
pub(super) struct ReceivedOfEach {
    /// When the window opened.
    at_opening: Vec<u64>,
    /// When it closed.
    at_closing: Vec<u64>,
}

impl ReceivedOfEach {
    /// Reads the clock, and notes the numbers when the window opens or closes.
    pub(super) fn check_clock(&mut self, party: &mut Party, verifier: &Verifier) -> u64 {
        let before = (party.meter.is_warming_up(), party.meter.is_open());
        let now_ns = party.meter.check_clock(verifier.received());
        if before != (party.meter.is_warming_up(), party.meter.is_open()) {
            self.note(party, verifier);
        }
        now_ns
    }

    /// Closes a window that is still open, because the stream has ended.
    pub(super) fn close(&mut self, party: &mut Party, verifier: &Verifier) {
        let was_open = party.meter.is_open();
        party.meter.end(verifier.received());
        if was_open {
            self.note(party, verifier);
        }
    }

    fn note(&mut self, party: &Party, verifier: &Verifier) {
        let counts: Vec<u64> = verifier.progress().map(|(_, received)| received).collect();
        if counts.len() > 1 {
            let noted = if party.meter.is_closed() { &mut self.at_closing } else { &mut self.at_opening };
            *noted = counts;
        }
    }

    /// The number of messages of each producer within the window.
    pub(super) fn within(&self) -> Vec<u64> {
        self.at_closing.iter().zip(&self.at_opening).map(|(closing, opening)| closing - opening).collect()
    }
}

impl ReceiveLoop {
    pub(super) fn new(setup: LoopSetup) -> Result<ReceiveLoop> {
        let stream_end = setup.stream_end();
        let LoopSetup { party, verifier, rules, schedule, burst, feedback, .. } = setup;
        let times = match schedule {
            Some(schedule) => Some(Times::new(schedule)?),
            None => None,
        };
        Ok(ReceiveLoop {
            verifier,
            drops_receives: rules.drops_receives(),
            dropped: 0,
            party,
            stream_end,
            phase: if burst.is_some() { ReceivePhase::WaitingForBurst } else { ReceivePhase::Receiving },
            times,
            burst: burst.map(|burst| BurstState { burst, memory: None }),
            feedback: feedback.map(|feedback| FeedbackState { feedback, missing_at_opening: 0, missing_at_closing: 0 }),
            received: ReceivedOfEach::default(),
            before: 0,
            requested: 0,
            end_marks_lost: 0,
        })
    }

    /// The number of messages until the next reading of the clock.
    fn batch(&self) -> u64 {
        let most = match (&self.times, &self.feedback) {
            (Some(_), _) => 1,
            (None, Some(_)) => FEEDBACK_STRIDE,
            (None, None) => u64::MAX,
        };
        self.party.meter.stride(self.before).min(most)
    }

    /// Takes the end of the stream: every producer has closed.
    fn end_of_stream(&mut self) -> Result<()> {
        match self.stream_end {
            StreamEnd::Close => {
                // If the window is a number of messages, nobody knows when the end is due.
                let is_due = self.party.share.is_some() || self.party.meter.may_stop_sending(self.party.meter.now());
                ensure!(is_due, "the stream ended while its producers were still sending");
            }
            // Whether a producer finished is in its own report. Its end mark, perhaps with more messages, was lost.
            StreamEnd::Mark => self.end_marks_lost = self.verifier.not_ended(),
        }
        self.phase = ReceivePhase::Over;
        Ok(())
    }

    /// Takes the result of a batch that did not end the stream.
    fn received_batch(&mut self, count: u64) -> Result<()> {
        let received = self.verifier.received();
        self.requested += count;
        if let Some(BurstState { burst, memory: Some(memory) }) = &mut self.burst
            && self.requested >= BURST
        {
            burst.empty_again(memory)?;
        }
        let now_ns = self.received.check_clock(&mut self.party, &self.verifier);
        let is_progress = received > self.before;
        if let (Some(times), true) = (&mut self.times, is_progress) {
            let (producer, number) = self.verifier.last();
            let due_ns = times.schedule.due_ns(producer, number);
            if self.party.meter.contains(due_ns) {
                times.histogram.saturating_record(now_ns.saturating_sub(due_ns));
            }
        }
        if let Some(state) = &mut self.feedback {
            let progress = self.verifier.progress().map(|(next, received)| StreamProgress { next, received });
            state.feedback.report(now_ns, progress);
            state.note_missing(&self.party, &self.verifier);
        }
        if self.party.gives_up(now_ns, is_progress) {
            self.phase = ReceivePhase::Over;
        }
        Ok(())
    }

    /// Begins after a burst has been sent.
    fn begin(&mut self) -> Result<()> {
        if let Some(BurstState { burst, memory }) = &mut self.burst {
            *memory = Some(burst.full()?);
            self.party.meter.resume();
        }
        self.party.received_ns = self.party.meter.now();
        Ok(())
    }
}

impl FeedbackState {
    fn note_missing(&mut self, party: &Party, verifier: &Verifier) {
        let missing = verifier.progress().map(|(next, received)| next.saturating_sub(received)).sum();
        if party.meter.is_warming_up() || party.meter.is_open() {
            self.missing_at_closing = missing;
        }
        if party.meter.is_warming_up() {
            self.missing_at_opening = missing;
        }
    }

    /// The number of messages lost within the window.
    fn lost(&self) -> u64 {
        self.missing_at_closing.saturating_sub(self.missing_at_opening)
    }
}

impl Control for ReceiveLoop {
    fn next(&mut self) -> Result<Step> {
        if self.phase == ReceivePhase::WaitingForBurst {
            if self.burst.as_ref().is_some_and(|memory| !memory.burst.is_sent()) {
                return Ok(Step::Wait(Waiting::About(BURST_POLL)));
            }
            self.begin()?;
            self.phase = ReceivePhase::Receiving;
        }
        if self.phase == ReceivePhase::Over {
            return Ok(Step::Done);
        }
        self.before = self.verifier.received();
        Ok(Step::Act(Action::Batch(self.batch())))
    }

    fn handle(&mut self, action: Action, result: ActionResult) -> Result<()> {
        if matches!(&result, Err(error) if error.is_end_of_stream())
            && (!self.party.lossy || self.stream_end == StreamEnd::Close)
        {
            return self.end_of_stream();
        }
        result.or_else(|error| self.party.tolerate(error))?;
        if self.verifier.ended() {
            self.phase = ReceivePhase::Over;
            return Ok(());
        }
        let Action::Batch(count) = action else { return Ok(()) };
        self.received_batch(count)
    }

    fn keeps_open(&self) -> bool {
        self.verifier.found_damage()
    }

    fn finish(mut self) -> Result<PartyResult> {
        let received = self.verifier.received();
        self.received.close(&mut self.party, &self.verifier);
        let shares = self.received.within();
        let lost = self.feedback.map_or(0, |state| {
            let of_schedule = self.times.as_ref().and_then(|times| times.lost(&self.party));
            of_schedule.unwrap_or_else(|| state.lost())
        });
        let (mut report, usage) = self.party.report_received(0, self.verifier);
        debug_assert!(report.messages <= received);
        report.faults.lost += self.end_marks_lost;
        let latency = match &self.times {
            Some(times) => Some(LatencyCounts { batch: 1, counts: counts(&times.histogram)? }),
            None => None,
        };
        let of_pattern = match self.burst.and_then(|state| state.memory) {
            Some(memory) => PatternFigures::Burst(memory),
            None if self.dropped > 0 => PatternFigures::Cancel { dropped_receives: self.dropped },
            None => PatternFigures::None,
        };
        Ok((PartyReport { shares, of_pattern, lost, latency, ..report }, usage))
    }
}
