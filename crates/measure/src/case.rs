//! Cases and cells: the axes along which mechanisms are measured.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::{Runtime, Scope, Wait, names};
use crate::units;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One message there and one back, one at a time: a round trip.
    PingPong,
    /// One producer sends to one consumer as fast as it can.
    Stream,
    /// Several producers send to one consumer through one channel, as fast as they can.
    FanIn,
    /// Several producers send to one consumer as fast as they can, each through a channel of its own; the consumer
    /// merges them. The cell's capacity is divided among the channels.
    Merge,
    /// Several threads of one process send to one consumer through one connection, as fast as they can. No message waits for
    /// one that has yet to be made; those that wait at the connection together may leave together.
    Writers,
    /// One thread sends on several connections to one process, as fast as it can: [`TURN`] messages on one, which may leave
    /// together, then as many on the next; a stream of messages on each. One consumer takes from all of them.
    Connections,
    /// Several producers send to as many consumers through one channel, as fast as they can; each message goes to one.
    Mpmc,
    /// One producer sends to one consumer that drops every receive that has to wait, and asks again: what happens to a
    /// message that is on its way to a receive that is cancelled?
    Cancel,
    /// One producer sends [`BURST`] messages before the consumer receives the first: how much memory does that take, and
    /// how much is held when all have gone?
    Burst,
    /// Two ends send to each other as fast as they can, at the same time.
    Duplex,
    /// Several clients each ask one server and wait for the answer, over and over.
    RequestReply,
    /// One publisher sends to several subscribers as fast as it can; each of them gets every message.
    PubSub,
    /// Each message is written down as bytes and read back from them, in one thread.
    Codec,
    /// One thread sends a message and receives it, over and over: what it takes where nobody has to be woken.
    #[serde(alias = "one-thread")]
    SameThread,
    /// A pipeline: its sender sends so many messages to its receiver, which counts them.
    SendReceive,
    /// A pipeline: its receiver computes the CRC-32 of each message and compares it with the one in the message.
    SendChecksum,
    /// A pipeline: two receivers compete for the messages and count them.
    SendCompete,
}

/// How many messages a burst has.
pub const BURST: u64 = 1_000_000;

/// How many messages go out on one of several connections before it is the next one's turn.
pub const TURN: u64 = 16;

names!(
    Pattern,
    "pattern",
    PingPong = "ping-pong",
    Stream = "stream",
    FanIn = "fan-in",
    Merge = "merge",
    Writers = "writers",
    Connections = "connections",
    Mpmc = "mpmc",
    Cancel = "cancel",
    Burst = "burst",
    Duplex = "duplex",
    RequestReply = "request-reply",
    PubSub = "pub-sub",
    Codec = "codec",
    SameThread = "same-thread",
    SendReceive = "send-receive",
    SendChecksum = "send-checksum",
    SendCompete = "send-compete"
);

impl Pattern {
    /// Whether one side may be several.
    pub fn gathers(self) -> bool {
        matches!(self, Pattern::FanIn | Pattern::Merge | Pattern::Mpmc | Pattern::RequestReply | Pattern::PubSub)
            || self.in_one_process()
    }

    /// Whether what one end sends is answered, or met, by what the other does: both have both.
    pub fn both_ways(self) -> bool {
        matches!(self, Pattern::PingPong | Pattern::Duplex | Pattern::RequestReply | Pattern::SameThread)
    }

    /// Whether every message waits for the answer to the one before, or for its own arrival: how long that takes is what
    /// counts.
    pub fn asks(self) -> bool {
        matches!(self, Pattern::PingPong | Pattern::RequestReply | Pattern::SameThread)
    }

    /// Whether one thread of one process plays all of it.
    pub fn in_one_thread(self) -> bool {
        matches!(self, Pattern::Codec | Pattern::SameThread)
    }

    /// Whether one process sends all of several streams, by threads that share a connection or from one connection to the next.
    pub fn in_one_process(self) -> bool {
        matches!(self, Pattern::Writers | Pattern::Connections)
    }

    /// Whether it is a pipeline, whose own functions make, check, count and time the messages; see [`crate::pipeline`]. They
    /// wait in their own way, on cores of the scheduler's choice.
    pub fn is_pipeline(self) -> bool {
        matches!(self, Pattern::SendReceive | Pattern::SendChecksum | Pattern::SendCompete)
    }

    /// Whether mechanisms are ranked by how fast they are.
    pub fn ranks(self) -> bool {
        !matches!(self, Pattern::Cancel | Pattern::Burst)
    }
}

/// What kind of value a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// Nothing: a mechanism that only tells that there was a message.
    None,
    /// A machine word, passed by value.
    U64,
    /// A run of bytes: a `Vec<u8>` where a channel takes values, a slice elsewhere.
    Bytes,
    /// An array of 64 bytes, passed by value.
    Inline,
    /// A tag and a clone of one buffer that all messages share: every message counts its references up and down.
    Shared,
    /// The same, of which the receiver reads the tag alone.
    Unread,
    /// A topic and a vector of bytes: a value that has to be written down as bytes to leave its process.
    Message,
}

