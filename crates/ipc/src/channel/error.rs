//! Why a channel carries nothing more.

use thiserror::Error;

use crate::error::{OpenError, Violation};

/// Why a message was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The channel is full. Only where the caller asked not to wait.
    #[error("the channel is full")]
    Full,
    /// The message is longer than [`Options::max_message`](crate::Options::max_message).
    #[error("a message of {len} bytes is longer than {max} bytes; make a channel with a larger max_message")]
    TooLong {
        /// Its bytes.
        len: usize,
        /// The most.
        max: usize,
    },
    /// The receiver was dropped.
    #[error("the receiver is closed")]
    Closed,
    /// The receiver's process died.
    #[error("the receiver's process died")]
    PeerDied,
    /// The peer broke the protocol. This end is closed for good.
    #[error("closed since the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
    /// The system has no memory for a message that is longer than the ring.
    #[error(transparent)]
    NoMemory(OpenError),
}

/// Why no message comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The sender was dropped, and everything it sent was received.
    #[error("the sender is closed")]
    Closed,
    /// The sender's process died, and everything it sent was received.
    #[error("the sender's process died")]
    PeerDied,
    /// The peer broke the protocol. This end is closed for good.
    #[error("closed since the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
}

/// How the other end ended.
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
