//! Cases and cells: the parameters with which mechanisms are measured.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::environment::{Runtime, Scope, Wait};
use crate::names::names;
use crate::units;

/// Who sends to whom. What follows from it is in [`crate::pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Round trips, one at a time: a request and its reply.
    PingPong,
    /// One producer sends to one consumer as fast as it can.
    Stream,
    /// Several producers send to one consumer through one channel, as fast as they can.
    FanIn,
    /// Several producers send to one consumer as fast as they can, each through its own channel.
    /// The consumer receives from all channels. The cell's capacity is divided among the channels.
    Merge,
    /// Several threads of one process send to one consumer through one connection, as fast as they
    /// can. A message must not wait for later ones. Messages that are queued already may be sent in
    /// one write.
    Writers,
    /// One thread sends on several connections to one process, as fast as it can. It sends
    /// [`TURN`](crate::pattern::TURN) messages on one connection, which may be sent together, then
    /// as many on the next. Each connection carries its own stream of messages. One consumer
    /// receives from all connections.
    Connections,
    /// Several producers send to as many consumers through one channel, as fast as they can. Each
    /// message goes to one consumer.
    Mpmc,
    /// One producer sends to one consumer, which drops every receive that is not ready at once and
    /// starts a new one. Shows whether a message is lost when the receive for it is cancelled.
    Cancel,
    /// One producer sends [`BURST`](crate::pattern::BURST) messages before the consumer receives
    /// the first. Shows how much memory the channel takes when full, and how much it keeps when it
    /// is empty again.
    Burst,
    /// Two ends send to each other as fast as they can, at the same time.
    Duplex,
    /// Several clients each send a request to one server and wait for the reply, over and over.
    RequestReply,
    /// One publisher sends to several subscribers as fast as it can. Each subscriber gets every
    /// message.
    PubSub,
    /// One thread serializes each message to bytes and deserializes it again.
    Codec,
    /// One thread sends a message and receives it, over and over (loopback in one thread). Shows
    /// the cost without any wake-up.
    #[serde(alias = "one-thread")]
    SameThread,
    /// A pipeline whose sender sends a number of messages to one receiver, which counts them.
    SendReceive,
    /// A pipeline whose receiver computes the CRC-32 of each message and compares it with the one
    /// in the message.
    SendChecksum,
    /// A pipeline whose two receivers compete for the messages and count them.
    SendCompete,
}

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

/// The kind of value that a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PayloadKind {
    /// No data: the mechanism only signals that there was a message.
    None,
    /// A machine word, passed by value.
    U64,
    /// Bytes: a `Vec<u8>` if the channel takes values, a slice otherwise.
    Bytes,
    /// An array of 64 bytes, passed by value.
    Inline,
    /// A tag and a clone of a buffer that all messages of a producer share. Every message
    /// increments and decrements the buffer's reference count.
    Shared,
    /// As `shared`, but the receiver reads only the tag.
    Unread,
    /// A topic and a vector of bytes. The value has to be serialized to leave its process.
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

/// The kind and the size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub enum Payload {
    /// No data.
    None,
    /// A machine word.
    U64,
    /// This number of bytes, at least one.
    Bytes(usize),
    /// [`Payload::INLINE`] bytes in the message itself.
    Inline,
    /// A buffer of this number of bytes, which all messages share.
    Shared(usize),
    /// As `Shared`, but the receiver does not read the buffer.
    Unread(usize),
    /// A topic and this number of bytes of data, at least 8.
    Message(usize),
}

impl Payload {
    /// The maximum length of a message in bytes: 1 GiB.
    pub const MAX: usize = 1 << 30;
    /// The length of an inline message in bytes.
    pub const INLINE: usize = 64;

    /// The kind of value, without the size.
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

    /// The length in bytes. For [`Payload::Message`], the length of its data.
    pub fn len(self) -> usize {
        match self {
            Payload::None => 0,
            Payload::U64 => 8,
            Payload::Bytes(len) | Payload::Shared(len) | Payload::Unread(len) | Payload::Message(len) => len,
            Payload::Inline => Payload::INLINE,
        }
    }

    /// Whether the length is 0.
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

/// The cores on which the ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Each end is pinned to its own core, as long as there are enough cores.
    OtherCore,
    /// All ends are pinned to one core.
    SameCore,
    /// Not pinned: the scheduler or the runtime chooses.
    Free,
    /// Consumers are on another host, producers on this one. On each host, the ends are pinned as
    /// with [`Place::OtherCore`].
    OtherHost,
}

names!(Place, "placement", OtherCore = "other-core", SameCore = "same-core", Free = "free", OtherHost = "other-host");

