//! The loop of a sender on several connections in turn. Each connection has its own stream of messages.

use anyhow::Result;

use super::party::{Party, Start};
use super::step::{Action, Control, Ended, Finished, Step};
use crate::message::Generator;
use crate::pattern::TURN;

/// The state of a sender on several connections.
pub(super) struct TurnsLoop {
    /// The messages of each connection.
    pub(super) sources: Vec<Generator>,
    /// The connection that sends next.
    pub(super) turn: usize,
    party: Party,
    phase: Phase,
    /// The number of messages on all connections, without the end marks.
    sent: u64,
}

/// What a sender on several connections is doing.
#[derive(Clone, Copy)]
enum Phase {
    /// Sends a batch of this many messages.
    Sending {
        count: u64,
    },
    /// Sends the end mark on each connection.
    EndMarks,
    Over,
}

impl TurnsLoop {
    pub(super) fn new(start: Start) -> TurnsLoop {
        let sources = start.sources();
        TurnsLoop { sources, turn: 0, party: start.party, phase: Phase::Sending { count: 0 }, sent: 0 }
    }
}

impl Control for TurnsLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            Phase::Sending { count } => {
                // Whole turns, except the last.
                *count = self.party.meter.stride(self.sent).next_multiple_of(TURN).min(self.party.left(self.sent));
                Step::Act(Action::Batch(*count))
            }
            Phase::EndMarks => Step::Act(Action::Send),
            Phase::Over => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, _: Action, ended: Ended) -> Result<()> {
        ended.or_else(|stopped| self.party.tolerate(stopped))?;
        match self.phase {
            Phase::Sending { count } => {
                self.sent += count;
                let now_ns = self.party.meter.look(self.sent);
                let is_over =
                    self.party.share.map_or_else(|| self.party.meter.over(now_ns), |share| self.sent >= share);
                if is_over {
                    self.party.meter.end(self.sent);
                    self.sources.iter_mut().for_each(Generator::end);
                    self.phase = Phase::EndMarks;
                }
            }
            Phase::EndMarks | Phase::Over => self.phase = Phase::Over,
        }
        Ok(())
    }

    fn finish(self) -> Result<Finished> {
        Ok(self.party.report_sent(self.sent))
    }
}
