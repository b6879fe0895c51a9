//! The loop of a producer: sends until the time is over or its share is sent.

use std::io::ErrorKind;

use anyhow::{Context, Result};

use super::end_marks::{Ending, sent};
use super::party::{Party, Start, stream};
use super::step::{Action, Control, Ended, Finished, Step, Waiting};
use crate::burst::{BURST_POLL, Burst};
use crate::message::Generator;
use crate::pace::Pacer;
use crate::pattern::StreamEnd;
use crate::protocol::PartyReport;
use crate::schedule::Schedule;

/// The state of a producer.
pub(super) struct SendLoop {
    pub(super) source: Generator,
    party: Party,
    schedule: Option<OpenLoop>,
    burst: Option<Burst>,
    stream_end: StreamEnd,
    phase: Phase,
    /// The number of messages, without the end mark.
    sent: u64,
}

/// What a producer is doing.
enum Phase {
    /// Sends as fast as it can, or when messages are due. After the batch, this many messages must have left the source.
    Sending { expected: u64 },
    /// Sends at the rate of a pacer. This many messages are left until the next reading of the clock.
    Paced { pacer: Box<Pacer>, left: u64 },
    /// Flushes before the pacer learns how many messages have arrived. The clock was read at `now_ns`.
    PacedFlush { pacer: Box<Pacer>, now_ns: u64 },
    /// Keeps the channel open until the consumer has measured its memory.
    Full,
    /// Ends the stream.
    Ending(Ending),
    /// The end sent messages without taking them from the source, this many.
    Unfilled(u64),
}

impl SendLoop {
    pub(super) fn new(mut start: Start) -> SendLoop {
        let phase = match start.pacer.take() {
            Some(pacer) => Phase::Paced { pacer: Box::new(pacer), left: 0 },
            None => Phase::Sending { expected: 0 },
        };
        let schedule = start.schedule.take().map(|schedule| OpenLoop::new(schedule, stream(start.party.role)));
        let stream_end = start.stream_end();
        let Start { party, source, burst, .. } = start;
        SendLoop { source, party, schedule, burst, stream_end, phase, sent: 0 }
    }

    /// The next message of an open loop, or the wait for it. `None` if no more are due in the window.
    fn next_due(&mut self) -> Option<Step> {
        let schedule = self.schedule.as_mut()?;
        if schedule.is_waiting {
            schedule.is_waiting = false;
            return Some(Step::Act(Action::Batch(1)));
        }
        let due_ns = schedule.due_ns(self.source.made());
        // Every message that is due in the window is sent, even if the mechanism is late.
        if self.party.share.is_none() && self.party.meter.over(due_ns) {
            return None;
        }
        schedule.is_waiting = true;
        Some(Step::Wait(Waiting::Until(due_ns)))
    }

    /// Whether all messages are sent, at this time.
    fn is_over(&self, now_ns: u64) -> bool {
        let made = self.source.made();
        self.party.share.map_or_else(|| self.schedule.is_none() && self.party.meter.over(now_ns), |share| made >= share)
    }

    /// Closes the window after the last message.
    fn end(&mut self) {
        self.sent = self.source.made();
        self.party.meter.end(self.sent);
        self.phase = match &self.burst {
            Some(burst) => {
                burst.set_sent();
                Phase::Full
            }
            None => Phase::Ending(self.ending()),
        };
    }

    fn ending(&mut self) -> Ending {
        match self.stream_end {
            StreamEnd::Close => Ending::Flush,
            StreamEnd::Mark => Ending::with_mark(&mut self.source, self.party.lossy),
        }
    }

    /// Takes the result of a batch.
    fn sent_batch(&mut self, expected: u64, ended: Ended) -> Result<()> {
        let made = self.source.made();
        if ended.is_ok() && made < expected {
            self.sent = made;
            self.phase = Phase::Unfilled(expected - made);
            return Ok(());
        }
        ended.or_else(|stopped| self.party.tolerate(stopped))?;
        let now_ns = self.party.meter.look(made);
        if self.is_over(now_ns) {
            self.end();
        }
        Ok(())
    }

    /// Whether a lossy mechanism's consumer has closed because the time is over. With many producers on few cores, some still send then.
    fn is_refused(&self, ended: &Ended) -> bool {
        let is_refused = matches!(ended, Err(stopped) if stopped.error().kind() == ErrorKind::ConnectionRefused);
        is_refused && self.party.meter.over(self.party.meter.now())
    }

