//! The line of threads that send on one connection at the same time (a bounded form of flat
//! combining).
//!
//! A thread that finds the connection's lock taken joins the line. A thread that has the lock, and
//! sees another thread in line, leaves its frame to that one. So one system call sends many
//! messages. No thread sends for others for ever, and no message waits for one that does not exist
//! yet. The loom models in `models/` try the orders.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// How many threads are in line.
pub(crate) struct Line(AtomicUsize);

impl Line {
    pub(crate) fn new() -> Line {
        Line(AtomicUsize::new(0))
    }

    /// Joins the line. The caller has found the lock taken, and waits for it next.
    #[inline]
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves the line. The caller holds the lock.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of threads in line. The caller holds the lock. Every thread leaves under
    /// the lock, which orders what they see: a thread that is counted now has not had the lock yet,
    /// and will take it later.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
