//! The loop of a producer: sends until the time is over or its share is sent.

use std::io::ErrorKind;

use anyhow::{Context, Result};

use super::party::{LoopSetup, Party, stream};
use super::step::{Action, ActionResult, Control, PartyResult, Step, Waiting};
use super::stream_ending::{StreamEnding, without_side};
use crate::burst_memory::{BURST_POLL, SharedBurst};
use crate::message::Generator;
use crate::pace::Pacer;
use crate::pattern::StreamEnd;
use crate::protocol::PartyReport;
use crate::schedule::Schedule;

/// The state of a producer.
pub(super) struct SendLoop {
    pub(super) source: Generator,
    party: Party,
    open_loop: Option<OpenLoop>,
    /// The rate of a lossy mechanism.
    pacer: Option<Pacer>,
    burst: Option<SharedBurst>,
    stream_end: StreamEnd,
    phase: SendPhase,
    /// The number of messages, without the end mark.
    sent: u64,
}

/// What a producer is doing.
enum SendPhase {
    /// Sends as fast as it can, or when messages are due. The batch began after `before` messages.
    Sending { before: u64 },
    /// Sends at the rate of the pacer. This many messages are left until the next reading of the
    /// clock.
    Paced { left: u64 },
    /// Flushes before the pacer learns how many messages have arrived. The clock was read at
    /// `now_ns`.
    PacedFlush { now_ns: u64 },
    /// Keeps the channel open until the consumer has received the burst and measured its memory.
    WaitingForConsumer,
    /// Ends the stream.
    Ending(StreamEnding),
    /// The end sent messages without taking them from the source, this many.
    Unfilled(u64),
}

impl SendLoop {
    pub(super) fn new(setup: LoopSetup) -> SendLoop {
        let stream_end = setup.stream_end();
        let LoopSetup { party, source, schedule, burst, pacer, .. } = setup;
        let open_loop = schedule.map(|schedule| OpenLoop::new(schedule, stream(party.role)));
        let phase = if pacer.is_some() { SendPhase::Paced { left: 0 } } else { SendPhase::Sending { before: 0 } };
        SendLoop { source, party, open_loop, pacer, burst, stream_end, phase, sent: 0 }
    }

    /// Whether all messages are sent, at this time.
    fn is_over(&self, now_ns: u64) -> bool {
        let made = self.source.made();
        self.party.share.map_or_else(
            || self.open_loop.is_none() && self.party.meter.may_stop_sending(now_ns),
            |share| made >= share,
        )
    }

    /// Closes the window after the last message.
    fn end(&mut self) {
        self.sent = self.source.made();
        self.party.meter.end(self.sent);
        self.phase = match &self.burst {
            Some(burst) => {
                burst.set_sent();
                SendPhase::WaitingForConsumer
            }
            None => SendPhase::Ending(self.ending()),
        };
    }

    fn ending(&mut self) -> StreamEnding {
        match self.stream_end {
            StreamEnd::Close => StreamEnding::Flush,
            StreamEnd::Mark => StreamEnding::with_mark(&mut self.source, self.party.lossy),
        }
    }

    /// The next step of a producer that sends as fast as it can, or when messages are due.
    fn next_batch(&mut self) -> Step {
        let before = self.source.made();
        self.phase = SendPhase::Sending { before };
        let Some(open_loop) = &mut self.open_loop else {
            return Step::Act(Action::Batch(self.party.batch(before)));
        };
        match open_loop.next(before) {
            Due::Now => Step::Act(Action::Batch(1)),
            // Every message that is due in the window is sent, even if the mechanism is late.
            Due::At(due_ns) if self.party.share.is_some() || !self.party.meter.may_stop_sending(due_ns) => {
                Step::Wait(Waiting::Until(due_ns))
            }
            Due::At(_) => {
                self.end();
                self.next_after_last()
            }
        }
    }

    /// The next step of a producer that has sent its last message.
    fn next_after_last(&mut self) -> Step {
        if let SendPhase::WaitingForConsumer = self.phase {
            if self.burst.as_ref().is_some_and(|burst| !burst.is_received()) {
                return Step::Wait(Waiting::About(BURST_POLL));
            }
            self.phase = SendPhase::Ending(self.ending());
        }
        match &mut self.phase {
            SendPhase::Ending(ending) => ending.next(&mut self.source),
            _ => Step::Done,
        }
    }

    /// Takes the result of a batch.
    fn sent_batch(&mut self, before: u64, count: u64, result: ActionResult) -> Result<()> {
        let made = self.source.made();
        let missing = (before + count).saturating_sub(made);
        if result.is_ok() && missing > 0 {
            self.sent = made;
            self.phase = SendPhase::Unfilled(missing);
            return Ok(());
        }
        if self.is_refused(&result) {
            self.end();
            return Ok(());
        }
        result.or_else(|error| self.party.tolerate(error))?;
        let now_ns = self.party.meter.check_clock(made);
        if self.is_over(now_ns) {
            self.end();
        }
        Ok(())
    }

