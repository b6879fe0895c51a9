//! Patterns: who sends to whom, and what follows from it.
//!
//! Each pattern is one file. It implements `Rules` of `rules.rs`, whose default methods describe a
//! stream of one producer to one consumer; a file has only what differs from that. To add a
//! pattern, add a file here, a variant to [`Pattern`] with its name, and a line to
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
mod rules;
mod same_thread;
mod stream;
mod writers;

pub(crate) use self::assignment::{LoopKind, LoopPlan, Opened};
pub use self::burst::BURST;
pub use self::connections::TURN;
use self::rules::Metric;
pub use self::rules::TableKind;
pub(crate) use self::rules::{Layout, ResultParty, Rules, StreamEnd};
use crate::case::{Cell, Pattern};

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
            Pattern::Cancel => &cancel::DroppedReceives,
            Pattern::Burst => &burst::Burst,
            Pattern::Duplex => &duplex::Duplex,
            Pattern::RequestReply => &request_reply::RequestReply,
            Pattern::PubSub => &pub_sub::PubSub,
            Pattern::Codec => &codec::EncodeDecode,
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

    /// What its table shows.
    pub fn table_kind(self) -> TableKind {
        self.rules().table_kind()
    }

    /// Whether it is measured between two hosts.
    pub fn is_between_hosts(self) -> bool {
        self.rules().is_between_hosts()
    }

    /// Whether several consumers compete for the messages of a stream. Then none of them knows how
    /// many it will receive.
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

    /// Whether the sender waits for each reply, or for the arrival of its own message, before it
    /// sends the next. The result is then a latency and not a rate.
    pub fn is_round_trip(self) -> bool {
        self.rules().metric() == Metric::RoundTrip
    }

    /// Whether one thread of one process runs every party.
    pub fn is_one_thread(self) -> bool {
        self.rules().layout() == Layout::OneThread
    }

    /// Whether one process sends all streams: several threads share a connection, or one thread
    /// switches between connections.
    pub fn is_one_sender(self) -> bool {
        self.rules().layout() == Layout::OneSender
    }

    /// Whether it is a pipeline: its functions make, check, count and time the messages themselves;
    /// see [`crate::pipeline_driver`]. They wait in their own way, on cores that the scheduler chooses.
    pub fn is_pipeline(self) -> bool {
        self.rules().layout() == Layout::Pipeline
    }

    /// Whether mechanisms are ranked by speed in this pattern.
    pub fn is_ranked(self) -> bool {
        self.rules().metric() != Metric::NotRanked
    }
}

impl Cell {
    /// The number of message streams, each with numbered messages of its own.
    pub fn streams(&self) -> usize {
        self.pattern.rules().streams(self)
    }

    /// The number of sending parties. Each sends one stream, except in `connections`, where one
    /// party sends all streams.
    pub fn senders(&self) -> usize {
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
