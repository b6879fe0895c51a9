//! How much all connections of a node buffer together.

use std::sync::atomic::AtomicUsize;

use crate::partial_message::SpareMemory;
use crate::queue::SpareChunks;

/// Byte totals over all connections of a node.
#[derive(Debug, Default)]
pub(crate) struct BufferTotals {
    pub(crate) queued: AtomicUsize,
    pub(crate) unfinished: AtomicUsize,
    /// Memory for queues, and for frames that several threads send together.
    pub(crate) spares: SpareChunks,
    /// Memory for a long message that arrives.
    pub(crate) spare_memory: SpareMemory,
}
