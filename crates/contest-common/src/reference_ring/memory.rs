//! The memory of a ring: on the heap, for threads, or in a mapping, for processes.
//!
//! ```text
//! 0      128        256        384                                        384 + slots * stride
//! | front | tail lane | head lane | slot 0 | slot 1 | ...                  |
//! ```
//!
//! Each of the first three parts has two cache lines to itself, because processors fetch lines in
//! pairs. A ring on the heap has the same layout and leaves the front unused. Every page is touched
//! before the first message.

use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::MmapRaw;

use super::error::Error;
use super::lane::Lane;
use super::shape::Shape;

/// The control words before the slots.
#[derive(Debug)]
#[repr(C, align(128))]
struct Controls {
    front: Front,
    tail: Lane,
    head: Lane,
}

/// The front of a mapping. The header is written and read through the file, before anything is
/// mapped.
#[derive(Debug)]
#[repr(C, align(128))]
struct Front {
    _header: [u64; 8],
    /// The ends that were opened, as bits of [`End`].
    opened: AtomicU32,
}

// The layout is a protocol between processes.
const _: () = assert!(size_of::<Controls>() == 384);
const _: () = assert!(offset_of!(Controls, tail) == 128 && offset_of!(Controls, head) == 256);
const _: () = assert!(align_of::<Block>() == align_of::<Controls>() && size_of::<Block>() == 128);

/// One of the two ends of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Producer,
    Consumer,
}

impl End {
    pub(super) fn name(self) -> &'static str {
        match self {
            End::Producer => "producer",
            End::Consumer => "consumer",
        }
    }
}

/// Returns the total size in bytes of a ring of this shape.
pub(super) fn size(shape: Shape) -> usize {
    // No overflow: the slots of a shape have at most `Shape::MOST_BYTES`.
    size_of::<Controls>() + shape.bytes()
}

/// A ring's memory. Each end has a handle.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Points to the start of `owner`'s memory.
    controls: NonNull<Controls>,
    /// Points to the `shape.bytes()` bytes after the controls.
    slots: NonNull<u8>,
    /// The number of slots minus one.
    mask: u64,
    shape: Shape,
    #[expect(dead_code, reason = "keeps the memory alive, which the pointers reach")]
    owner: Arc<Owner>,
}

/// The owner of the memory.
#[derive(Debug)]
#[expect(dead_code, reason = "as above")]
enum Owner {
    Heap(Vec<Block>),
    Mapping(MmapRaw),
}

/// A block of heap memory with the alignment of a ring. It consists of atomics, because both ends
/// have a pointer to it.
#[derive(Debug)]
#[repr(align(128))]
#[expect(dead_code, reason = "as above")]
struct Block([AtomicU64; 16]);

impl Block {
    fn zero() -> Self {
        Self([const { AtomicU64::new(0) }; 16])
    }
}

// SAFETY: the pointers move together with `owner`, which is Send and Sync and whose memory does not
// move. Their targets are atomic, except for the slots. The callers of `slot` and `slot_mut`
// guarantee that two threads do not access a slot in conflict.
unsafe impl Send for Memory {}

impl Memory {
    /// Allocates zeroed memory on the heap.
    ///
    /// # Errors
    ///
    /// If there is not enough memory.
    pub(super) fn heap(shape: Shape) -> Result<Self, Error> {
        let bytes = size(shape);
        let blocks = bytes.div_ceil(size_of::<Block>());
        let mut heap = Vec::new();
        heap.try_reserve_exact(blocks).map_err(|_| Error::OutOfMemory { bytes })?;
        // Writing the zeros touches all pages.
        heap.resize_with(blocks, Block::zero);
        let start = NonNull::from(heap.as_slice()).cast();
        // SAFETY: the blocks are at least `size(shape)` initialised bytes, aligned like `Controls`.
        // They consist of atomics, so they may be written through a pointer from a shared
        // reference. Nobody changes the `Vec`, so the blocks do not move.
        Ok(unsafe { Self::new(start, shape, Owner::Heap(heap)) })
    }

