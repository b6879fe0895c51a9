//! The loop of a server of several clients: replies to every request and every end mark, until all
//! clients have sent their end mark.

use anyhow::{Context, Result};

use super::party::{LoopSetup, Party};
use super::receive::ReceivedOfEach;
use super::step::{Action, ActionResult, Control, PartyResult, Step};
use super::stream_ending::without_side;
use crate::message::{Generator, Verifier};
use crate::protocol::PartyReport;

/// The state of a server.
pub(super) struct ServeLoop {
    /// The replies to each client.
    pub(super) sources: Vec<Generator>,
    pub(super) verifier: Verifier,
    party: Party,
    phase: ServePhase,
    received: ReceivedOfEach,
}

/// What a server is doing.
#[derive(Clone, Copy)]
enum ServePhase {
    /// Replies. The batch began after `before` requests.
    Serving {
        before: u64,
    },
    /// Flushes the last replies.
    Flushing,
    Over,
}

impl ServeLoop {
    pub(super) fn new(setup: LoopSetup) -> ServeLoop {
        let sources = setup.sources();
        let LoopSetup { party, verifier, .. } = setup;
        let phase = ServePhase::Serving { before: 0 };
        ServeLoop { sources, verifier, party, phase, received: ReceivedOfEach::default() }
    }

    /// Takes the result of a batch of replies.
    fn served(&mut self, before: u64, result: ActionResult) -> Result<()> {
        result.or_else(|error| self.party.tolerate(error))?;
        if self.verifier.ended() {
            self.end();
            return Ok(());
        }
        let now_ns = self.received.check_clock(&mut self.party, &self.verifier);
        if self.party.gives_up(now_ns, self.verifier.received() > before) {
            self.end();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.received.close(&mut self.party, &self.verifier);
        self.phase = if self.verifier.found_damage() { ServePhase::Over } else { ServePhase::Flushing };
    }
}

impl Control for ServeLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            ServePhase::Serving { before } => {
                *before = self.verifier.received();
                Step::Act(Action::Batch(self.party.meter.stride(*before)))
            }
            ServePhase::Flushing => Step::Act(Action::Flush),
            ServePhase::Over => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, _: Action, result: ActionResult) -> Result<()> {
        match self.phase {
            ServePhase::Serving { before } => self.served(before, result),
            ServePhase::Flushing | ServePhase::Over => {
                self.phase = ServePhase::Over;
                without_side(result).context("flushing")
            }
        }
    }

    fn keeps_open(&self) -> bool {
        self.verifier.found_damage()
    }

    fn finish(self) -> Result<PartyResult> {
        let (served, shares) = (self.verifier.received(), self.received.within());
        let (report, usage) = self.party.report_received(served, self.verifier);
        Ok((PartyReport { shares, ..report }, usage))
    }
}
