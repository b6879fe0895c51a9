//! A topic: where messages wait between those who write them and those who read them.

use serde::Serialize;

/// A topic and its policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Topic {
    /// How many bytes may wait in each ring of the topic, 8 bytes a message included. There is one
    /// ring for each pair of a producer and a queue group. 4 MiB by default; the ring may round it
    /// up.
    pub capacity: usize,
    /// The longest message, in bytes. 1 MiB by default, or a quarter of `capacity` where that is
    /// less.
    pub max_message: usize,
    /// What a send does while the topic is full.
    pub overflow: Overflow,
    /// What happens to the messages of a consumer that dies.
    pub delivery: Delivery,
    /// How often a message is tried before it goes to `dead_letter` or is dropped, 1 to 255; 5 by
    /// default. Only [`Delivery::AtLeastOnce`] uses it.
    pub max_deliver: u8,
    /// The topic for messages that were tried `max_deliver` times. Without one they are dropped and
    /// counted.
    pub dead_letter: Option<String>,
    /// How messages travel.
    pub transport: Transport,
}

impl Topic {
    /// The default of `capacity`: 4 MiB.
    pub const CAPACITY: usize = 4 << 20;
    /// The greatest default of `max_message`: 1 MiB, the buffer of the reference's functions.
    pub const MAX_MESSAGE: usize = 1 << 20;
    /// The default of `max_deliver`.
    pub const MAX_DELIVER: u8 = 5;
    /// What a ring adds to each message, in bytes, before it pads the sum to a multiple of 8.
    pub const HEADER: usize = 8;

    /// The default of `max_message` for a capacity.
    pub fn default_max_message(capacity: usize) -> usize {
        Topic::MAX_MESSAGE.min(capacity / 4)
    }

    /// Whether receivers copy messages out of its rings before they work on them. Where the oldest
    /// messages are dropped, what a receiver works on must not keep the space. What is delivered at
    /// least once must stay.
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
        }
    }
}

/// What a send does while a topic is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The sender waits: back-pressure down to its call. The default.
    #[default]
    Block,
    /// The oldest messages that nobody has taken yet are dropped and counted.
    DropOldest,
    /// The message that is sent is dropped and counted.
    DropNew,
}

/// What happens to the messages that a consumer had when it died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// They are dropped and counted. The default.
    #[default]
    AtMostOnce,
    /// They return to the queue group, and another member or the restarted consumer gets them. A
    /// message may arrive twice.
    AtLeastOnce,
}

/// How a topic's messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Through shared memory of this machine. The only one so far.
    #[default]
    Local,
}