    /// Wraps the mapping of a file of exactly `size(shape)` bytes. The file must not shrink.
    pub(super) fn mapping(map: MmapRaw, shape: Shape) -> Self {
        assert_eq!(map.len(), size(shape), "the mapping has another size than the ring");
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping is never at address zero").cast();
        // SAFETY: the mapping has `size(shape)` initialised bytes, by the assertion, and begins on
        // a page. It does not move until it is dropped. Its pages stay in the file, because the
        // file is sealed, or because the caller of `Opening::unsealed` guaranteed it.
        unsafe { Self::new(start, shape, Owner::Mapping(map)) }
    }

    /// # Safety
    ///
    /// `start` must point to `size(shape)` bytes that are initialised, aligned like [`Controls`],
    /// writable, reached by no other reference, and valid while `owner` is alive. Any bytes are
    /// valid [`Controls`].
    unsafe fn new(start: NonNull<Controls>, shape: Shape, owner: Owner) -> Self {
        // SAFETY: the slots begin after the controls and end with the memory or before.
        let slots = unsafe { start.add(1) }.cast();
        Self { controls: start, slots, mask: shape.slots() as u64 - 1, shape, owner: Arc::new(owner) }
    }

    #[inline]
    fn controls(&self) -> &Controls {
        // SAFETY: the caller of `new` guaranteed that the controls exist as long as `owner`, which
        // `self` keeps alive. They consist of atomics, for which any bits are valid and which
        // anyone may change at any time.
        unsafe { self.controls.as_ref() }
    }

    /// The lane from producer to consumer.
    #[inline]
    pub(super) fn tail(&self) -> &Lane {
        &self.controls().tail
    }

    /// The lane from consumer to producer.
    #[inline]
    pub(super) fn head(&self) -> &Lane {
        &self.controls().head
    }

    /// The number of slots.
    #[inline]
    pub(super) fn slots(&self) -> u64 {
        self.mask + 1
    }

    /// Claims an end permanently. Returns false if it was already claimed.
    pub(super) fn claim(&self, end: End) -> bool {
        let bit = match end {
            End::Producer => 1 << 0,
            End::Consumer => 1 << 1,
        };
        self.controls().front.opened.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Returns the slot of message number `index` for writing.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, some handle of this memory must exist, and nobody else in this
    /// process may access the slot.
    #[inline]
    pub(super) unsafe fn slot_mut(&self, index: u64) -> BytesMut {
        BytesMut(self.slot_at(index))
    }

    /// Returns the slot of message number `index` for reading.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, some handle of this memory must exist, and nobody in this
    /// process may write the slot.
    #[inline]
    pub(super) unsafe fn slot(&self, index: u64) -> BytesRef {
        BytesRef(self.slot_at(index))
    }

    #[inline]
    fn slot_at(&self, index: u64) -> NonNull<[u8]> {
        let offset = (index & self.mask) as usize * self.shape.stride();
        // SAFETY: for any index the offset is at most `(slots - 1) * stride`, so the `slot <=
        // stride` bytes from there are within the `shape.bytes()` bytes of the slots.
        let start = unsafe { self.slots.add(offset) };
        NonNull::slice_from_raw_parts(start, self.shape.slot())
    }
}

/// The bytes of a slot, for writing. It stores a pointer, because the reference must end when the
/// slot is passed on, not when a function that received it returns.
pub(super) struct BytesMut(NonNull<[u8]>);

impl std::ops::Deref for BytesMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds by `slot_at`, initialised when the memory was created, alive and
        // unshared as the caller of `slot_mut` guaranteed.
        unsafe { self.0.as_ref() }
    }
}

impl std::ops::DerefMut for BytesMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`.
        unsafe { self.0.as_mut() }
    }
}

/// The bytes of a slot, for reading.
pub(super) struct BytesRef(NonNull<[u8]>);

impl std::ops::Deref for BytesRef {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds by `slot_at`, initialised when the memory was created, alive and not
        // written as the caller of `slot` guaranteed.
        unsafe { self.0.as_ref() }
    }
}
