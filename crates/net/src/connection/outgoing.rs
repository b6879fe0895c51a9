//! The state of the sending half of a connection, under its lock.

use std::io;
use std::time::Instant;

use crate::backend::WritableSwitch;
use crate::codec::websocket::mask::Keys;
use crate::deflate::Compressor;
use crate::event::Outcome;
use crate::queue::Queue;

/// The state of the sending half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The handshake is not over: messages are queued.
    Opening,
    Open,
    /// The queue is written and nothing more is accepted; reading continues.
    Finishing,
    /// The queue is written and nothing more is accepted, then the connection closes.
    Closing,
    Closed,
    /// Replaced by another connection, after it could not connect or was lost.
    Replaced,
}

/// How the user asked to end the sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedEnd {
    Finish,
    Close,
}

/// The state of the sending half, under its lock.
pub(super) struct Outgoing {
    pub(super) phase: Phase,
    /// Whole and partial frames to be written.
    pub(super) queue: Queue,
    /// Whole frames that wait for the end of the handshake.
    pub(super) early: Queue,
    /// Whole frames that other threads left to the next one in line. Empty unless a thread is in
    /// line.
    pub(super) delegated: Vec<u8>,
    /// How many bytes of the queues the node's total counts.
    pub(super) counted: usize,
    /// Whether to report `Drained` when the queue is empty.
    pub(super) owes_drained: bool,
    /// Set before the node has handled it, or while the connection opens. Nothing more is accepted.
    pub(super) requested_end: Option<RequestedEnd>,
    /// Whether a successor replaces this connection if it is lost.
    pub(super) will_reconnect: bool,
    /// How many accepted bytes could not be written.
    pub(super) unwritten: usize,
    /// When something was written last, if an idle limit or a heartbeat applies.
    pub(super) last_write: Option<Instant>,
    /// The masking keys of a WebSocket client.
    pub(super) keys: Option<Keys>,
    /// What the handshake of a WebSocket agreed upon.
    pub(super) subprotocol: Option<Box<str>>,
    /// Compresses sent messages, if the handshake agreed upon that.
    pub(super) compressor: Option<Box<Compressor>>,
    /// Set where writability is reported only on request.
    pub(super) writable: Option<OnDemandWritable>,
    pub(super) counts: SendCounts,
    /// Whether a refused send was noted since the queue last drained:
    /// [`super::Connection::notes_full`].
    #[cfg(feature = "tracing")]
    pub(super) full_noted: bool,
}

/// What was sent so far.
#[derive(Clone, Copy, Default)]
pub(super) struct SendCounts {
    /// Accepted messages.
    pub(super) messages: u64,
    /// Bytes that the link accepted.
    pub(super) bytes: u64,
    /// Sends that were refused because the queue was full.
    pub(super) refused: u64,
}

/// Writability notifications that are switched on and off.
pub(super) struct OnDemandWritable {
    pub(super) switch: WritableSwitch,
    pub(super) enabled: bool,
    /// Once switched on, they stay on.
    pub(super) permanent: bool,
}

impl Outgoing {
    /// That of a connection that opens.
    pub(super) fn new(keys: Option<Keys>) -> Outgoing {
        Outgoing {
            phase: Phase::Opening,
            queue: Queue::default(),
            early: Queue::default(),
            delegated: Vec::new(),
            counted: 0,
            owes_drained: false,
            requested_end: None,
            will_reconnect: false,
            unwritten: 0,
            last_write: None,
            keys,
            subprotocol: None,
            compressor: None,
            writable: None,
            counts: SendCounts::default(),
            #[cfg(feature = "tracing")]
            full_noted: false,
        }
    }

    /// The outcome of a send after the end: `Full` if a successor may accept it later, otherwise
    /// `Closed`.
    pub(super) fn refuse(&mut self) -> Outcome {
        if !self.will_reconnect {
            return Outcome::Closed;
        }
        self.owes_drained = true;
        Outcome::Full
    }

    /// How many bytes wait here.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queue.len() + self.early.len()
    }

    /// Returns the masking key of the next frame, if frames are masked.
    pub(super) fn next_key(&mut self) -> io::Result<Option<[u8; 4]>> {
        self.keys.as_mut().map(Keys::next).transpose()
    }

    /// Counts a send of so many messages.
    #[inline(always)]
    pub(super) fn count(&mut self, sent: &io::Result<Option<Outcome>>, messages: usize) {
        match sent {
            Ok(Some(Outcome::Sent | Outcome::Queued)) => self.counts.messages += messages as u64,
            Ok(Some(Outcome::Full)) => self.counts.refused += 1,
            _ => {}
        }
    }
}
