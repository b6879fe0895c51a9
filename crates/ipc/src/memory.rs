//! A shared file mapped into this process, and all pointer arithmetic of the crate.
//!
//! The data is mapped twice in a row. A range that wraps around the end of the ring is therefore
//! contiguous: a record needs no padding at the end, and a batch of records is one slice.
//!
//! What a hostile peer can do: every offset is masked and every length is checked against the
//! mapping, so no word in shared memory can lead outside of it. The file's size is sealed, so its
//! pages stay. The peer can change a message while it is read. Strictly, bytes that change behind a
//! reference are undefined behaviour, whoever changes them. As in every such library, the ends are
//! assumed to keep the protocol where that matters. A reader that cannot trust the peer copies the
//! message first. Data that may be overwritten during a copy is read with atomics, and the copy is
//! discarded if it was overwritten.

use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::error::OpenError;
use crate::file::{CONTROLS_AT, Pages, SharedFile, descriptors};
use crate::record::HEADER;

/// Control words that may lie in shared memory.
///
/// # Safety
///
/// The type consists of atomics only, which are valid for any bits. Its alignment is at most 128
/// bytes, and its size is the one in its [`Kind`](crate::file::Kind).
pub(crate) unsafe trait Controls: Sync + 'static {}

/// A mapped file. Clones share the mapping.
pub(crate) struct Memory<C: Controls> {
    controls: NonNull<C>,
    descriptors: NonNull<AtomicU64>,
    /// The number of descriptors minus one; zero if there are none.
    descriptor_mask: u64,
    data: NonNull<u8>,
    /// The capacity in bytes minus one; zero if there is no data.
    mask: u64,
    capacity: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: the pointers point into `mapping`, which moves with them and whose memory stays where it
// is. The control words are atomics. The data is accessed through atomics, and through `bytes` and
// `bytes_mut`, whose callers must ensure that no two threads conflict.
unsafe impl<C: Controls> Send for Memory<C> {}
// SAFETY: as above.
unsafe impl<C: Controls> Sync for Memory<C> {}

impl<C: Controls> Clone for Memory<C> {
    fn clone(&self) -> Self {
        Self { mapping: Arc::clone(&self.mapping), ..*self }
    }
}

impl<C: Controls> fmt::Debug for Memory<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<C: Controls> Memory<C> {
    /// Maps a file of the kind whose control words are `C`.
    pub(crate) fn map(file: &SharedFile) -> Result<Self, OpenError> {
        assert_eq!(size_of::<C>(), file.kind().controls, "control words of another kind of file");
        assert!(align_of::<C>() <= CONTROLS_AT, "control words with too large an alignment");
        let capacity = file.capacity();
        let mapping = Mapping::of(file)?;
        let start = mapping.start;
        // Without data or descriptors, every position maps to the first bytes of the file, which
        // are valid to access.
        let data_at = if capacity == 0 { 0 } else { file.data_at() };
        let (descriptors_at, count) = match file.kind().has_descriptors {
            true => (file.kind().controls_len(), descriptors(capacity) as u64),
            false => (0, 0),
        };
        // SAFETY: the mapping has `data_at() + 2 * capacity` bytes. The first `data_at()` bytes
        // contain the control words, at `CONTROLS_AT`, and then the descriptors.
        let at = |offset| unsafe { start.add(offset) };
        Ok(Self {
            controls: at(CONTROLS_AT).cast(),
            descriptors: at(descriptors_at).cast(),
            descriptor_mask: count.saturating_sub(1),
            data: at(data_at),
            mask: (capacity as u64).saturating_sub(1),
            capacity,
            mapping: Arc::new(mapping),
        })
    }

    /// The control words.
    #[inline]
    pub(crate) fn controls(&self) -> &C {
        // SAFETY: the control words lie within the mapping, which `self` keeps alive, at a multiple
        // of 128 bytes from the start of a page. Any bits are valid, and any process may change
        // them at any time.
        unsafe { self.controls.as_ref() }
    }

