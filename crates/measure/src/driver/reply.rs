//! The replying loop of a ping-pong: replies to every request, and to the end mark with its own end mark.

use anyhow::Result;

use super::party::{LoopSetup, Party};
use super::step::{Action, ActionResult, Control, PartyResult, Step};
use super::stream_ending::StreamEnding;
use crate::message::{Generator, Verifier};

/// The state of a replying party.
pub(super) struct ReplyLoop {
    pub(super) source: Generator,
    pub(super) verifier: Verifier,
    party: Party,
    phase: Phase,
    /// The number of replies, without the end mark.
    sent: u64,
}

/// What a replying party is doing.
enum Phase {
    /// Replies. The batch began after `before` replies.
    Replying {
        before: u64,
    },
    Ending(StreamEnding),
    /// A request was damaged.
    Damaged,
}

impl ReplyLoop {
    pub(super) fn new(setup: LoopSetup) -> ReplyLoop {
        let LoopSetup { party, source, verifier, .. } = setup;
        ReplyLoop { source, verifier, party, phase: Phase::Replying { before: 0 }, sent: 0 }
    }

    /// Takes the result of a batch of replies.
    fn replied(&mut self, before: u64, result: ActionResult) -> Result<()> {
        result.or_else(|error| self.party.tolerate(error))?;
        let made = self.source.made();
        if self.verifier.ended() {
            self.end(made);
            return Ok(());
        }
        let now_ns = self.party.meter.check_clock(made);
        if self.party.gives_up(now_ns, made > before) {
            self.end(made);
        }
        Ok(())
    }

    fn end(&mut self, made: u64) {
        self.sent = made;
        self.party.meter.end(made);
        self.phase = match self.verifier.found_damage() {
            true => Phase::Damaged,
            false => Phase::Ending(StreamEnding::with_mark(&mut self.source, self.party.lossy)),
        };
    }
}

impl Control for ReplyLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            Phase::Replying { before } => {
                *before = self.source.made();
                Step::Act(Action::Batch(self.party.meter.stride(*before)))
            }
            Phase::Ending(ending) => ending.next(&mut self.source),
            Phase::Damaged => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, _: Action, result: ActionResult) -> Result<()> {
        match &mut self.phase {
            &mut Phase::Replying { before } => self.replied(before, result),
            Phase::Ending(ending) => ending.handle(result),
            Phase::Damaged => Ok(()),
        }
    }

    fn keeps_open(&self) -> bool {
        matches!(self.phase, Phase::Damaged)
    }

    fn finish(self) -> Result<PartyResult> {
        Ok(self.party.report_received(self.sent, self.verifier))
    }
}
