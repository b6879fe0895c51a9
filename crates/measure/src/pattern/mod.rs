//! Patterns: who sends to whom, and what follows from it.
//!
//! Each pattern is one file. It implements `Rules`, whose default methods describe a stream of one producer to one consumer; a file has
//! only what differs from that. To add a pattern, add a file here, a variant to [`Pattern`] with its name, and a line to
//! `Pattern::rules`; the compiler asks for each.

mod assignment;
mod burst;
mod cancel;
mod codec;
mod connections;
mod duplex;
mod fan_in;
mod merge;
mod mpmc;
mod ping_pong;
mod pipeline;
mod pub_sub;
mod request_reply;
mod same_thread;
mod stream;
mod writers;

use anyhow::Result;

pub(crate) use self::assignment::{LoopKind, LoopPlan, Opened};
pub use self::burst::BURST;
pub use self::connections::TURN;
use crate::bound::{Bound, Cost, Costs};
use crate::case::{Case, Cell, Pattern, Place, Role};
use crate::message::{Faults, StreamCount, Verifier};
use crate::refusal::Inadmissible;
use crate::spec::{Scope, Spec};
use crate::window::Window;

/// What distinguishes a pattern. The default methods describe a stream of one producer to one consumer.
pub(crate) trait Rules: Sync {
    // Its words.

    /// The subject of a sentence about a result: `a round trip takes 5 us`.
    fn result(&self) -> &'static str;

    // Its parties.

    /// Whether the user chooses a number of parties on one side.
    fn has_several_parties(&self) -> bool {
        false
    }

    /// Whether messages go in both directions, so each side has a sending and a receiving end.
    fn is_bidirectional(&self) -> bool {
        false
    }

    /// The number of message streams.
    fn streams(&self, cell: &Cell) -> usize {
        cell.producers
    }

    /// The number of loops that send.
    fn senders(&self, cell: &Cell) -> usize {
        self.streams(cell)
    }

    /// The number of loops that receive.
    fn consumers(&self, _: &Cell) -> usize {
        1
    }

    /// The number of producers whose messages one receiver gets.
    fn producers_per_receiver(&self, cell: &Cell) -> usize {
        cell.producers
    }

    /// Where its parties run.
    fn layout(&self) -> Layout {
        Layout::Separate
    }

    /// The number of producer processes and of consumer processes, in a scope between processes.
    fn processes(&self, cell: &Cell) -> (usize, usize) {
        (self.senders(cell), self.consumers(cell))
    }

    /// What a party does with the ends that the mechanism opened for it. A party may do several things, or share a task with others.
    ///
    /// # Errors
    /// When a party lacks an end.
    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        assignment::one_way(pattern, parties)
    }

    /// Whether a process of this role has an end for each producer, and so may need more file descriptors than usual.
    fn opens_end_per_producer(&self, _: Role) -> bool {
        false
    }

    // The defaults of its cells.

    /// The number of producers, if the user does not choose it.
    fn default_producers(&self, _: Scope) -> usize {
        1
    }

    /// The capacity in messages, if the user does not choose it.
    fn default_capacity(&self) -> usize {
        Cell::CAPACITY
    }

    /// The cores of processes or threads, if the user does not choose them.
    fn default_place(&self) -> Place {
        match self.layout() {
            // A single thread runs on one core.
            Layout::OneThread => Place::SameCore,
            // The processes of a pipeline are not pinned.
            Layout::Pipeline => Place::Free,
            Layout::Separate | Layout::OneSender => Place::OtherCore,
        }
    }

    // Its loops.

    /// The window of an instance, if the run's window is `window`.
    fn window(&self, window: Window) -> Window {
        window
    }

    /// How a stream ends.
    fn stream_end(&self) -> StreamEnd {
        StreamEnd::Mark
    }

    /// The verifier of a party: it expects the messages of every stream.
    fn verifier(&self, seed: u64, case: &Case, _: Role) -> Verifier {
        Verifier::new(seed, self.streams(case), case.payload.len())
    }

    /// Whether several consumers compete for the messages of a stream.
    fn consumers_compete(&self) -> bool {
        false
    }

    /// Whether the consumer drops every receive that is not ready at once.
    fn drops_receives(&self) -> bool {
        false
    }

    /// Whether all messages are sent before the first is received, and memory is measured.
    fn fills_before_receiving(&self) -> bool {
        false
    }

    /// Whether an instance can pause between two messages, so that it can be measured in slices.
    fn can_pause(&self) -> bool {
        true
    }

    // Its result.

    /// What the result is.
    fn metric(&self) -> Metric {
        Metric::Throughput
    }

    /// The party whose window and messages are the result.
    fn lead(&self) -> ResultParty {
        ResultParty::Consumer
    }

    /// The number of consumers that each receive every message.
    fn copies(&self, _: &Cell) -> usize {
        1
    }

    /// Whether a lost message is no breach of the mechanism's promise.
    fn excuses_loss(&self, _: &Spec) -> bool {
        false
    }

    /// Whether a consumer's count of a stream belongs to the messages that this producer has sent.
    fn is_of_producer(&self, count: &StreamCount, producer: usize) -> bool {
        count.producer == producer
    }

    /// The faults of the messages that `producer` has sent, compared with the consumers' counts.
    fn account(&self, producer: usize, sent: u64, counts: &[&StreamCount]) -> Faults {
        let _ = producer;
        sent_against_received(sent, counts)
    }

    // Its limits.

    /// Checks whether a mechanism can run a case of this pattern, beyond what holds for all patterns.
    ///
    /// # Errors
    /// Why it cannot.
    fn admit(&self, spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
        let _ = (spec, case);
        Ok(())
    }

    /// Whether messages can be due at set times.
    fn has_open_loop(&self) -> bool {
        false
    }

    /// The least time that the machine allows.
    fn bound(&self, costs: &Costs) -> Option<Bound> {
        Bound::of([self.handling(costs), costs.link_rate()])
    }

    /// What filling and checking a message costs at least. `None` if that cannot be said.
    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        if costs.is_one_core() { costs.fill_and_check() } else { costs.fill_or_check() }
    }
}

