//! What a node takes from its peers at most.

use std::time::Duration;

/// Bounds on what peers can make a node do. All are on unless changed.
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
    /// The longest message that is taken or sent, in bytes: 16 MiB. A peer that announces a longer one is disconnected
    /// before it has sent it.
    pub message: usize,
    /// The most parts of a WebSocket message: 100,000.
    pub parts: usize,
    /// How many bytes wait at a connection before a send returns [`Outcome::Full`](crate::Outcome::Full): 1 MiB. A
    /// message that finds nothing waiting is taken whatever its length, so that up to [`Limits::message`] more may lie there; and what
    /// several threads send at the moment when it begins to fill, up to 128 KiB.
    pub queue: usize,
    /// How many bytes wait at all connections of a node together: 256 MiB.
    pub queues: usize,
    /// How many bytes of unfinished messages all connections of a node hold together: 256 MiB. The connection that asks for
    /// more is closed.
    pub unfinished: usize,
    /// The most connections at a time, those that are being made included: 65,536. Further ones wait in the listeners'
    /// backlogs.
    pub connections: usize,
    /// The most connections a listener accepts in a second: 100,000.
    pub accepts: u32,
    /// How long a connection may take to come about, a WebSocket's handshake included: 10 s.
    pub handshake: Duration,
    /// How long a message may take from its first byte to its last: 60 s.
    pub unfinished_for: Duration,
    /// How long nothing need arrive at a connection before it is closed: none, forever.
    pub idle: Option<Duration>,
    /// How long a connection that is closed here goes on writing what waits at it: 5 s.
    pub flush: Duration,
    /// How many bytes are read from a connection before the others have their turn: 256 KiB.
    pub turn: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message: 16 << 20,
            parts: 100_000,
            queue: 1 << 20,
            queues: 256 << 20,
            unfinished: 256 << 20,
            connections: 65_536,
            accepts: 100_000,
            handshake: Duration::from_secs(10),
            unfinished_for: Duration::from_secs(60),
            idle: None,
            flush: Duration::from_secs(5),
            turn: 256 << 10,
        }
    }
}
