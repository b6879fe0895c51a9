//! Errors: why shared memory could not be opened, and how a peer broke the protocol.

use std::io;

use thiserror::Error;

/// Why shared memory could not be created or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot {task}: {source}")]
    System {
        /// What failed, as a verb phrase: "map the ring".
        task: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The ring would be longer than the maximum.
    #[error("a ring of {bytes} bytes is longer than {max} bytes; ask for a lower capacity")]
    TooLarge {
        /// The requested length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// The descriptor is not a file of the expected kind and version.
    #[error("the descriptor is not {what} of estafette-ipc: {reason}")]
    NotOurs {
        /// The expected kind: "a ring".
        what: &'static str,
        /// Why it does not match.
        reason: String,
    },
    /// The number or index of members is out of range.
    #[error("a ring has 1 to {max} members, not {found}")]
    Members {
        /// The requested number of members, or the requested index.
        found: usize,
        /// The maximum.
        max: usize,
    },
    /// The ring is closed and accepts no more messages.
    #[error("the ring is closed; make a new one")]
    Closed,
    /// An earlier member with this index left a claim.
    #[error("member {member} left a claim behind; call RingControl::recover for it first")]
    NotRecovered {
        /// The member's index.
        member: usize,
    },
    /// The end was opened before. Each end of a channel can be opened once.
    #[error("the channel's {end} was opened before; make a new channel")]
    Taken {
        /// "sender" or "receiver".
        end: &'static str,
    },
}

impl OpenError {
    pub(crate) fn system<E: Into<io::Error>>(task: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { task, source: source.into() }
    }
}

/// A value in shared memory that no correct peer writes. The end that reads it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The producer's position is impossible.
    #[error("a peer moved the tail to {tail}, which is impossible")]
    Tail {
        /// The value that was read.
        tail: u64,
    },
    /// The consumers' position is impossible.
    #[error("a peer moved the head to {head}, which is impossible")]
    Head {
        /// The value that was read.
        head: u64,
    },
    /// The position of the next claim is impossible.
    #[error("a peer wrote an impossible position of the next claim: {word:#x}")]
    ClaimWord {
        /// The value that was read.
        word: u64,
    },
    /// A record does not fit at its position.
    #[error("a peer wrote a record of {len} bytes at {position}, where there is no space for it")]
    Record {
        /// The length in its header.
        len: u64,
        /// Its position in the ring.
        position: u64,
    },
    /// A claim is not within the ring's messages.
    #[error("a peer wrote an impossible claim: {from} to {to}")]
    Claim {
        /// Its start.
        from: u64,
        /// Its end.
        to: u64,
    },
    /// A shared word changed at every retry, more often than a correct peer changes it.
    #[error("a peer changed a shared word at every retry")]
    TooManyChanges,
    /// The memory of a large message does not match its announcement.
    #[error("a peer announced a large message without memory for it")]
    LargeMessage,
}
