//! Endpoints, events, send outcomes and close reasons.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::time::Duration;

use crate::Address;
use crate::codec::websocket::Close;
use crate::codec::{Kind, Violation};
pub(crate) use crate::endpoint::Endpoint;
use crate::slab::Key;

/// Something that happened at an endpoint.
///
/// The order at one connection is: first `Connected` or `Accepted`, then any number of `Message`
/// (in the order they were sent) and `Drained`, and finally one `Closed`. With
/// [half-open](crate::Options::half_open) connections, one `Finished` may come before `Closed`; no
/// `Message` follows it. A connection that could not be opened has `Closed` alone.
///
/// A peer whose connection ends before a listener has accepted it, as by a failed handshake, has
/// `AcceptFailed` alone.
///
/// A connection with [`Options::reconnect`](crate::Options::reconnect) starts over after each
/// `Lost`, and has one `Closed` at the very end.
///
/// A listener has one `Closed`. A datagram socket has only `Message` and `Drained` in any order,
/// and one `Closed`.
///
/// New variants may be added: ignore the ones you do not know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a, S> {
    /// What [`Handle::connect`](crate::Handle::connect) started is open, including a WebSocket's
    /// handshake.
    Connected(Endpoint),
    /// A peer connected to a listener.
    Accepted {
        /// The new connection.
        endpoint: Endpoint,
        /// The listener that accepted it.
        listener: Endpoint,
    },
    /// A peer connected to a listener, and the connection ended before it was open: its handshake
    /// was refused, invalid or too slow. Reported as soon as that is known. No other event has this
    /// endpoint.
    // Borrowed, because an event has to take little code to drop. Otherwise functions that receive
    // messages are not inlined whole, and each message passes through memory: a fifth of its time.
    AcceptFailed(&'a AcceptFailure),
    /// A message arrived. Without message framing, this is whatever one read returned. It is valid
    /// until the next event: [`Message::take`] keeps it.
    Message(Endpoint, Message<'a>),
    /// Everything queued at a connection has been passed to the kernel, after a send returned
    /// [`Outcome::Queued`] or [`Outcome::Full`]. For a socket shared by several peers: it can send
    /// again, to any of them.
    Drained(Endpoint),
    /// The peer sends no more, but can still receive. Reported only with
    /// [`Options::half_open`](crate::Options::half_open).
    Finished(Endpoint),
    /// A connection ended or could not be opened, and will reconnect under the same endpoint.
    /// Reported only with [`Options::reconnect`](crate::Options::reconnect).
    Lost {
        /// The connection.
        endpoint: Endpoint,
        /// Why it was lost.
        reason: Reason,
        /// How many accepted bytes were not written, including frame headers. The peer may not have
        /// read everything that was written.
        unwritten: usize,
        /// The delay before the next attempt.
        again_in: Duration,
    },
    /// A connection, listener or socket ended. No event follows for this endpoint.
    ///
    /// [`Handle::counters_of`](crate::Handle::counters_of) returns its last counters until the node
    /// is asked for the next event.
    ///
    /// If the peer violated the protocol or missed a deadline, this is reported at once. The peer
    /// still gets a closing frame or an HTTP response with the cause. Until it ends the connection
    /// too, at most for [`Limits::flush`](crate::Limits), the connection counts for
    /// [`Limits::connections`](crate::Limits).
    Closed {
        /// The endpoint that ended.
        endpoint: Endpoint,
        /// Why it ended.
        reason: Reason,
    },
    /// A value passed to [`Handle::signal`](crate::Handle::signal), `signal_first` or
    /// `signal_after`.
    Signal(S),
}

impl<S> Event<'_, S> {
    /// The endpoint that has ended, if this is its last event.
    pub(crate) fn ended(&self) -> Option<Endpoint> {
        match self {
            Event::Closed { endpoint, .. } => Some(*endpoint),
            Event::AcceptFailed(failure) => Some(failure.endpoint),
            _ => None,
        }
    }
}

/// Which connection a listener could not accept, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct AcceptFailure {
    /// The connection.
    pub endpoint: Endpoint,
    /// The listener. [`Handle::local_address`](crate::Handle::local_address) returns its address.
    pub listener: Endpoint,
    /// The peer's address in terms of the underlying transport, if it has one: to log it, or to
    /// refuse it in future.
    pub peer: Option<Address>,
    /// Why the connection ended.
    pub reason: Reason,
}

