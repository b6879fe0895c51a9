//! The messages that a source has taken from a stream and not acknowledged.

use std::collections::{HashMap, VecDeque};

use async_nats::jetstream::message::Acker;

use super::pack::Unpacked;
use super::settle::Moment;

/// A message of a stream: its number there, and when the server stored it, in nanoseconds since
/// 1970.
///
/// A server that lost its last messages gives their numbers to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MessageId {
    pub(super) sequence: u64,
    pub(super) stored_ns: i128,
}

/// The messages that are taken and not acknowledged.
#[derive(Default)]
pub(super) struct Unacked {
    /// How each is acknowledged.
    ackers: HashMap<MessageId, Delivery>,
    /// The bytes of all of them.
    pub(super) bytes: usize,
    /// Not yet in the ring of the queue.
    pub(super) waiting: VecDeque<Waiting>,
    /// Not yet in all rings of the topic for dead letters.
    pub(super) dead: VecDeque<Dead>,
    /// In the ring of the queue, with the end of its record there.
    pub(super) in_ring: VecDeque<(MessageId, u64)>,
    /// Processed by their readers, since a moment.
    pub(super) settling: VecDeque<(Vec<MessageId>, Moment)>,
    /// Settled, and not acknowledged yet, in the order of the stream.
    pub(super) settled: VecDeque<MessageId>,
}

impl Unacked {
    pub(super) fn is_empty(&self) -> bool {
        self.ackers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.ackers.len()
    }

    /// Keeps how a message is acknowledged, on the connection with this number. Returns whether it
    /// is not here already.
    pub(super) fn insert(&mut self, id: MessageId, acker: Acker, len: usize, connection: u64) -> bool {
        if self.ackers.insert(id, Delivery { acker, len, connection }).is_some() {
            return false;
        }
        self.bytes += len;
        true
    }

    /// Takes out messages that no reader has processed: those that are in no ring, and
    /// those in the ring of the queue too if it has no readers any more.
    pub(super) fn take_unprocessed(&mut self, has_readers: bool) -> Vec<MessageId> {
        let is_begun = has_readers && self.waiting.front().is_some_and(|first| first.is_begun);
        let waiting = self.waiting.drain(usize::from(is_begun)..).map(|it| it.id);
        let mut ids: Vec<_> = waiting.chain(self.dead.drain(..).map(|it| it.id)).collect();
        if !has_readers {
            ids.extend(self.in_ring.drain(..).map(|(id, _)| id));
        }
        ids
    }

    /// Takes out how a message is acknowledged. None if it was delivered on another connection than
    /// this: then the server delivers it again.
    ///
    /// An acknowledgement names a message by its number. A server that lost its last messages gives
    /// their numbers to others, so one from before would be taken for that of another message,
    /// which would be lost.
    pub(super) fn release(&mut self, id: MessageId, connection: u64) -> Option<Acker> {
        let delivery = self.ackers.remove(&id)?;
        self.bytes -= delivery.len;
        (delivery.connection == connection).then_some(delivery.acker)
    }

    /// How the messages that were delivered on a connection are acknowledged.
    pub(super) fn ackers(&self, connection: u64) -> impl Iterator<Item = &Acker> {
        self.ackers.values().filter(move |it| it.connection == connection).map(|it| &it.acker)
    }
}

/// The last delivery of a message.
struct Delivery {
    acker: Acker,
    /// The bytes of the message.
    len: usize,
    connection: u64,
}

pub(super) struct Waiting {
    pub(super) id: MessageId,
    /// Those that are not yet in the ring.
    pub(super) messages: Unpacked,
    /// Whether the ring has some already.
    pub(super) is_begun: bool,
}

/// A message that was delivered too often.
pub(super) struct Dead {
    pub(super) id: MessageId,
    /// Those that are not yet in all rings.
    pub(super) messages: Unpacked,
    /// How many queues of the topic for dead letters have the first of them.
    pub(super) queues: usize,
}