    /// The size of the data in bytes, a power of two.
    #[inline]
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// The number of descriptors, a power of two, or one if there are none.
    #[inline]
    pub(crate) fn descriptors(&self) -> u64 {
        self.descriptor_mask + 1
    }

    /// The descriptor at an index, modulo the number of descriptors.
    #[inline]
    pub(crate) fn descriptor(&self, index: u64) -> &AtomicU64 {
        // SAFETY: the offset is below the number of descriptors, or zero. The descriptors lie in
        // the mapping, at the start of a page, and any bits are valid.
        unsafe { self.descriptors.add((index & self.descriptor_mask) as usize).as_ref() }
    }

    /// The word at a position, rounded down to a multiple of eight.
    #[inline]
    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        let offset = (position & self.mask) as usize & !(HEADER - 1);
        // SAFETY: the offset is below the capacity, or zero, and a multiple of eight. So eight
        // bytes from there lie in the mapping, aligned. Where the word is also part of a payload,
        // only a reader that comes too late loads it, and it discards the value.
        unsafe { self.data.add(offset).cast::<AtomicU64>().as_ref() }
    }

    /// The `len` bytes at a position, for reading.
    ///
    /// # Panics
    ///
    /// If `len` is above the capacity.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, a clone of this memory must live, and nobody in this process
    /// may write the bytes.
    #[inline]
    pub(crate) unsafe fn bytes(&self, position: u64, len: usize) -> Bytes {
        Bytes(self.range(position, len))
    }

    /// The `len` bytes at a position, for writing.
    ///
    /// # Panics
    ///
    /// If `len` is above the capacity.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, a clone of this memory must live, and nobody else in this
    /// process may access the bytes.
    #[inline]
    pub(crate) unsafe fn bytes_mut(&self, position: u64, len: usize) -> BytesMut {
        BytesMut(self.range(position, len))
    }

    /// Copies the bytes at a position while another process may write them. The position and the
    /// length are multiples of eight. The caller checks afterwards whether the bytes were
    /// overwritten, and discards the copy if so.
    ///
    /// # Panics
    ///
    /// If the length is above the capacity.
    pub(crate) fn copy(&self, position: u64, to: &mut [u8]) {
        let from = self.range(position & !(HEADER as u64 - 1), to.len());
        // SAFETY: `range` has that many bytes in the mapping, which `self` keeps alive. They are
        // aligned, as the data begins at the start of a page. Any bits are valid. As with `word`,
        // the writer does not write atomically: a reader that comes too late discards the copy.
        let words = unsafe { std::slice::from_raw_parts(from.cast::<AtomicU64>().as_ptr(), to.len() / HEADER) };
        for (place, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    #[inline]
    fn range(&self, position: u64, len: usize) -> NonNull<[u8]> {
        assert!(len <= self.capacity, "more bytes than the ring has");
        // SAFETY: the offset is below the capacity, or zero. The data is mapped twice in a row, so
        // at least `capacity` bytes follow.
        let start = unsafe { self.data.add((position & self.mask) as usize) };
        NonNull::slice_from_raw_parts(start, len)
    }
}

/// Bytes for reading. A pointer and not a reference: access must end when the bytes are released,
/// not when a function to which they were passed returns.
#[derive(Debug)]
pub(crate) struct Bytes(NonNull<[u8]>);

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds by `range`, initialised since the file was created, alive and not
        // written, as the caller of `bytes` guarantees.
        unsafe { self.0.as_ref() }
    }
}

/// Bytes for writing.
#[derive(Debug)]
pub(crate) struct BytesMut(NonNull<[u8]>);

impl Deref for BytesMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: in bounds by `range`, initialised since the file was created, alive and not
        // shared, as the caller of `bytes_mut` guarantees.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for BytesMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`.
        unsafe { self.0.as_mut() }
    }
}

// SAFETY: equivalent to a reference, under the guarantee that the caller of `bytes` or `bytes_mut`
// gave.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Send for BytesMut {}

