//! Why a ring could not be made or opened.

use std::{fmt, io};

/// Why a ring could not be made or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The memory could not be allocated.
    OutOfMemory {
        /// The size of the whole ring in bytes.
        bytes: usize,
    },
    /// A system call failed.
    System {
        /// What was attempted, as a verb phrase: "map the ring".
        task: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a ring, or a ring of another version.
    NotARing {
        /// Why it is not a ring.
        reason: String,
    },
    /// The ring in the file has another shape or way of waiting than this end expects.
    Mismatch {
        /// What differs: "bytes of a slot".
        what: &'static str,
        /// What this end expects.
        wanted: u64,
        /// What the file contains.
        found: u64,
    },
    /// The end was already opened. Each end of a ring can be opened once.
    AlreadyOpened {
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => {
                write!(f, "cannot allocate {bytes} bytes for the ring; use fewer or smaller slots")
            }
            Self::System { task, source } => write!(f, "cannot {task}: {source}"),
            Self::NotARing { reason } => write!(f, "not a reference ring: {reason}"),
            Self::Mismatch { what, wanted, found } => {
                write!(f, "the ring was created with other {what} than it is opened with: {found}, not {wanted}")
            }
            Self::AlreadyOpened { end } => write!(f, "the ring's {end} was already opened; create a new ring"),
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