/// Where the parties of a pattern run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each party can be a process of its own.
    Separate,
    /// One process has all senders.
    OneSender,
    /// One thread has all parties.
    OneThread,
    /// Those of a pipeline: the mechanism decides.
    Pipeline,
}

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// With an end mark, which says how many messages there were.
    Mark,
    /// When every producer has closed: an end mark would reach one of several consumers, or be lost.
    Close,
}

/// What the result of a pattern is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The time of a round trip: a sender waits for each reply, or for its own message.
    RoundTrip,
    /// The time per message of a stream.
    Throughput,
    /// Something other than speed. Mechanisms are not ranked.
    NotRanked,
}

/// The party whose window and messages are the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultParty {
    /// The one that records round-trip times.
    Requester,
    /// Of several consumers, the one that received most.
    Consumer,
    /// The consumer that received the last message, and so has the time.
    LastReceiver,
}

impl Pattern {
    /// The rules of the pattern.
    pub(crate) fn rules(self) -> &'static dyn Rules {
        match self {
            Pattern::PingPong => &ping_pong::PingPong,
            Pattern::Stream => &stream::Stream,
            Pattern::FanIn => &fan_in::FanIn,
            Pattern::Merge => &merge::Merge,
            Pattern::Writers => &writers::Writers,
            Pattern::Connections => &connections::Connections,
            Pattern::Mpmc => &mpmc::Mpmc,
            Pattern::Cancel => &cancel::Cancel,
            Pattern::Burst => &burst::Burst,
            Pattern::Duplex => &duplex::Duplex,
            Pattern::RequestReply => &request_reply::RequestReply,
            Pattern::PubSub => &pub_sub::PubSub,
            Pattern::Codec => &codec::Codec,
            Pattern::SameThread => &same_thread::SameThread,
            Pattern::SendReceive => &pipeline::SEND_RECEIVE,
            Pattern::SendChecksum => &pipeline::SEND_CHECKSUM,
            Pattern::SendCompete => &pipeline::SEND_COMPETE,
        }
    }

    /// The subject of a sentence about a result: `a round trip takes 5 us`.
    pub fn result(self) -> &'static str {
        self.rules().result()
    }

    /// Whether several consumers compete for the messages of a stream. Then none of them knows how many it will receive.
    pub fn consumers_compete(self) -> bool {
        self.rules().consumers_compete()
    }

    /// Whether the user chooses a number of parties on one side.
    pub fn has_several_parties(self) -> bool {
        self.rules().has_several_parties()
    }

    /// Whether messages go in both directions, so each side has a sending and a receiving end.
    pub fn is_bidirectional(self) -> bool {
        self.rules().is_bidirectional()
    }

    /// Whether the sender waits for each reply, or for the arrival of its own message, before it sends the next. The result is then a
    /// latency and not a rate.
    pub fn is_round_trip(self) -> bool {
        self.rules().metric() == Metric::RoundTrip
    }

    /// Whether one thread of one process plays every party.
    pub fn is_one_thread(self) -> bool {
        self.rules().layout() == Layout::OneThread
    }

    /// Whether one process sends all streams: several threads share a connection, or one thread switches between connections.
    pub fn is_one_sender(self) -> bool {
        self.rules().layout() == Layout::OneSender
    }

    /// Whether it is a pipeline: its functions make, check, count and time the messages themselves; see [`crate::pipeline`]. They wait in
    /// their own way, on cores that the scheduler chooses.
    pub fn is_pipeline(self) -> bool {
        self.rules().layout() == Layout::Pipeline
    }

    /// Whether mechanisms are ranked by speed in this pattern.
    pub fn is_ranked(self) -> bool {
        self.rules().metric() != Metric::NotRanked
    }
}

impl Cell {
    /// The number of message streams.
    pub fn senders(&self) -> usize {
        self.pattern.rules().streams(self)
    }

    /// The number of sending parties. Each sends one stream, except in `connections`, where one
    /// party sends all streams.
    pub fn sending(&self) -> usize {
        self.pattern.rules().senders(self)
    }

    /// The number of consumers.
    pub fn consumers(&self) -> usize {
        self.pattern.rules().consumers(self)
    }

    /// The number of producer processes and of consumer processes, in a scope between processes.
    pub fn processes(&self) -> (usize, usize) {
        self.pattern.rules().processes(self)
    }
}

/// The faults of a stream's messages. Without the end mark, a consumer does not know how many were sent.
fn sent_against_received(sent: u64, counts: &[&StreamCount]) -> Faults {
    let mut faults = Faults::default();
    for count in counts {
        if count.announced.is_none() {
            faults.lost += sent.saturating_sub(count.received);
        } else if count.announced != Some(sent) {
            faults.damaged += 1;
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_has_words() {
        for pattern in Pattern::ALL {
            assert!(pattern.result().ends_with(" takes"), "{pattern}: {}", pattern.result());
        }
    }
}