/// A reserved address range that maps the file: control words, data, and the data again.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn of(file: &SharedFile) -> Result<Self, OpenError> {
        let len = file.len() + file.capacity();
        let reserve = || {
            // SAFETY: the system chooses the address of the new mapping, so it replaces no other.
            unsafe { mmap_anonymous(null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE) }
        };
        let start = reserve().map_err(OpenError::system("reserve addresses"))?;
        let start = NonNull::new(start.cast::<u8>()).expect("a mapping is never at address zero");
        let mapping = Self { start, len };
        let flags = match file.kind().pages {
            Pages::AtOnce => MapFlags::POPULATE,
            Pages::AsTouched => MapFlags::empty(),
        };
        mapping.place(file, 0, file.len(), 0, flags)?;
        if file.capacity() > 0 {
            // Not populated, since few records lie there.
            mapping.place(file, file.len(), file.capacity(), file.data_at(), MapFlags::empty())?;
        }
        Ok(mapping)
    }

    /// Maps `len` bytes of the file, from `offset` on, at `at` bytes after the start of the
    /// reservation.
    fn place(&self, file: &SharedFile, at: usize, len: usize, offset: usize, flags: MapFlags) -> Result<(), OpenError> {
        assert!(at + len <= self.len, "a mapping beyond its reservation");
        let flags = flags | MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: within the reservation, by the assertion.
        let place = unsafe { self.start.add(at) }.as_ptr().cast::<c_void>();
        // SAFETY: the call replaces a part of the reservation, which belongs to this value and
        // which nobody uses.
        unsafe { mmap(place, len, ProtFlags::READ | ProtFlags::WRITE, flags, file.as_fd(), offset as u64) }
            .map_err(OpenError::system("map shared memory"))?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the range, and no clone that points into it is left.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

// SAFETY: an address and a length; the memory belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests {
    use super::{Controls, Memory};
    use crate::file::{Kind, Pages, SharedFile};
    use std::sync::atomic::{AtomicU64, Ordering};

    #[repr(C)]
    struct Words([AtomicU64; 32]);

    // SAFETY: atomics alone, of 256 bytes, as `KIND` says.
    unsafe impl Controls for Words {}

    const KIND: Kind = Kind {
        what: "a test",
        name: "estafette-test",
        magic: *b"estafTT\0",
        controls: 256,
        has_descriptors: true,
        pages: Pages::AtOnce,
    };

    #[test]
    fn data_is_mapped_twice_in_a_row() {
        let file = SharedFile::create(KIND, 4096, 0).unwrap();
        let memory = Memory::<Words>::map(&file).unwrap();
        let other = Memory::<Words>::map(&file).unwrap();
        // SAFETY: both mappings live, and `other` is read only after this write.
        let mut bytes = unsafe { memory.bytes_mut(4096 * 7 + 4090, 12) };
        bytes.copy_from_slice(b"hello, world");
        // SAFETY: as above.
        assert_eq!(unsafe { other.bytes(4090, 12) }.as_ref(), b"hello, world");
        // SAFETY: as above.
        assert_eq!(unsafe { other.bytes(0, 6) }.as_ref(), b" world");
    }

    #[test]
    fn any_position_maps_into_the_data() {
        let file = SharedFile::create(KIND, 4096, 0).unwrap();
        let memory = Memory::<Words>::map(&file).unwrap();
        for position in [0, 1, 4095, 4096, u64::MAX, u64::MAX - 7, 1 << 63] {
            memory.word(position).store(1, Ordering::Relaxed);
            // SAFETY: nobody else has the memory.
            assert_eq!(unsafe { memory.bytes(position, 4096) }.len(), 4096);
        }
        assert_eq!(memory.descriptors(), 64);
        for index in [0, 63, 64, u64::MAX] {
            memory.descriptor(index).store(1, Ordering::Relaxed);
        }
        // SAFETY: as above.
        assert!(unsafe { memory.bytes(8, 4080) }.iter().all(|byte| *byte == 0), "descriptors lie elsewhere");
        memory.controls().0[31].store(9, Ordering::Relaxed);
        assert_eq!(memory.clone().controls().0[31].load(Ordering::Relaxed), 9);
    }
}
