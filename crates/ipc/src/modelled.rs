//! The replacement of `memory.rs` under loom: objects instead of bytes, with each access checked.

use std::fmt;
use std::ops::{Deref, DerefMut};

use loom::cell::{ConstPtr, MutPtr, UnsafeCell};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Memory<C>(Arc<Parts<C>>);

struct Parts<C> {
    controls: C,
    descriptors: Vec<AtomicU64>,
    /// The headers at multiples of eight bytes.
    words: Vec<AtomicU64>,
    /// The payloads at multiples of eight bytes: one byte each.
    cells: Vec<UnsafeCell<[u8; 1]>>,
}

// SAFETY: loom checks every access to a cell, and reports conflicting ones.
unsafe impl<C: Sync> Send for Parts<C> {}
// SAFETY: as above.
unsafe impl<C: Sync> Sync for Parts<C> {}

impl<C> Clone for Memory<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> fmt::Debug for Memory<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl<C> Memory<C> {
    pub(crate) fn new(controls: C, capacity: usize, descriptors: usize) -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let cells = (0..capacity / 8).map(|_| UnsafeCell::new([0])).collect();
        Self(Arc::new(Parts { controls, descriptors: zeros(descriptors), words: zeros(capacity / 8), cells }))
    }

    pub(crate) fn controls(&self) -> &C {
        &self.0.controls
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.0.cells.len() as u64 * 8
    }

    pub(crate) fn descriptors(&self) -> u64 {
        self.0.descriptors.len() as u64
    }

    pub(crate) fn descriptor(&self, index: u64) -> &AtomicU64 {
        &self.0.descriptors[(index % self.descriptors()) as usize]
    }

    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        &self.0.words[(position / 8) as usize % self.0.words.len()]
    }

    /// # Safety
    ///
    /// Until the result is dropped, a clone of this memory must live. loom checks the rest.
    pub(crate) unsafe fn bytes(&self, position: u64, _len: usize) -> Bytes {
        Bytes(self.cell(position).get())
    }

    /// # Safety
    ///
    /// Until the result is dropped, a clone of this memory must live. loom checks the rest.
    pub(crate) unsafe fn bytes_mut(&self, position: u64, _len: usize) -> BytesMut {
        BytesMut(self.cell(position).get_mut())
    }

    /// Copies the words, which also represent the payload.
    pub(crate) fn copy(&self, position: u64, to: &mut [u8]) {
        for (index, place) in to.as_chunks_mut().0.iter_mut().enumerate() {
            *place = self.word(position + 8 * index as u64).load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    fn cell(&self, position: u64) -> &UnsafeCell<[u8; 1]> {
        &self.0.cells[(position / 8) as usize % self.0.cells.len()]
    }
}

/// loom reports any write to the byte as long as this lives.
pub(crate) struct Bytes(ConstPtr<[u8; 1]>);

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: alive, as the caller of `bytes` guarantees; not written, as loom checks.
        unsafe { self.0.deref() }
    }
}

/// loom reports any other access to the byte as long as this lives.
pub(crate) struct BytesMut(MutPtr<[u8; 1]>);

impl Deref for BytesMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: alive, as the caller of `bytes_mut` guarantees; not shared, as loom checks.
        unsafe { self.0.deref() }
    }
}

impl DerefMut for BytesMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`.
        unsafe { self.0.deref() }
    }
}
