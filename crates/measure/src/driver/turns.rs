//! The loop of a sender on several connections in turn. Each connection has its own stream of
//! messages.

use anyhow::Result;

use super::party::{LoopSetup, Party};
use super::step::{Action, ActionResult, Control, PartyResult, Step};
use crate::message::Generator;
use crate::pattern::TURN;

/// The state of a sender on several connections.
pub(super) struct TurnsLoop {
    /// The messages of each connection.
    pub(super) sources: Vec<Generator>,
    /// The connection that sends next.
    pub(super) turn: usize,
    party: Party,
    phase: TurnsPhase,
    /// The number of messages on all connections, without the end marks.
    sent: u64,
}

/// What a sender on several connections is doing.
#[derive(Clone, Copy)]
enum TurnsPhase {
    /// Sends messages.
    Sending,
    /// Sends the end mark on each connection.
    EndMarks,
    Over,
}

impl TurnsLoop {
    pub(super) fn new(setup: LoopSetup) -> TurnsLoop {
        let sources = setup.sources();
        TurnsLoop { sources, turn: 0, party: setup.party, phase: TurnsPhase::Sending, sent: 0 }
    }
}

impl Control for TurnsLoop {
    fn next(&mut self) -> Result<Step> {
        Ok(match self.phase {
            TurnsPhase::Sending => {
                // Whole turns, except the last.
                let whole_turns = self.party.meter.stride(self.sent).next_multiple_of(TURN);
                Step::Act(Action::Batch(whole_turns.min(self.party.left(self.sent))))
            }
            TurnsPhase::EndMarks => Step::Act(Action::Send),
            TurnsPhase::Over => Step::Done,
        })
    }

    fn handle(&mut self, action: Action, result: ActionResult) -> Result<()> {
        result.or_else(|error| self.party.tolerate(error))?;
        let Action::Batch(count) = action else {
            self.phase = TurnsPhase::Over;
            return Ok(());
        };
        self.sent += count;
        let now_ns = self.party.meter.check_clock(self.sent);
        if self.party.share.map_or_else(|| self.party.meter.may_stop_sending(now_ns), |share| self.sent >= share) {
            self.party.meter.end(self.sent);
            self.sources.iter_mut().for_each(Generator::end);
            self.phase = TurnsPhase::EndMarks;
        }
        Ok(())
    }

    fn finish(self) -> Result<PartyResult> {
        Ok(self.party.report_sent(self.sent))
    }
}
