//! The replying loop of a ping-pong: replies to every request, and to the end mark with its own end
//! mark.
//!
//! A reply has the number of its request. So where messages may be lost, the other side knows
//! whether a reply belongs to its last request or is a late one to an earlier request.

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
    phase: ReplyPhase,
    /// The number of replies, without the end mark.
    sent: u64,
}

/// What a replying party is doing.
enum ReplyPhase {
    /// Replies. The batch began after `before` replies.
    Replying {
        before: u64,
    },
    /// Waits for a request that may be lost.
    AwaitingRequest,
    /// Replies to it.
    Answering,
    Ending(StreamEnding),
    /// A request was damaged.
    Damaged,
}

impl ReplyLoop {
    pub(super) fn new(setup: LoopSetup) -> ReplyLoop {
        let LoopSetup { party, source, verifier, .. } = setup;
        let phase = if party.lossy { ReplyPhase::AwaitingRequest } else { ReplyPhase::Replying { before: 0 } };
        ReplyLoop { source, verifier, party, phase, sent: 0 }
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

    /// Takes a request that may be lost, or the time-out of waiting for it.
    fn received(&mut self, result: ActionResult) -> Result<()> {
        let has_received = result.is_ok();
        result.or_else(|error| self.party.tolerate(error))?;
        let made = self.source.made();
        if self.verifier.ended() || self.verifier.found_damage() {
            self.end(made);
            return Ok(());
        }
        let now_ns = self.party.meter.check_clock(made);
        if self.party.gives_up(now_ns, has_received) {
            self.end(made);
            return Ok(());
        }
        let last = self.verifier.progress().map(|(next, _)| next).max().unwrap_or(0).checked_sub(1);
        // Nobody waits for the reply to a request that comes after a later one.
        if let Some(lost) = last.filter(|_| has_received).and_then(|last| last.checked_sub(made)) {
            self.source.skip(lost);
            self.phase = ReplyPhase::Answering;
        }
        Ok(())
    }

    fn end(&mut self, made: u64) {
        self.sent = made;
        self.party.meter.end(made);
        self.phase = match self.verifier.found_damage() {
            true => ReplyPhase::Damaged,
            false => ReplyPhase::Ending(StreamEnding::with_mark(&mut self.source, self.party.lossy)),
        };
    }
}

impl Control for ReplyLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            ReplyPhase::Replying { before } => {
                *before = self.source.made();
                Step::Act(Action::Batch(self.party.meter.stride(*before)))
            }
            ReplyPhase::AwaitingRequest => Step::Act(Action::Receive),
            ReplyPhase::Answering => Step::Act(Action::Send),
            ReplyPhase::Ending(ending) => ending.next(&mut self.source),
            ReplyPhase::Damaged => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, _: Action, result: ActionResult) -> Result<()> {
        match &mut self.phase {
            &mut ReplyPhase::Replying { before } => self.replied(before, result),
            ReplyPhase::AwaitingRequest => self.received(result),
            ReplyPhase::Answering => {
                self.phase = ReplyPhase::AwaitingRequest;
                result.or_else(|error| self.party.tolerate(error))
            }
            ReplyPhase::Ending(ending) => ending.handle(result),
            ReplyPhase::Damaged => Ok(()),
        }
    }

    fn keeps_open(&self) -> bool {
        matches!(self.phase, ReplyPhase::Damaged)
    }

    fn finish(self) -> Result<PartyResult> {
        Ok(self.party.report_received(self.sent, self.verifier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, Role};
    use crate::driver::party::InstanceSetup;
    use crate::pauses::Pauses;
    use crate::window::{TAIL_NS, Window};

    #[test]
    fn a_reply_has_the_number_of_its_request_after_requests_that_were_lost() {
        let case: Case = serde_json::from_str(
            r#"{"mechanism": "network/x", "cell": {"scope": "network", "pattern": "ping-pong", "payload": "u64",
                "producers": 1, "capacity": 1, "runtime": "thread", "wait": "block", "place": "other-host"}}"#,
        )
        .unwrap();
        let instance = InstanceSetup {
            case: &case,
            seed: 1,
            secret: 2,
            window: Window::Count { warmup: 0, messages: 1000 },
            tail_ns: TAIL_NS,
            start_ns: 0,
            pauses: Pauses::default(),
            usage_party: None,
            memory: None,
            lossy: true,
            burst: None,
        };
        let mut requester = LoopSetup::new(&instance, Role::Producer(0));
        let mut control = ReplyLoop::new(LoopSetup::new(&instance, Role::Consumer(0)));
        let requests: Vec<u64> = (0..6).map(|_| requester.source.word()).collect();
        // The second and the fourth are lost. The fifth comes after the sixth, and nobody waits for a reply to it.
        for (request, reply) in [(0, Some(1)), (2, Some(3)), (5, Some(6)), (4, None)] {
            assert!(matches!(control.next().unwrap(), Step::Act(Action::Receive)));
            control.verifier.word(requests[request]);
            control.handle(Action::Receive, Ok(())).unwrap();
            if let Some(next) = reply {
                assert!(matches!(control.next().unwrap(), Step::Act(Action::Send)));
                requester.verifier.word(control.source.word());
                control.handle(Action::Send, Ok(())).unwrap();
                assert_eq!(requester.verifier.progress().map(|(next, _)| next).max(), Some(next));
            }
        }
        assert!(matches!(control.next().unwrap(), Step::Act(Action::Receive)));
        assert_eq!(requester.verifier.received(), 3);
        assert!(!requester.verifier.found_damage() && !control.verifier.found_damage());
    }
}
