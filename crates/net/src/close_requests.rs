//! How many closes were requested.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many closes were requested. The node looks before each message whether there is a new one,
/// so that no message of a closed connection is delivered.
///
/// It has a cache line of its own, which is written by closes only: a look costs one load. The load
/// is relaxed, because the lock of the commands orders what the node does next. A close that
/// another thread requests at the same time may take effect one turn later.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CloseRequests(AtomicU32);

impl CloseRequests {
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more was requested. Call it after the command was queued.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
