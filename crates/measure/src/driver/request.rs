//! The requesting loop of a round trip: sends a request and waits for the reply, over and over, and
//! records the times.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::party::{LoopSetup, Party};
use super::step::{Action, ActionResult, Control, PartyResult, Step};
use super::stream_ending::StreamEnding;
use crate::clock::{cost_ns, now_ns};
use crate::exchange::EXCHANGE;
use crate::latency_counts::{counts, histogram};
use crate::message::{Generator, Verifier};
use crate::protocol::{LatencyCounts, PartyReport};

/// A longer round trip may be interrupted by a pause.
const LONG_NS: u64 = 1_000_000;
/// A round trip is timed by itself if it takes at least this number of readings of the clock.
const CLOCKS_PER_SAMPLE: f64 = 20.0;

/// The state of a requesting party.
pub(super) struct RequestLoop {
    pub(super) source: Generator,
    pub(super) verifier: Verifier,
    party: Party,
    phase: RequestPhase,
    /// The cost of reading the clock.
    clock_ns: f64,
    /// How long round trips took.
    times: Histogram<u64>,
    /// How many round trips are timed together.
    batch: u64,
    /// The number of requests, without the end mark.
    sent: u64,
}

/// What a requesting party is doing.
enum RequestPhase {
    /// Makes round trips. The batch began at `began_ns`, after `before` requests.
    RoundTrips {
        began_ns: u64,
        before: u64,
    },
    /// Receives until the reply to the last request has come: replies to earlier ones came late.
    LateReplies {
        began_ns: u64,
        count: u64,
    },
    /// Ends its stream.
    Ending(StreamEnding),
    /// Waits for the other side's end mark.
    LastReply,
    /// A reply was damaged.
    Damaged,
    /// The end sent messages without taking them from the source, this many.
    Unfilled(u64),
    Over,
}

impl RequestLoop {
    pub(super) fn new(setup: LoopSetup) -> Result<RequestLoop> {
        let LoopSetup { party, source, verifier, .. } = setup;
        let phase = RequestPhase::RoundTrips { began_ns: 0, before: 0 };
        Ok(RequestLoop { source, verifier, party, phase, clock_ns: cost_ns(), times: histogram()?, batch: 1, sent: 0 })
    }

    /// Takes the result of a batch of round trips.
    fn made_round_trips(
        &mut self,
        began_ns: u64,
        before: u64,
        count: u64,
        result: ActionResult,
        now_ns: u64,
    ) -> Result<()> {
        if self.verifier.found_damage() {
            self.sent = before;
            self.phase = RequestPhase::Damaged;
            return Ok(());
        }
        let missing = (before + count).saturating_sub(self.source.made());
        if result.is_ok() && missing > 0 {
            self.sent = self.source.made();
            self.phase = RequestPhase::Unfilled(missing);
            return Ok(());
        }
        let is_replied = result.is_ok();
        result.or_else(|error| self.party.tolerate(error))?;
        if is_replied && self.party.lossy && self.is_reply_late() {
            self.phase = RequestPhase::LateReplies { began_ns, count };
            return Ok(());
        }
        self.note(now_ns, is_replied.then(|| (now_ns - began_ns, count)));
        Ok(())
    }

    /// Whether the reply to the last request has not come, but one to an earlier request has.
    fn is_reply_late(&self) -> bool {
        self.verifier.progress().any(|(next, _)| next < self.source.made())
    }

    /// Notes a batch: how long its round trips took and how many they were, if they were replied
    /// to. Then begins the next batch, or ends.
    ///
    /// Round trips during which the instance paused count only if they are so long that stopping
    /// and starting takes a small part of their time.
    fn note(&mut self, now_ns: u64, took: Option<(u64, u64)>) {
        let made = self.source.made();
        let (was_warming_up, was_closed) = (self.party.meter.is_warming_up(), self.party.meter.is_closed());
        let paused_ns = self.party.meter.check_clock_at(now_ns, made);
        let took = took.map(|(took_ns, count)| (took_ns.saturating_sub(paused_ns.unwrap_or(0)), count));
        let counts = |took_ns| !was_closed && (paused_ns.is_none() || took_ns > LONG_NS);
        if let Some((took_ns, count)) = took.filter(|(took_ns, _)| counts(*took_ns)) {
            self.times.saturating_record((took_ns / count.max(1)).max(1));
            self.party.meter.record_round_trips(took_ns, count);
        }
        if was_warming_up && !self.party.meter.is_warming_up() && !self.times.is_empty() {
            // The median of the warm-up: a lucky round trip says nothing about the others.
            let median_ns = self.times.value_at_quantile(0.5) as f64;
            self.batch = (CLOCKS_PER_SAMPLE * self.clock_ns / median_ns).ceil().max(1.0) as u64;
            self.times.reset();
        }
        if self.party.share.map_or_else(|| self.party.meter.is_closed(), |share| made >= share) {
            self.sent = made;
            self.party.meter.end(made);
            self.phase = RequestPhase::Ending(StreamEnding::with_mark(&mut self.source, self.party.lossy));
        } else {
            self.phase = RequestPhase::RoundTrips { began_ns: 0, before: made };
        }
    }
}

