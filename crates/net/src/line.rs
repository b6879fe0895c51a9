//! The line of threads that send by one connection at the same time: whoever has the connection's lock, and knows of another who is
//! about to have it, leaves a frame to that one. So many messages leave by one system call, nobody sends for others for ever, and
//! none waits for a message that has yet to be made. `models/` has the orders tried.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// How many are in line.
pub(crate) struct Line(AtomicUsize);

impl Line {
    pub(crate) fn new() -> Line {
        Line(AtomicUsize::new(0))
    }

    /// The one who calls this takes the lock next.
    #[inline]
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The one who calls this has taken it. Whether another is in line, who will have it later: everybody leaves under the lock, which
    /// orders all that they see, so who is counted now has not had it yet.
    #[inline]
    pub(crate) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) > 1
    }

    #[cfg(test)]
    #[allow(dead_code, reason = "the models have no use for it")]
    pub(crate) fn len(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