/// How fast producers send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub enum Load {
    /// As fast as they can.
    #[default]
    Saturated,
    /// An open loop: this number of messages per second, of all producers together. Each message is
    /// due at a set time. The result is a latency.
    Rate(u64),
    /// As [`Load::Rate`], but at random times.
    Poisson(u64),
}

/// When the messages of an open loop are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Constant,
    /// As a Poisson process: the intervals are independent and exponentially distributed.
    Poisson,
}

names!(Arrivals, "arrivals", Constant = "constant", Poisson = "poisson");

impl Load {
    /// The highest rate in messages per second. Above it, reading the clock for each message takes
    /// too large a part of the time.
    pub const MAX_RATE: u64 = 2_000_000;

    /// Messages a second, of all producers together, in an open loop.
    pub fn rate(self) -> Option<u64> {
        match self {
            Load::Saturated => None,
            Load::Rate(rate) | Load::Poisson(rate) => Some(rate),
        }
    }

    /// The same rate with other arrivals, where there is one.
    #[must_use]
    pub fn with(self, arrivals: Arrivals) -> Load {
        match (self.rate(), arrivals) {
            (None, _) => self,
            (Some(rate), Arrivals::Constant) => Load::Rate(rate),
            (Some(rate), Arrivals::Poisson) => Load::Poisson(rate),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Saturated => f.pad("saturated"),
            Load::Rate(rate) => f.pad(&format!("{rate}/s")),
            Load::Poisson(rate) => f.pad(&format!("{rate}/s {}", Arrivals::Poisson)),
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
        // As it is in records.
        let (rate, arrivals) = match text.split_once(' ') {
            Some((rate, arrivals)) => (rate, arrivals.parse().map_err(|_| malformed())?),
            None => (text, Arrivals::default()),
        };
        let number = rate.strip_suffix("/s").ok_or_else(malformed)?;
        let (number, scale) = match number.strip_suffix(['k', 'M']) {
            Some(thousands) if number.ends_with('k') => (thousands, 1_000),
            Some(millions) => (millions, 1_000_000),
            None => (number, 1),
        };
        let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        match rate {
            Some(rate @ 1..=Load::MAX_RATE) => Ok(Load::Rate(rate).with(arrivals)),
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

/// The parameters of a case without its mechanism. Mechanisms in the same cell are ranked against
/// each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// The distance a message travels.
    pub scope: Scope,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// The kind and the size of each message.
    pub payload: Payload,
    /// The number of producers. In `mpmc`, also the number of consumers. In `pub-sub`, the number
    /// of subscribers of the one publisher. In `connections`, the number of connections of the one
    /// sender.
    pub producers: usize,
    /// The requested number of messages that fit between the ends, if the mechanism lets the user
    /// choose it.
    pub capacity: usize,
    /// The runtime of the ends.
    pub runtime: Runtime,
    /// How the ends wait.
    pub wait: Wait,
    /// The cores on which the ends run.
    pub place: Place,
    /// How fast producers send.
    #[serde(default)]
    pub load: Load,
}

impl Cell {
    /// The default capacity. Headings show the capacity only if it differs.
    pub const CAPACITY: usize = 1024;
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}", self.scope, self.pattern)?;
        if self.pattern.has_several_parties() {
            write!(f, " {}→{}", self.streams(), self.consumers())?;
        }
        write!(f, " · {}", self.payload)?;
        // A single thread never waits, and the processes of a pipeline wait in their own way.
        if !self.pattern.is_one_thread() && !self.pattern.is_pipeline() {
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Case {
    /// The mechanism's name.
    pub mechanism: String,
    /// All other parameters.
    pub cell: Cell,
}

impl Deref for Case {
    type Target = Cell;
    fn deref(&self) -> &Cell {
        &self.cell
    }
}

/// Which ends of a case a child process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub enum Role {
    /// All ends of the case: in scopes inside one process, in patterns of one thread (`same-thread`,
    /// `codec`), and in pipelines that one process runs.
    All,
    /// The producer with this number. In a ping-pong, the side that sends requests and measures.
    Producer(usize),
    /// The consumer with this number. In a ping-pong, the side that replies.
    Consumer(usize),
    /// A process that forwards messages between the ends.
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
        for load in
            [Load::Saturated, Load::Rate(1), Load::Rate(100_000), Load::Rate(Load::MAX_RATE), Load::Poisson(7_000)]
        {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        for text in ["10k/s", "10000/s"] {
            assert_eq!(text.parse(), Ok(Load::Rate(10_000)));
        }
        assert_eq!(Load::Poisson(7_000).to_string(), "7000/s poisson");
        for bad in [
            "",
            "0/s",
            "10k",
            "10k/s ",
            "10k/s even",
            "saturated poisson",
            "3M/s",
            "k",
            "-1/s",
            "fast",
            "10kk/s",
            "99999999999999999999M",
        ] {
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
