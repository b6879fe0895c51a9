//! Bounds on the memory and time that peers can make a node spend.

use std::time::Duration;

/// Bounds on the memory and time that peers can make a node spend. All of them except `idle` and
/// `heartbeat` are active by default.
///
/// ```
/// use estafette_net::{Limits, Node};
///
/// let mut limits = Limits::default();
/// limits.message = 64 << 10;
/// let node = Node::<()>::with_limits(limits)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message that is received or sent, in bytes. Default: 16 MiB. A peer that
    /// announces a longer one is disconnected before it has sent it.
    pub message: usize,
    /// The most fragments of one WebSocket message. Default: 100,000.
    pub parts: usize,
    /// How many bytes may be queued at a connection before a send returns
    /// [`Outcome::Full`](crate::Outcome::Full). Default: 1 MiB.
    ///
    /// A message of any length is accepted while fewer bytes are queued, so the queue may hold up
    /// to [`Limits::message`] more. Threads that send at the moment when the queue starts to fill
    /// may add up to 128 KiB.
    pub queue: usize,
    /// How many bytes may be queued at all connections of a node together. Each connection may be
    /// counted with up to an eighth more than it has. Default: 256 MiB.
    pub total_queued_bytes: usize,
    /// How many bytes of incomplete messages all connections of a node may buffer together.
    /// Default: 256 MiB. The connection that exceeds this is closed. Not counted is the memory of
    /// one delivered message of up to 2 MiB, which a node keeps for the next long one.
    pub unfinished: usize,
    /// The most connections at a time, including those that are being opened or closed. Default:
    /// 65,536. Further ones wait in the listeners' backlogs. Listeners and datagram sockets do not
    /// count.
    pub connections: usize,
    /// The most connections a listener accepts per second. Default: 100,000. Further ones wait in
    /// its backlog.
    pub accepts: u32,
    /// How long a connection may take to open, including the handshakes of a proxy, of TLS and of a
    /// WebSocket. Default: 10 s. The lookup of a host name, and each of the host's addresses, has
    /// this time of its own.
    pub handshake: Duration,
    /// How long a message may take from its first byte to its last. Default: 60 s.
    pub message_timeout: Duration,
    /// A connection that receives nothing, and to which nothing can be written, for this long is
    /// closed. Default: no limit. What waits in a queue because the peer does not read does not
    /// count as written.
    pub idle: Option<Duration>,
    /// A WebSocket peer from which nothing arrives for this long is sent a ping. If nothing arrives
    /// for this long after it, the connection is closed with
    /// [`Late::Heartbeat`](crate::Late::Heartbeat). Default: no heartbeat.
    ///
    /// Every WebSocket peer answers pings, as long as it reads. A live peer that reads nothing for
    /// twice this time is closed too, which is why there is no heartbeat by default. A host that
    /// disappears is noticed without it: [`Options::keepalive`](crate::Options::keepalive). A
    /// heartbeat also notices programs that hang, and keeps proxies from closing quiet connections;
    /// 30 s are usual. Time in which a long message is still being written does not count.
    pub heartbeat: Option<Duration>,
    /// How long a connection that ends may go on writing its queue, and then wait until its peer
    /// has ended it too. Default: 5 s. What is left then is cut.
    pub flush: Duration,
    /// How many bytes are read from a connection before other connections get their turn. Default:
    /// 256 KiB. 0 counts as 1.
    pub read_budget: usize,
    /// How long the messages of a connection are delivered before other connections get their turn.
    /// Default: 500 us.
    ///
    /// The clock is read once for several messages, so a turn may take a little longer: up to 16
    /// messages where each takes longer than this. A turn goes on while nothing else waits.
    pub time_slice: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message: 16 << 20,
            parts: 100_000,
            queue: 1 << 20,
            total_queued_bytes: 256 << 20,
            unfinished: 256 << 20,
            connections: 65_536,
            accepts: 100_000,
            handshake: Duration::from_secs(10),
            message_timeout: Duration::from_secs(60),
            idle: None,
            heartbeat: None,
            flush: Duration::from_secs(5),
            read_budget: 256 << 10,
            time_slice: Duration::from_micros(500),
        }
    }
}