names!(
    PayloadKind,
    "payload",
    None = "none",
    U64 = "u64",
    Bytes = "bytes",
    Inline = "inline",
    Shared = "shared",
    Unread = "unread",
    Message = "message"
);

/// What a message is: its kind and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Payload {
    /// Nothing.
    None,
    /// A machine word.
    U64,
    /// So many bytes, at least one.
    Bytes(usize),
    /// [`Payload::INLINE`] bytes in the message itself.
    Inline,
    /// So many bytes that all messages share.
    Shared(usize),
    /// The same, not read.
    Unread(usize),
    /// A topic, and so many bytes of data, at least 8.
    Message(usize),
}

impl Payload {
    /// The longest message that can be asked for: 1 GiB.
    pub const MAX: usize = 1 << 30;
    /// The length of an inline message.
    pub const INLINE: usize = 64;

    /// Its kind.
    pub fn kind(self) -> PayloadKind {
        match self {
            Payload::None => PayloadKind::None,
            Payload::U64 => PayloadKind::U64,
            Payload::Bytes(_) => PayloadKind::Bytes,
            Payload::Inline => PayloadKind::Inline,
            Payload::Shared(_) => PayloadKind::Shared,
            Payload::Unread(_) => PayloadKind::Unread,
            Payload::Message(_) => PayloadKind::Message,
        }
    }

    /// Its length in bytes; of a message that of its data.
    pub fn len(self) -> usize {
        match self {
            Payload::None => 0,
            Payload::U64 => 8,
            Payload::Bytes(len) | Payload::Shared(len) | Payload::Unread(len) | Payload::Message(len) => len,
            Payload::Inline => Payload::INLINE,
        }
    }

    /// Whether its length is 0.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::None => f.pad("none"),
            Payload::U64 => f.pad("u64"),
            Payload::Bytes(len) => f.pad(&units::size(*len)),
            Payload::Inline => f.pad("inline"),
            Payload::Shared(len) => f.pad(&format!("shared-{}", units::size(*len))),
            Payload::Unread(len) => f.pad(&format!("unread-{}", units::size(*len))),
            Payload::Message(len) => f.pad(&format!("message-{}", units::size(*len))),
        }
    }
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, size): (fn(usize) -> Payload, &str) = match text.split_once('-') {
            None if text == "none" => return Ok(Payload::None),
            None if text == "u64" => return Ok(Payload::U64),
            None if text == "inline" => return Ok(Payload::Inline),
            Some(("shared", size)) => (Payload::Shared, size),
            Some(("unread", size)) => (Payload::Unread, size),
            Some(("message", size)) => (Payload::Message, size),
            _ => (Payload::Bytes, text),
        };
        match units::parse_size(size)? {
            0 => Err(String::from("size 0: a message has at least 1 byte")),
            len if len > Payload::MAX => Err(format!("size {text}: the longest message is 1 GiB")),
            len => Ok(of(len)),
        }
    }
}

impl TryFrom<String> for Payload {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Payload> for String {
    fn from(payload: Payload) -> String {
        payload.to_string()
    }
}

/// On which cores the ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Each end pinned to a core of its own, as far as there are cores.
    OtherCore,
    /// All ends pinned to one core.
    SameCore,
    /// Not pinned: where the scheduler or the runtime puts them.
    Free,
}

names!(Place, "placement", OtherCore = "other-core", SameCore = "same-core", Free = "free");

/// How fast producers send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Load {
    /// As fast as they can.
    #[default]
    Saturated,
    /// At so many messages a second, of all producers together, each at its time: an open loop. Latency is what counts.
    Rate(u64),
}

impl Load {
    /// The highest rate that can be asked for. Above it a look at the clock for each message is no longer little.
    pub const MAX_RATE: u64 = 2_000_000;
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Saturated => f.pad("saturated"),
            Load::Rate(rate) => f.pad(&format!("{rate}/s")),
        }
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "saturated" {
            return Ok(Load::Saturated);
        }
        let malformed = || format!("load `{text}`: write `saturated`, or a rate up to 2M/s with its unit (10k/s)");
        let number = text.strip_suffix("/s").ok_or_else(malformed)?;
        let (number, scale) = match number.strip_suffix(['k', 'M']) {
            Some(thousands) if number.ends_with('k') => (thousands, 1_000),
            Some(millions) => (millions, 1_000_000),
            None => (number, 1),
        };
        let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        match rate {
            Some(rate @ 1..=Load::MAX_RATE) => Ok(Load::Rate(rate)),
            _ => Err(malformed()),
        }
    }
}

