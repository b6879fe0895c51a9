//! Replaces `memory.rs` under loom: objects instead of bytes, with each access verified.

use std::ops::{Deref, DerefMut};

use loom::cell::{ConstPtr, MutPtr, UnsafeCell};
use loom::sync::Arc;

use super::lane::Lane;
use super::shape::Shape;

#[derive(Clone)]
pub(super) struct Memory(Arc<Parts>);

struct Parts {
    tail: Lane,
    head: Lane,
    slots: Vec<UnsafeCell<Box<[u8]>>>,
}

// SAFETY: loom verifies every access to a slot and reports conflicts.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

impl Memory {
    pub(super) fn heap(shape: Shape) -> Self {
        let slots = (0..shape.slots()).map(|_| UnsafeCell::new(vec![0; shape.slot()].into()));
        Self(Arc::new(Parts { tail: Lane::new(), head: Lane::new(), slots: slots.collect() }))
    }

    pub(super) fn tail(&self) -> &Lane {
        &self.0.tail
    }

    pub(super) fn head(&self) -> &Lane {
        &self.0.head
    }

    pub(super) fn slots(&self) -> u64 {
        self.0.slots.len() as u64
    }

    /// # Safety
    ///
    /// Until the result is dropped, some handle of this memory must exist. loom verifies the rest.
    pub(super) unsafe fn slot_mut(&self, index: u64) -> BytesMut {
        BytesMut(self.slot_at(index).get_mut())
    }

    /// # Safety
    ///
    /// Until the result is dropped, some handle of this memory must exist. loom verifies the rest.
    pub(super) unsafe fn slot(&self, index: u64) -> BytesRef {
        BytesRef(self.slot_at(index).get())
    }

    fn slot_at(&self, index: u64) -> &UnsafeCell<Box<[u8]>> {
        &self.0.slots[(index % self.slots()) as usize]
    }
}

/// The bytes of a slot, for writing. loom reports any other access to the slot while this exists.
pub(super) struct BytesMut(MutPtr<Box<[u8]>>);

impl Deref for BytesMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: alive as the caller of `slot_mut` guaranteed, unshared as loom verifies.
        unsafe { self.0.deref() }
    }
}

impl DerefMut for BytesMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`.
        unsafe { self.0.deref() }
    }
}

/// The bytes of a slot, for reading. loom reports any write access to the slot while this exists.
pub(super) struct BytesRef(ConstPtr<Box<[u8]>>);

impl Deref for BytesRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: alive as the caller of `slot` guaranteed, not written as loom verifies.
        unsafe { self.0.deref() }
    }
}
