//! How much all connections of a node buffer together.

use std::mem;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};

/// Byte totals over all connections of a node.
#[derive(Debug, Default)]
pub(crate) struct BufferTotals {
    pub(crate) queued: AtomicUsize,
    pub(crate) unfinished: AtomicUsize,
    /// A spare buffer for combined frames, for when no connection uses one: see [`crate::line`].
    spare: Mutex<Vec<u8>>,
}

impl BufferTotals {
    /// Takes the spare buffer.
    pub(crate) fn take_spare(&self) -> Vec<u8> {
        mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps a buffer for the next one that needs it.
    pub(crate) fn put_back(&self, mut spare: Vec<u8>) {
        spare.clear();
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = spare;
    }
}
