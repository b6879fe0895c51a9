//! Why a ring could not be made or opened.

use std::{fmt, io};

use super::memory::End;

/// Why a ring could not be made or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The memory could not be allocated.
    OutOfMemory {
        /// The bytes of the whole ring.
        bytes: usize,
    },
    /// The system refused something.
    System {
        /// What was tried, as a verb phrase: "map the ring".
        task: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a ring, or not one of this version.
    NotARing {
        /// What is wrong with it.
        reason: String,
    },
    /// The file is a ring of another shape or manner of waiting than this end was told.
    Mismatch {
        /// What differs: "bytes of a slot".
        what: &'static str,
        /// What this end was told.
        wanted: u64,
        /// What the file says.
        found: u64,
    },
    /// The end was taken before. Each end of a ring can be opened once.
    Taken {
        /// "producer" or "consumer".
        end: &'static str,
    },
}

impl Error {
    pub(super) fn system(task: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::System { task, source: errno.into() }
    }

    pub(super) fn not_a_ring(reason: impl Into<String>) -> Self {
        Self::NotARing { reason: reason.into() }
    }

    pub(super) fn taken(end: End) -> Self {
        let end = match end {
            End::Producer => "producer",
            End::Consumer => "consumer",
        };
        Self::Taken { end }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => {
                write!(f, "no {bytes} bytes of memory for the ring; use fewer or smaller slots")
            }
            Self::System { task, source } => write!(f, "cannot {task}: {source}"),
            Self::NotARing { reason } => write!(f, "not a reference ring: {reason}"),
            Self::Mismatch { what, wanted, found } => {
                write!(f, "the ring was created with other {what} than it is opened with: {found}, not {wanted}")
            }
            Self::Taken { end } => write!(f, "the ring's {end} was taken before; create a new ring"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}