impl AcceptFailure {
    /// Stands for a failure in the node's outbox: see [`Node`](crate::Node). Its contents mean
    /// nothing.
    pub(crate) const PLACEHOLDER: &'static AcceptFailure = &AcceptFailure {
        endpoint: Endpoint { key: Key::NONE, remote: None },
        listener: Endpoint { key: Key::NONE, remote: None },
        peer: None,
        reason: Reason::Ended,
    };
}

impl fmt::Display for AcceptFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.peer {
            Some(peer) => write!(f, "{peer} was not accepted: {}", self.reason),
            None => write!(f, "a peer without an address was not accepted: {}", self.reason),
        }
    }
}

/// A received message, borrowed from the node until the next event. It dereferences to `[u8]`.
pub struct Message<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) kind: Kind,
}

/// Where the bytes lie.
pub(crate) enum Bytes<'a> {
    /// In a buffer shared with other messages.
    Lent(&'a [u8]),
    /// In a vector of their own.
    Whole(&'a mut Vec<u8>),
}

impl Message<'_> {
    /// Whether the message is text (valid UTF-8, of a WebSocket) or binary.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Turns the message into a `Vec`. A long message that came in several reads is moved without
    /// copying; any other is copied.
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

/// The result of a send. New variants may be added; [`Outcome::is_accepted`] covers them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a message that was not accepted is not sent later"]
pub enum Outcome {
    /// The kernel has all of it, or another thread that is sending at the same time writes it next.
    Sent,
    /// Accepted, and queued in part or whole until the peer reads. `Drained` follows when nothing
    /// is queued any more.
    Queued,
    /// Not accepted: the queue is full or, for a datagram, the peer's address is still being
    /// resolved. `Drained` reports when to try again.
    Full,
    /// Not accepted, and never will be: it is longer than the transport or
    /// [`Limits::message`](crate::Limits) allows.
    TooLarge,
    /// Not accepted: the connection is gone, is closing, or was [finished](crate::Handle::finish).
    Closed,
    /// Not accepted: the endpoint belongs to another node. Only a [`Handle`](crate::Handle) of that
    /// node can send to it.
    ForeignEndpoint,
    /// The kernel refused this datagram, for example because there is no route to the peer.
    Refused(io::ErrorKind),
}

impl Outcome {
    /// Whether the message was accepted. An accepted message is delivered unless the connection
    /// ends first.
    pub fn is_accepted(self) -> bool {
        matches!(self, Outcome::Sent | Outcome::Queued)
    }
}

/// Why an endpoint ended or a connection was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Closed on this side, after everything queued was written.
    #[error("closed here")]
    Closed,
    /// Closed on this side. So many bytes, with frame headers, were still queued and could not be
    /// written in time.
    #[error("closed here, and {0} bytes were not written in time")]
    Unwritten(usize),
    /// The peer ended the connection between two messages.
    #[error("ended by the peer")]
    Ended,
    /// The peer ended the connection in the middle of a message.
    #[error("ended by the peer in the middle of a message")]
    Truncated,
    /// A WebSocket peer sent a closing frame, with this code and reason.
    #[error("closed by the peer: {}{}", .0.code.map_or("no code".to_owned(), |code| code.to_string()), with_colon(&.0.reason))]
    ClosedByPeer(Close),
    /// The connection could not be opened.
    #[error("not connected: {0}")]
    NotConnected(io::Error),
    /// The operating system reported an error, such as a reset by the peer.
    #[error("{0}")]
    Io(io::Error),
    /// The peer violated the protocol or exceeded a limit.
    #[error("{0}")]
    Violation(Violation),
    /// A deadline of [`Limits`](crate::Limits) passed.
    #[error("{0}")]
    Late(Late),
    /// The incomplete messages of all peers together exceed [`Limits::unfinished`](crate::Limits).
    #[error("the incomplete messages of all peers exceed Limits::unfinished")]
    NoRoom,
}

fn with_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Which deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Late {
    /// The connection was not open within [`Limits::handshake`](crate::Limits). If a proxy was
    /// late, the reason is [`Reason::NotConnected`] instead, with a
    /// [`ProxyError`](crate::ProxyError).
    #[error("timed out before the connection was open")]
    Handshake,
    /// A message was not complete within [`Limits::message_timeout`](crate::Limits).
    #[error("a message was not complete in time")]
    Message,
    /// Nothing was received, and nothing could be written, for [`Limits::idle`](crate::Limits).
    #[error("idle for too long")]
    Idle,
    /// A WebSocket peer did not answer a ping within [`Limits::heartbeat`](crate::Limits).
    #[error("a ping was not answered in time")]
    Heartbeat,
}
