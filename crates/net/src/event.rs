//! What happens at a node, in the order in which it is told.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use crate::codec::websocket::Close;
use crate::codec::{Kind, Violation};
use crate::slab::Key;

/// Names a connection, a listener, or, where all peers share a socket, a peer of it. It never comes to name another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    pub(crate) key: Key,
    /// The peer, of a socket that has several.
    pub(crate) remote: Option<SocketAddr>,
}

impl Endpoint {
    pub(crate) fn new(key: Key) -> Endpoint {
        Endpoint { key, remote: None }
    }

    /// The peer's address, where the endpoint is one of several peers of a socket, as with UDP that listens. For others
    /// [`Handle::peer_address`](crate::Handle::peer_address) tells.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }
}

/// What happened.
///
/// At one connection: first `Connected` or `Accepted`, then any number of `Message` in the order in which they were sent and
/// of `Drained`, and at last one `Closed`; where that was asked for, one `Finished` before, after which no `Message` comes. A
/// connection that did not come about has `Closed` alone. One that is [made again](crate::Options::reconnect) begins anew with
/// each `Lost`, and has its `Closed` at the very end. A socket of datagrams has `Message`, `Drained` and one `Closed` only, and
/// nothing is promised of their order.
///
/// There may be others one day: whoever looks at an event passes over those they do not know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a, S> {
    /// What [`Handle::connect`](crate::Handle::connect) began is there, a WebSocket's handshake included.
    Connected(Endpoint),
    /// A peer connected to a listener.
    Accepted {
        /// The connection.
        endpoint: Endpoint,
        /// Where it came in.
        listener: Endpoint,
    },
    /// A message, or whatever one read gave where the transport has no messages.
    Message(Endpoint, Message<'a>),
    /// All that waited at a connection has been handed to the system, after a send had returned
    /// [`Outcome::Queued`] or [`Outcome::Full`]. Of a socket that has several peers: it has room for any of them.
    Drained(Endpoint),
    /// The peer sends no more, and can still be sent to: only where [`Options::half_open`](crate::Options::half_open) asks
    /// for it.
    Finished(Endpoint),
    /// A connection ended, or did not come about, and will be made again under the same name: only where
    /// [`Options::reconnect`](crate::Options::reconnect) asks for it.
    Lost {
        /// Which.
        endpoint: Endpoint,
        /// Why.
        reason: Reason,
        /// How many bytes of what was taken were not written, frames included. Of what was written, the peer may not have read
        /// everything.
        unwritten: usize,
        /// How long it waits before it tries to.
        again_in: Duration,
    },
    /// A connection ended, or a listener. Nothing more is told of it.
    Closed {
        /// Which.
        endpoint: Endpoint,
        /// Why.
        reason: Reason,
    },
    /// What [`Handle::signal`](crate::Handle::signal) or one of its siblings was given.
    Signal(S),
}

/// Bytes that lie in the node until the next event is asked for. It is a `[u8]`.
pub struct Message<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) kind: Kind,
}

/// Where they lie.
pub(crate) enum Bytes<'a> {
    /// Among those of others.
    Lent(&'a [u8]),
    /// In a vector that has nothing else.
    Whole(&'a mut Vec<u8>),
}

impl Message<'_> {
    /// Whether it is text: UTF-8 for certain.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Keeps the message. A long one that came in several reads is given away as it lies there, any other copied.
    pub fn take(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Whole(bytes) => std::mem::take(bytes),
            Bytes::Lent(bytes) => bytes.to_vec(),
        }
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Lent(bytes) => bytes,
            Bytes::Whole(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({:?}, {} bytes)", self.kind, self.len())
    }
}

/// What became of a message that was to be sent. There may be others one day, of which [`Outcome::taken`] tells as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a message that was not taken is not sent later"]
pub enum Outcome {
    /// The system has all of it, or is given it by another thread that sends there at the same time, and has its turn next.
    Sent,
    /// It was taken, and a part of it or all waits for the peer to read on. `Drained` will tell that nothing waits any more.
    Queued,
    /// It was not taken, as too much waits already, or, of a datagram, as it is not known yet where the peer is. `Drained` will tell
    /// when to try again.
    Full,
    /// It was not taken, and never will be: it is longer than the transport or [`Limits::message`](crate::Limits) allows.
    TooLarge,
    /// It was not taken: there is no such connection any more, or it is being closed, or was
    /// [finished](crate::Handle::finish).
    Closed,
    /// The system does not send this datagram, as where no route leads to the peer.
    Refused(io::ErrorKind),
}

impl Outcome {
    /// Whether the message was taken: it is delivered unless the connection ends before.
    pub fn taken(self) -> bool {
        matches!(self, Outcome::Sent | Outcome::Queued)
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It was closed here, after all that waited had been written.
    #[error("closed here")]
    Closed,
    /// It was closed here, and what waited could not be written in time.
    #[error("closed here, and {0} bytes were not written in time")]
    Unwritten(usize),
    /// The peer ended it, between two messages.
    #[error("ended by the peer")]
    Ended,
    /// The peer ended it in the middle of a message.
    #[error("ended by the peer in the middle of a message")]
    Truncated,
    /// A WebSocket's peer closed it, and said why.
    #[error("closed by the peer: {}{}", .0.code.map_or("no code".to_owned(), |code| code.to_string()), with_colon(&.0.reason))]
    ClosedByPeer(Close),
    /// It did not come about.
    #[error("not connected: {0}")]
    NotConnected(io::Error),
    /// The system reported an error, as where the peer was reset.
    #[error("{0}")]
    Io(io::Error),
    /// The peer broke a rule, or went over a limit.
    #[error("{0}")]
    Violation(Violation),
    /// Something took longer than [`Limits`](crate::Limits) allow.
    #[error("{0}")]
    Late(Late),
    /// Together, the unfinished messages of all peers are more than [`Limits::unfinished`](crate::Limits) allows.
    #[error("the node holds too much of unfinished messages")]
    NoRoom,
}

fn with_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Late {
    /// The connection did not come about within [`Limits::handshake`](crate::Limits).
    #[error("no connection in time")]
    Handshake,
    /// A message was not whole within [`Limits::unfinished_for`](crate::Limits).
    #[error("a message that did not end in time")]
    Message,
    /// Nothing arrived for [`Limits::idle`](crate::Limits).
    #[error("idle for too long")]
    Idle,
}
