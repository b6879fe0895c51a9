//! The sealed memory file that processes share.
//!
//! It has no name in any file system. It is passed on as a file descriptor, and vanishes with the
//! last one. Seals fix its size, so that no peer can remove a page while it is read.
//!
//! ```text
//! 0        128                 controls            + descriptors        + capacity
//! | header | control words ... | descriptors ...   | data ...           |
//! ```
//!
//! The header is written and read through the file, before the file is mapped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::{fcntl_dupfd_cloexec, pread, pwrite, retry_on_intr};
use rustix::param::page_size;

use crate::error::OpenError;

/// The version of the layout and of the protocols.
const VERSION: u64 = 1;

/// The offset of the control words.
pub(crate) const CONTROLS_AT: usize = 128;

/// The maximum capacity in bytes: 2 GiB, so that lengths have 32 bits. More is probably a mistake.
pub(crate) const MAX_CAPACITY: usize = 2 << 30;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The length of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// The number of descriptors for `capacity` bytes of data.
pub(crate) fn descriptors(capacity: usize) -> usize {
    capacity / LINE
}

/// The kind of a file, and its layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// For error messages: "a ring".
    pub(crate) what: &'static str,
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    pub(crate) controls: usize,
    /// Whether there is a descriptor word for each [`LINE`] of data.
    pub(crate) has_descriptors: bool,
    pub(crate) pages: Pages,
}

/// When the pages of a file are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// All when the file is created and mapped. The first message does not wait for them, and a
    /// lack of memory is reported at once.
    AtOnce,
    /// Each when it is first written. For kinds of which there may be hundreds of files.
    AsTouched,
}

impl Kind {
    /// The length of header and control words in bytes, rounded up to whole pages.
    pub(crate) fn controls_len(self) -> usize {
        (CONTROLS_AT + self.controls).next_multiple_of(page_size())
    }

    /// The length of the descriptors in bytes, rounded up to whole pages.
    fn descriptors_len(self, capacity: usize) -> usize {
        if self.has_descriptors { (descriptors(capacity) * size_of::<u64>()).next_multiple_of(page_size()) } else { 0 }
    }

    fn not_ours(self, reason: impl Into<String>) -> OpenError {
        OpenError::NotOurs { what: self.what, reason: reason.into() }
    }
}

/// A shared file with a valid header.
#[derive(Debug)]
pub(crate) struct SharedFile {
    fd: OwnedFd,
    kind: Kind,
    /// The length of the data in bytes: zero, or a power of two and whole pages.
    capacity: usize,
    /// A number whose meaning depends on the kind.
    parameter: u64,
}

impl SharedFile {
    /// Creates a file that is zero except for its header. It is close-on-exec.
    pub(crate) fn create(kind: Kind, capacity: usize, parameter: u64) -> Result<Self, OpenError> {
        let too_large = OpenError::TooLarge { bytes: capacity, max: MAX_CAPACITY };
        let capacity = match capacity {
            0 => 0,
            1..=MAX_CAPACITY => capacity.max(page_size()).next_power_of_two(),
            _ => return Err(too_large),
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(kind.name, flags).map_err(OpenError::system("create a memory file"))?;
        let file = Self { fd, kind, capacity, parameter };
        let allocate = || match kind.pages {
            Pages::AtOnce => fallocate(&file.fd, FallocateFlags::empty(), 0, file.len() as u64),
            Pages::AsTouched => ftruncate(&file.fd, file.len() as u64),
        };
        retry_on_intr(allocate).map_err(OpenError::system("allocate shared memory"))?;
        let written = pwrite(&file.fd, &file.header(), 0).map_err(OpenError::system("write a header"))?;
        if written != HEADER_BYTES {
            return Err(kind.not_ours("only a part of its header was written"));
        }
        fcntl_add_seals(&file.fd, SEALS | SealFlags::SEAL).map_err(OpenError::system("seal shared memory"))?;
        Ok(file)
    }

    /// Validates a file that arrived by other means.
    pub(crate) fn from_fd(kind: Kind, fd: OwnedFd) -> Result<Self, OpenError> {
        verify_seals(&fd).map_err(|reason| kind.not_ours(reason))?;
        let mut bytes = [0; HEADER_BYTES];
        let found = pread(&fd, &mut bytes, 0).map_err(OpenError::system("read a header"))?;
        if found != HEADER_BYTES {
            return Err(kind.not_ours(format!("{found} bytes are too short for a header")));
        }
        let (capacity, parameter) = parse_header(kind, &bytes)?;
        let file = Self { fd, kind, capacity, parameter };
        let found = fstat(&file.fd).map_err(OpenError::system("get a file's size"))?.st_size;
        if usize::try_from(found) != Ok(file.len()) {
            return Err(kind.not_ours(format!("it has {found} bytes, not {}", file.len())));
        }
        Ok(file)
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let words = [u64::from_ne_bytes(self.kind.magic), VERSION, self.capacity as u64, self.parameter];
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn parameter(&self) -> u64 {
        self.parameter
    }

    /// The length of the whole file in bytes.
    pub(crate) fn len(&self) -> usize {
        self.data_at() + self.capacity
    }

    /// The offset of the data.
    pub(crate) fn data_at(&self) -> usize {
        self.kind.controls_len() + self.kind.descriptors_len(self.capacity)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: fcntl_dupfd_cloexec(&self.fd, 0)?, ..*self })
    }
}