    /// Takes the result of a message that the pacer allowed.
    fn sent_paced(&mut self, pacer: Box<Pacer>, left: u64, ended: Ended) -> Result<()> {
        if self.is_refused(&ended) {
            self.end();
            return Ok(());
        }
        sent(ended).context("sending")?;
        if left > 0 {
            self.phase = Phase::Paced { pacer, left };
            return Ok(());
        }
        let now_ns = self.party.meter.look(self.source.made());
        if pacer.slice_is_over(now_ns) {
            self.phase = Phase::PacedFlush { pacer, now_ns };
            return Ok(());
        }
        self.continue_paced(pacer, now_ns);
        Ok(())
    }

    fn continue_paced(&mut self, pacer: Box<Pacer>, now_ns: u64) {
        self.phase = Phase::Paced { pacer, left: 0 };
        if self.is_over(now_ns) {
            self.end();
        }
    }
}

impl Control for SendLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            Phase::Sending { .. } if self.schedule.is_some() => match self.next_due() {
                Some(step) => {
                    self.phase = Phase::Sending { expected: self.source.made() + 1 };
                    step
                }
                None => {
                    self.end();
                    return self.next();
                }
            },
            Phase::Sending { expected } => {
                let before = self.source.made();
                let count = self.party.batch(before);
                *expected = before + count;
                Step::Act(Action::Batch(count))
            }
            Phase::Paced { pacer, left } => {
                if *left == 0 {
                    *left = self.party.batch(self.source.made());
                }
                pacer.wait();
                Step::Act(Action::Send)
            }
            Phase::PacedFlush { .. } => Step::Act(Action::Flush),
            Phase::Full => {
                if !self.burst.as_ref().is_none_or(Burst::is_received) {
                    return Ok(Step::Wait(Waiting::About(BURST_POLL)));
                }
                self.phase = Phase::Ending(self.ending());
                return self.next();
            }
            Phase::Ending(ending) => ending.next(&mut self.source),
            Phase::Unfilled(_) => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, _: Action, ended: Ended) -> Result<()> {
        match std::mem::replace(&mut self.phase, Phase::Full) {
            Phase::Sending { expected } => {
                self.phase = Phase::Sending { expected };
                self.sent_batch(expected, ended)
            }
            Phase::Paced { pacer, left } => self.sent_paced(pacer, left.saturating_sub(1), ended),
            Phase::PacedFlush { mut pacer, now_ns } => {
                if self.is_refused(&ended) {
                    self.end();
                    return Ok(());
                }
                sent(ended).context("sending")?;
                pacer.look(now_ns, self.source.made(), self.party.meter.warming_up());
                self.continue_paced(pacer, now_ns);
                Ok(())
            }
            Phase::Ending(mut ending) => {
                let handled = ending.handle(ended);
                self.phase = Phase::Ending(ending);
                handled
            }
            phase @ (Phase::Full | Phase::Unfilled(_)) => {
                self.phase = phase;
                Ok(())
            }
        }
    }

    fn waited(&mut self, now_ns: u64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.waited(now_ns);
        }
    }

    fn keeps_open(&self) -> bool {
        matches!(self.phase, Phase::Unfilled(_))
    }

    fn finish(self) -> Result<Finished> {
        let (mut report, usage) = self.party.report_sent(self.sent);
        // Whatever arrived was not what was to be sent.
        if let Phase::Unfilled(messages) = self.phase {
            report.faults.damaged += messages;
        }
        let late = self.schedule.map_or(0, |schedule| schedule.late);
        Ok((PartyReport { late, ..report }, usage))
    }
}

/// The messages of an open loop: when the next one is due, and how many were late before they were sent.
struct OpenLoop {
    schedule: Schedule,
    producer: usize,
    /// Whether the wait for the next message is over or under way.
    is_waiting: bool,
    due_ns: u64,
    /// When the wait began.
    began_ns: u64,
    late: u64,
    /// Messages that were due before this time are late.
    late_until_ns: u64,
}

impl OpenLoop {
    fn new(schedule: Schedule, producer: usize) -> OpenLoop {
        OpenLoop { schedule, producer, is_waiting: false, due_ns: 0, began_ns: 0, late: 0, late_until_ns: 0 }
    }

    /// When the next message is due, after `made` messages.
    fn due_ns(&mut self, made: u64) -> u64 {
        self.began_ns = crate::clock::now_ns();
        self.due_ns = self.schedule.due_ns(self.producer, made);
        self.due_ns
    }

    /// Notes whether the message is late, and until when the next ones are.
    fn waited(&mut self, now_ns: u64) {
        if !self.is_waiting {
            return;
        }
        if self.began_ns < self.due_ns && self.schedule.is_late(now_ns, self.due_ns) {
            self.late_until_ns = now_ns;
        }
        self.late += u64::from(self.due_ns < self.late_until_ns);
    }
}