impl Control for RequestLoop {
    fn next(&mut self) -> Result<Step> {
        let step = match &mut self.phase {
            RequestPhase::RoundTrips { began_ns, before } => {
                *before = self.source.made();
                let count = self.batch.min(self.party.left(*before));
                *began_ns = now_ns();
                Step::Act(Action::Batch(count))
            }
            RequestPhase::LateReplies { .. } => Step::Act(Action::Receive),
            RequestPhase::Ending(ending) => match ending.next(&mut self.source) {
                Step::Done => {
                    EXCHANGE.requester.set(self.sent + 1, true);
                    self.phase = RequestPhase::LastReply;
                    return self.next();
                }
                step => step,
            },
            RequestPhase::LastReply if self.verifier.ended() => Step::Done,
            RequestPhase::LastReply => Step::Act(Action::Receive),
            RequestPhase::Damaged | RequestPhase::Unfilled(_) | RequestPhase::Over => Step::Done,
        };
        Ok(step)
    }

    fn handle(&mut self, action: Action, result: ActionResult) -> Result<()> {
        let now_ns = now_ns();
        match &mut self.phase {
            &mut RequestPhase::RoundTrips { began_ns, before } => {
                let Action::Batch(count) = action else { return Ok(()) };
                self.made_round_trips(began_ns, before, count, result, now_ns)
            }
            &mut RequestPhase::LateReplies { began_ns, count } => {
                let is_replied = result.is_ok();
                result.or_else(|error| self.party.tolerate(error))?;
                if !is_replied || !self.is_reply_late() {
                    self.note(now_ns, is_replied.then(|| (now_ns - began_ns, count)));
                }
                Ok(())
            }
            RequestPhase::Ending(ending) => ending.handle(result),
            RequestPhase::LastReply => {
                if let Err(error) = result {
                    self.party.tolerate(error).context("waiting for the last reply")?;
                    self.phase = RequestPhase::Over;
                }
                Ok(())
            }
            RequestPhase::Damaged | RequestPhase::Unfilled(_) | RequestPhase::Over => Ok(()),
        }
    }

    fn keeps_open(&self) -> bool {
        matches!(self.phase, RequestPhase::Damaged | RequestPhase::Unfilled(_))
    }

    fn finish(self) -> Result<PartyResult> {
        let latency = LatencyCounts { batch: self.batch, counts: counts(&self.times)? };
        let (mut report, usage) = self.party.report_received(self.sent, self.verifier);
        if let RequestPhase::Unfilled(messages) = self.phase {
            report.faults.damaged += messages;
            return Ok((report, usage));
        }
        Ok((PartyReport { latency: Some(latency), ..report }, usage))
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
    fn the_batch_of_a_ping_pong_follows_from_the_median_round_trip_of_the_warm_up() {
        let case: Case = serde_json::from_str(
            r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "ping-pong", "payload": "u64", "producers": 1,
                "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free"}}"#,
        )
        .unwrap();
        let window = Window::Count { warmup: 5, messages: 10 };
        let instance = InstanceSetup {
            case: &case,
            seed: 1,
            secret: 2,
            window,
            tail_ns: TAIL_NS,
            start_ns: 0,
            pauses: Pauses::default(),
            usage_party: None,
            memory: None,
            lossy: false,
            burst: None,
        };
        let setup = LoopSetup::new(&instance, Role::Producer(0));
        let mut control = RequestLoop { clock_ns: 25.0, ..RequestLoop::new(setup).unwrap() };
        let mut batches = Vec::new();
        // One round trip is lucky, and one is not.
        for (at_ns, took_ns) in (1..).zip([1, 400, 400, 400, 90_000]) {
            control.source.word();
            control.note(at_ns, Some((took_ns, 1)));
            assert!(matches!(control.phase, RequestPhase::RoundTrips { .. }));
            batches.push(control.batch);
        }
        assert_eq!(batches, [1, 1, 1, 1, 2], "20 readings of the clock are 500 ns");
        assert!(control.times.is_empty(), "the warm-up does not count");
    }
}