impl TryFrom<String> for Load {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Load> for String {
    fn from(load: Load) -> String {
        load.to_string()
    }
}

/// The cases that differ in mechanism only: the ones that may be ranked against each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The distance.
    pub scope: Scope,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// What is sent.
    pub payload: Payload,
    /// How many send; in `mpmc` as many receive, and in `pub-sub`, where one sends, so many receive. In `connections`, where one
    /// sends too, so many connections there are.
    pub producers: usize,
    /// How many messages may be under way, where the mechanism lets one choose.
    pub capacity: usize,
    /// Where the ends run.
    pub runtime: Runtime,
    /// How the ends wait.
    pub wait: Wait,
    /// On which cores.
    pub place: Place,
    /// How fast producers send.
    #[serde(default)]
    pub load: Load,
}

impl Cell {
    /// The capacity of a cell that nobody gave another; headings name only others.
    pub const CAPACITY: usize = 1024;

    /// How many streams of messages there are.
    pub fn senders(&self) -> usize {
        match self.pattern {
            Pattern::PubSub => 1,
            Pattern::Duplex => 2,
            _ => self.producers,
        }
    }

    /// How many parties send them: each has one, but for the one that has all connections.
    pub fn sending(&self) -> usize {
        if self.pattern == Pattern::Connections { 1 } else { self.senders() }
    }

    /// How many receive.
    pub fn consumers(&self) -> usize {
        match self.pattern {
            Pattern::Mpmc | Pattern::PubSub => self.producers,
            Pattern::Duplex | Pattern::SendCompete => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}", self.scope, self.pattern)?;
        if self.pattern.gathers() {
            write!(f, " {}→{}", self.senders(), self.consumers())?;
        }
        write!(f, " · {}", self.payload)?;
        // One thread waits for nobody, and the processes of a pipeline in their own way.
        if !self.pattern.in_one_thread() && !self.pattern.is_pipeline() {
            write!(f, " · {}", self.wait)?;
        }
        match (self.runtime, self.place) {
            (Runtime::Thread, place) => write!(f, " · {place}")?,
            (runtime, _) => write!(f, " · {runtime}")?,
        }
        if self.load != Load::Saturated {
            write!(f, " · {}", self.load)?;
        }
        if self.capacity != Cell::CAPACITY {
            write!(f, " · capacity {}", self.capacity)?;
        }
        Ok(())
    }
}

/// One mechanism in one cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The mechanism's name.
    pub mechanism: String,
    /// The axes.
    pub cell: Cell,
}

impl Deref for Case {
    type Target = Cell;
    fn deref(&self) -> &Cell {
        &self.cell
    }
}

/// Which end, or ends, of a case a child process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Role {
    /// Every end: the scopes inside one process.
    All,
    /// The producer of this number; in a ping-pong, the side that asks and measures.
    Producer(usize),
    /// The consumer of this number; in a ping-pong, the side that answers.
    Consumer(usize),
    /// A process between the ends.
    Broker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::All => f.write_str("all"),
            Role::Producer(index) => write!(f, "producer:{index}"),
            Role::Consumer(index) => write!(f, "consumer:{index}"),
            Role::Broker => f.write_str("broker"),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("unknown role `{text}`; known: all, producer:N, consumer:N, broker");
        match text.split_once(':') {
            None if text == "all" => Ok(Role::All),
            None if text == "broker" => Ok(Role::Broker),
            Some(("producer", index)) => index.parse().map(Role::Producer).map_err(|_| unknown()),
            Some(("consumer", index)) => index.parse().map(Role::Consumer).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Role {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Role> for String {
    fn from(role: Role) -> String {
        role.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_parse_with_units() {
        assert_eq!("none".parse(), Ok(Payload::None));
        assert_eq!("u64".parse(), Ok(Payload::U64));
        assert_eq!("64".parse(), Ok(Payload::Bytes(64)));
        assert_eq!("4KiB".parse(), Ok(Payload::Bytes(4096)));
        let others = [Payload::Inline, Payload::Shared(1200), Payload::Unread(1024), Payload::Message(10_240)];
        for payload in others.into_iter().chain([Payload::Bytes(4096)]) {
            assert_eq!(payload.to_string().parse(), Ok(payload));
        }
        assert_eq!(Payload::Shared(1200).to_string(), "shared-1200B");
        for bad in ["0", "shared-0", "shared", "inline-64B", "-1", "4Kib", "1TiB", "", "99999999999999999999"] {
            assert!(bad.parse::<Payload>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loads_round_trip() {
        for load in [Load::Saturated, Load::Rate(1), Load::Rate(100_000), Load::Rate(Load::MAX_RATE)] {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        for text in ["10k/s", "10000/s"] {
            assert_eq!(text.parse(), Ok(Load::Rate(10_000)));
        }
        for bad in ["", "0/s", "10k", "3M/s", "k", "-1/s", "fast", "10kk/s", "99999999999999999999M"] {
            assert!(bad.parse::<Load>().is_err(), "{bad}");
        }
    }

    #[test]
    fn roles_round_trip() {
        for role in [Role::All, Role::Producer(3), Role::Consumer(0), Role::Broker] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("producer".parse::<Role>().is_err());
        assert!("producer:-1".parse::<Role>().is_err());
    }
}
