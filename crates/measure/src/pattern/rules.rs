//! What distinguishes a pattern: the questions that each pattern answers, and their default
//! answers.

use anyhow::Result;

use super::assignment::{LoopPlan, Opened, one_way};
use crate::bound::{Bound, Cost, Costs};
use crate::case::{Case, Cell, Pattern, Place, Role};
use crate::message::{Faults, StreamCount, Verifier};
use crate::pattern_figures::{PatternFigures, PatternResult};
use crate::refusal::Inadmissible;
use crate::spec::{Scope, Spec};
use crate::window::Window;

/// What distinguishes a pattern. The default methods describe a stream of one producer to one
/// consumer.
pub(crate) trait Rules: Sync {
    // Its words.

    /// The subject of a sentence about a result: `a round trip takes 5 us`.
    fn result(&self) -> &'static str;

    /// What its table shows.
    fn table_kind(&self) -> TableKind {
        TableKind::Times
    }

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

    /// What a party does with the ends that the mechanism opened for it. A party may do several
    /// things, or share a task with others.
    ///
    /// # Errors
    /// When a party lacks an end.
    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        one_way(pattern, parties)
    }

    /// Whether a process of this role has an end for each producer, and so may need more file
    /// descriptors than usual.
    fn opens_end_per_producer(&self, _: Role) -> bool {
        false
    }

    // What it does to the transport.

    /// Whether it is measured between two hosts.
    fn is_between_hosts(&self) -> bool {
        false
    }

    /// How many messages a link between two hosts carries at the same time.
    fn messages_on_link(&self) -> f64 {
        1.0
    }

    /// How many messages the mechanism moves for one result. `None` if several consumers get the
    /// same message.
    fn messages_moved(&self) -> Option<f64> {
        Some(1.0)
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

    /// What only this pattern has, of the instances of a mechanism, which lost a number of messages
    /// together.
    fn pattern_result(&self, _instances: &[PatternFigures], _lost: u64) -> PatternResult {
        PatternResult::None
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

    /// Checks whether a mechanism can run a case of this pattern, beyond what holds for all
    /// patterns.
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

/// What the table of a pattern shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Times of round trips or messages.
    Times,
    /// Times of encoding and decoding.
    Coding,
    /// The memory that a burst takes.
    Memory,
    /// Messages that were lost because a receive was dropped.
    Losses,
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
    /// When every producer has closed: an end mark would reach one of several consumers, or be
    /// lost.
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

/// The faults of a stream's messages. Without the end mark, a consumer does not know how many were
/// sent.
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