    /// Takes the result of the last message of a paced batch, or of one that failed.
    fn sent_paced(&mut self, result: ActionResult) -> Result<()> {
        if self.is_refused(&result) {
            self.end();
            return Ok(());
        }
        without_side(result).context("sending")?;
        let now_ns = self.party.meter.check_clock(self.source.made());
        if self.pacer.as_ref().is_some_and(|pacer| pacer.slice_is_over(now_ns)) {
            self.phase = SendPhase::PacedFlush { now_ns };
        } else {
            self.continue_paced(now_ns);
        }
        Ok(())
    }

    /// Takes the result of the flush at the end of a pacer's slice.
    fn flushed_paced(&mut self, now_ns: u64, result: ActionResult) -> Result<()> {
        if self.is_refused(&result) {
            self.end();
            return Ok(());
        }
        without_side(result).context("sending")?;
        if let Some(pacer) = &mut self.pacer {
            pacer.update(now_ns, self.source.made(), self.party.meter.warm_up_left_ns(now_ns))?;
        }
        self.continue_paced(now_ns);
        Ok(())
    }

    fn continue_paced(&mut self, now_ns: u64) {
        self.phase = SendPhase::Paced { left: 0 };
        if self.is_over(now_ns) {
            self.end();
        }
    }

    /// Whether a lossy mechanism's consumer has closed because the time is over. With many
    /// producers on few cores, some still send then.
    fn is_refused(&self, result: &ActionResult) -> bool {
        let is_refused = matches!(result, Err(error) if error.error().kind() == ErrorKind::ConnectionRefused);
        is_refused && self.party.lossy && self.party.meter.may_stop_sending(self.party.meter.now())
    }
}

impl Control for SendLoop {
    fn next(&mut self) -> Result<Step> {
        Ok(match &mut self.phase {
            SendPhase::Sending { .. } => self.next_batch(),
            SendPhase::Paced { left } => {
                if *left == 0 {
                    *left = self.party.batch(self.source.made());
                }
                if let Some(pacer) = &mut self.pacer {
                    pacer.wait();
                }
                Step::Act(Action::Send)
            }
            SendPhase::PacedFlush { .. } => Step::Act(Action::Flush),
            SendPhase::WaitingForConsumer | SendPhase::Ending(_) | SendPhase::Unfilled(_) => self.next_after_last(),
        })
    }

    fn handle(&mut self, action: Action, result: ActionResult) -> Result<()> {
        match &mut self.phase {
            SendPhase::Paced { left } if *left > 1 && result.is_ok() => {
                *left -= 1;
                Ok(())
            }
            SendPhase::Paced { .. } => self.sent_paced(result),
            &mut SendPhase::Sending { before } => {
                let Action::Batch(count) = action else { return Ok(()) };
                self.sent_batch(before, count, result)
            }
            &mut SendPhase::PacedFlush { now_ns } => self.flushed_paced(now_ns, result),
            SendPhase::Ending(ending) => ending.handle(result),
            SendPhase::WaitingForConsumer | SendPhase::Unfilled(_) => Ok(()),
        }
    }

    fn waited(&mut self, now_ns: Option<u64>) {
        if let (SendPhase::Sending { .. }, Some(open_loop)) = (&self.phase, &mut self.open_loop) {
            open_loop.waited(now_ns);
        }
    }

    fn keeps_open(&self) -> bool {
        matches!(self.phase, SendPhase::Unfilled(_))
    }

    fn finish(self) -> Result<PartyResult> {
        let (mut report, usage) = self.party.report_sent(self.sent);
        // Whatever arrived was not what was to be sent.
        if let SendPhase::Unfilled(messages) = self.phase {
            report.faults.damaged += messages;
        }
        let late = self.open_loop.map_or(0, |open_loop| open_loop.late);
        Ok((PartyReport { late, ..report }, usage))
    }
}

/// The messages of an open loop: when the next one is due, and how many were late before they were
/// sent.
struct OpenLoop {
    schedule: Schedule,
    producer: usize,
    /// When the next message is due, if the loop waits for it or has waited.
    next_due_ns: Option<u64>,
    late: u64,
    /// Messages that were due before this time are late.
    late_until_ns: u64,
}

/// When the next message of an open loop is to be sent.
enum Due {
    /// Now: the wait for it is over.
    Now,
    /// At this time.
    At(u64),
}

impl OpenLoop {
    fn new(schedule: Schedule, producer: usize) -> OpenLoop {
        OpenLoop { schedule, producer, next_due_ns: None, late: 0, late_until_ns: 0 }
    }

    /// When the message after `made` messages is to be sent.
    fn next(&mut self, made: u64) -> Due {
        if self.next_due_ns.take().is_some() {
            return Due::Now;
        }
        let due_ns = self.schedule.due_ns(self.producer, made);
        self.next_due_ns = Some(due_ns);
        Due::At(due_ns)
    }

    /// Notes whether the message is late, and until when the next ones are. `None`: it was due
    /// before the wait began, because the mechanism took long to send the one before. That is
    /// latency, and not this loop's fault.
    fn waited(&mut self, now_ns: Option<u64>) {
        let Some(due_ns) = self.next_due_ns else { return };
        if let Some(now_ns) = now_ns.filter(|now_ns| self.schedule.is_late(*now_ns, due_ns)) {
            self.late_until_ns = now_ns;
        }
        self.late += u64::from(due_ns < self.late_until_ns);
    }
}