const HEADER_BYTES: usize = 4 * size_of::<u64>();

/// Checks that a file's size cannot change while it is mapped. The error is the reason.
pub(crate) fn verify_seals(fd: impl AsFd) -> Result<(), &'static str> {
    match fcntl_get_seals(fd) {
        Ok(seals) if seals.contains(SEALS) => Ok(()),
        Ok(_) => Err("its size is not sealed"),
        Err(_) => Err("it is not a memory file"),
    }
}

/// Parses a header into the capacity and the parameter.
fn parse_header(kind: Kind, bytes: &[u8; HEADER_BYTES]) -> Result<(usize, u64), OpenError> {
    let words = bytes.as_chunks().0;
    let [magic, version, capacity, parameter] = [0, 1, 2, 3].map(|index| u64::from_ne_bytes(words[index]));
    if magic != u64::from_ne_bytes(kind.magic) {
        return Err(kind.not_ours("its first bytes are not the expected ones"));
    }
    if version != VERSION {
        return Err(kind.not_ours(format!("it has version {version}, this program version {VERSION}")));
    }
    let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
    let whole = capacity == 0 || capacity.is_power_of_two() && capacity.is_multiple_of(page_size());
    if !whole || capacity > MAX_CAPACITY {
        return Err(kind.not_ours(format!("{capacity} bytes is no valid capacity")));
    }
    Ok((capacity, parameter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pwrite;

    use super::{HEADER_BYTES, Kind, MAX_CAPACITY, Pages, SharedFile, parse_header};

    const KIND: Kind = Kind {
        what: "a test",
        name: "estafette-test",
        magic: *b"estafTT\0",
        controls: 256,
        has_descriptors: false,
        pages: Pages::AtOnce,
    };

    fn why(file: SharedFile) -> String {
        SharedFile::from_fd(KIND, file.into_fd()).unwrap_err().to_string()
    }

    #[test]
    fn a_file_keeps_its_capacity_and_parameter() {
        let file = SharedFile::create(KIND, 5000, 7).unwrap();
        let clone = SharedFile::from_fd(KIND, file.try_clone().unwrap().into_fd()).unwrap();
        assert_eq!((clone.capacity(), clone.parameter()), (8192, 7));
        assert!(ftruncate(file.as_fd(), 0).is_err());
        assert!(ftruncate(file.as_fd(), 1 << 20).is_err());
    }

    #[test]
    fn a_capacity_above_the_maximum_is_an_error() {
        for capacity in [MAX_CAPACITY + 1, usize::MAX / 2, usize::MAX] {
            let error = SharedFile::create(KIND, capacity, 0).unwrap_err().to_string();
            assert!(error.contains("lower capacity"), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let make = || SharedFile::create(KIND, 4096, 0).unwrap();
        for (offset, byte, reason) in [(0, 1, "first bytes"), (8, 9, "version 9"), (16, 3, "no valid capacity")] {
            let file = make();
            pwrite(file.as_fd(), &[byte], offset).unwrap();
            let error = why(file);
            assert!(error.contains(reason), "{error}");
        }
        let larger = make();
        pwrite(larger.as_fd(), &8192u64.to_ne_bytes(), 16).unwrap();
        assert!(why(larger).contains("bytes, not"));
    }

    #[test]
    fn a_file_without_seals_is_refused() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(SharedFile::from_fd(KIND, file).unwrap_err().to_string().contains("not sealed"));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedFile::from_fd(KIND, null.into()).unwrap_err().to_string().contains("not a memory file"));
    }

    proptest! {
        #[test]
        fn any_header_is_an_error_or_valid(mut bytes: [u8; HEADER_BYTES], ours: bool) {
            if ours {
                bytes[..8].copy_from_slice(&KIND.magic);
                bytes[8..16].copy_from_slice(&super::VERSION.to_ne_bytes());
            }
            if let Ok((capacity, _)) = parse_header(KIND, &bytes) {
                prop_assert!(capacity <= MAX_CAPACITY);
            }
        }
    }
}
