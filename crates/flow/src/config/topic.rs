//! A topic: messages wait there between writers and readers.

use serde::Serialize;

/// A topic and its policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Topic {
    /// The capacity of each ring of the topic in bytes, including 8 bytes per message; 4 MiB by
    /// default. There is one ring for each pair of a producer and a queue group. The ring may round
    /// it up.
    pub capacity: usize,
    /// The longest message, in bytes. The default is 1 MiB, or a quarter of `capacity` if that is
    /// less.
    pub max_message: usize,
    /// What a send does while the topic is full.
    pub overflow: Overflow,
    /// What happens to the messages of a consumer that dies.
    pub delivery: Delivery,
    /// How often a message is delivered before it goes to `dead_letter` or is dropped, 1 to 255; 5
    /// by default. Only used with [`Delivery::AtLeastOnce`].
    pub max_deliver: u8,
    /// The topic for messages that were delivered `max_deliver` times. Without one, they are
    /// dropped and counted.
    pub dead_letter: Option<String>,
    /// How messages travel.
    pub transport: Transport,
    /// The most bytes of messages that are sent as one NATS message; 0 by default: each is one.
    pub batch: usize,
    /// Whether each NATS message has an ID: its producer and its number. The default is `true`. At
    /// least once, they always have one.
    pub message_ids: bool,
}

impl Topic {
    /// The default of `capacity`: 4 MiB.
    pub const CAPACITY: usize = 4 << 20;
    /// The maximum default of `max_message`: 1 MiB, the buffer size of the reference's functions.
    pub const MAX_MESSAGE: usize = 1 << 20;
    /// The default of `max_deliver`.
    pub const MAX_DELIVER: u8 = 5;
    /// The bytes that a ring adds to each message, before it pads the sum to a multiple of 8.
    pub const HEADER: usize = 8;

    /// The maximum default of `max_message` with [`Transport::Nats`]: with its headers, such a
    /// message is as long as NATS servers accept by default.
    pub const MAX_NATS_MESSAGE: usize = Topic::MAX_MESSAGE - Topic::NATS_HEADERS;
    /// The space for the headers of a message on a NATS server, in bytes.
    pub const NATS_HEADERS: usize = 4 << 10;

    /// The maximum of `batch`: what a host takes from a ring at once.
    pub const MAX_NATS_BATCH: usize = 256 << 10;

    /// The default of `max_message` for a given capacity.
    pub fn default_max_message(capacity: usize) -> usize {
        Topic::MAX_MESSAGE.min(capacity / 4)
    }

    /// Whether receivers copy messages out of the topic's rings before they process them. Where the
    /// oldest messages are dropped, messages in processing must not keep their space. Where
    /// messages are delivered at least once, they must stay in the ring.
    pub(crate) fn is_copied(&self) -> bool {
        self.overflow == Overflow::DropOldest && self.delivery == Delivery::AtMostOnce
    }
}

impl Default for Topic {
    fn default() -> Topic {
        Topic {
            capacity: Topic::CAPACITY,
            max_message: Topic::default_max_message(Topic::CAPACITY),
            overflow: Overflow::default(),
            delivery: Delivery::default(),
            max_deliver: Topic::MAX_DELIVER,
            dead_letter: None,
            transport: Transport::default(),
            batch: 0,
            message_ids: true,
        }
    }
}

/// What a send does while a topic is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The sender waits, which is back-pressure on the calling function. The default.
    #[default]
    Block,
    /// The oldest messages that no reader has claimed are dropped and counted.
    DropOldest,
    /// The new message is dropped and counted.
    DropNew,
}

/// What happens to the messages that a consumer was processing when it died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// They are dropped and counted. The default.
    #[default]
    AtMostOnce,
    /// They return to the queue group, and go to another member or the restarted consumer. A
    /// message may arrive twice.
    AtLeastOnce,
}

/// How a topic transports messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Through shared memory of one machine. The default.
    #[default]
    Local,
    /// Through a NATS server, if its ends are on several hosts; else as [`Transport::Local`].
    Nats,
}
