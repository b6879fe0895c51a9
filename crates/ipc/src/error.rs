//! Why shared memory could not be opened, and what a peer did that it must not.

use std::io;

use thiserror::Error;

/// Why shared memory could not be made or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused something.
    #[error("cannot {task}: {source}")]
    System {
        /// What was tried, as a verb phrase: "map the ring".
        task: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// More bytes than a ring may have.
    #[error("a ring of {bytes} bytes is longer than {max} bytes; ask for a lower capacity")]
    TooLarge {
        /// What was asked for.
        bytes: usize,
        /// The most.
        max: usize,
    },
    /// The descriptor is not what it should be.
    #[error("the descriptor is not {what} of estafette-ipc: {reason}")]
    NotOurs {
        /// What it should be: "a ring".
        what: &'static str,
        /// Why it is not.
        reason: String,
    },
    /// A ring has fewer members than that, or none.
    #[error("a ring has 1 to {max} members, not {found}")]
    Members {
        /// How many were asked for, or the index of the one that was.
        found: usize,
        /// The most.
        max: usize,
    },
    /// The ring was closed: no message may follow.
    #[error("the ring is closed; make a new one")]
    Closed,
    /// An earlier holder of this index left a claim.
    #[error("member {member} left a claim behind; call RingControl::recover for it first")]
    NotRecovered {
        /// The index.
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

/// What a peer wrote into shared memory that no correct peer writes. The end that sees it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The producer's position is impossible.
    #[error("a peer moved the tail to {tail}, which is impossible")]
    Tail {
        /// What was read.
        tail: u64,
    },
    /// The consumers' position is impossible.
    #[error("a peer moved the head to {head}, which is impossible")]
    Head {
        /// What was read.
        head: u64,
    },
    /// The position of the next claim is impossible.
    #[error("a peer wrote an impossible position of the next claim: {word:#x}")]
    ClaimWord {
        /// What was read.
        word: u64,
    },
    /// A record that does not fit where it lies.
    #[error("a peer wrote a record of {len} bytes at {position}, where there is no space for it")]
    Record {
        /// Its length as read.
        len: u64,
        /// Where it lies.
        position: u64,
    },
    /// A claim that does not lie within the ring's messages.
    #[error("a peer wrote an impossible claim: {from} to {to}")]
    Claim {
        /// Its first byte.
        from: u64,
        /// Its end.
        to: u64,
    },
    /// A shared word that changed at every retry, more often than a correct peer changes it.
    #[error("a peer changed a shared word at every retry")]
    TooManyChanges,
    /// A descriptor for a large message that is not what was announced.
    #[error("a peer announced a large message without memory for it")]
    LargeMessage,
}
