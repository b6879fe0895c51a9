//! Why a channel cannot send or receive any more.

use thiserror::Error;

use crate::error::{OpenError, Violation};

/// Why a message was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The channel is full. Only calls that do not wait return it.
    #[error("the channel is full")]
    Full,
    /// The message is longer than [`Options::max_message`](crate::Options::max_message).
    #[error("a message of {len} bytes is longer than {max} bytes; make a channel with a larger max_message")]
    TooLong {
        /// The length of the message.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// The receiver was dropped.
    #[error("the receiver is closed")]
    Closed,
    /// The receiver's process died.
    #[error("the receiver's process died")]
    PeerDied,
    /// The peer broke the protocol. This end stays closed.
    #[error("closed since the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The system has no memory for a message that is longer than the ring.
    #[error(transparent)]
    NoMemory(OpenError),
}

/// Why no message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The sender was dropped, and everything it sent was received.
    #[error("the sender is closed")]
    Closed,
    /// The sender's process died, and everything it sent was received.
    #[error("the sender's process died")]
    PeerDied,
    /// The peer broke the protocol. This end stays closed.
    #[error("closed since the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
}

/// How the other end ended: dropped, or with its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Closed,
    Died,
}

impl From<Ended> for SendError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Died => Self::PeerDied,
        }
    }
}

impl From<Ended> for RecvError {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Closed => Self::Closed,
            Ended::Died => Self::PeerDied,
        }
    }
}
