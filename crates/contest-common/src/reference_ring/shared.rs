//! The file that contains a ring between processes.
//!
//! The best file is a sealed memory file. It has no name in any file system: it is passed as a
//! descriptor and is freed when the last descriptor is closed. Its seals fix its size, so that no
//! peer can remove a page while another one reads it. Any other mappable file works if both ends
//! trust each other not to change its size ([`Opening::unsealed`]).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use memmap2::{Advice, MmapOptions};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create,
};
use rustix::io::{pread, pwrite, retry_on_intr};

use super::error::Error;
use super::lane::{Wait, WaitPolicy};
use super::memory::{End, Memory, size};
use super::ring::{Consumer, Producer};
use super::shape::Shape;
use super::sync::{Eventfd, WakeMethod};

/// The first bytes of a ring's file.
const MAGIC: [u8; 8] = *b"estafLR\0";

/// The version of the layout and the protocol, increased at each change.
const VERSION: u64 = 1;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Creates a memory file with an empty ring. Pass it to both ends.
///
/// The descriptor is closed on exec unless the caller clears that flag.
///
/// # Errors
///
/// If the system has no memory or no file descriptor left.
pub fn create_shared(shape: Shape, wait: Wait) -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("estafette-reference-ring", flags).map_err(Error::system("create a memory file"))?;
    lay_out(&file, shape, wait)?;
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(Error::system("seal the ring"))?;
    Ok(file)
}

/// Writes an empty ring into an empty file. Pass the file to both ends.
///
/// # Errors
///
/// If there is not enough space, or the file system cannot allocate it in advance.
pub fn lay_out(file: impl AsFd, shape: Shape, wait: Wait) -> Result<(), Error> {
    // Not `ftruncate`: a lack of memory must be an error here, not a SIGBUS at the first message.
    retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, size(shape) as u64))
        .map_err(Error::system("allocate the ring"))?;
    let header = Header { shape, wait }.to_bytes();
    match pwrite(&file, &header, 0).map_err(Error::system("write the header of the ring"))? {
        Header::BYTES => Ok(()),
        _ => Err(Error::not_a_ring("its header was written in part only")),
    }
}

/// Opens the producer of the ring in `file`. The descriptor may be closed afterwards.
///
/// While the end exists, this process must not change the file in other ways: Rust assumes that
/// bytes beneath a reference do not change.
///
/// # Errors
///
/// If the file is not a ring of this shape and way of waiting, or its producer was already opened.
pub fn open_producer(file: impl AsFd, shape: Shape, wait: Wait) -> Result<Producer, Error> {
    Opening::new(file.as_fd(), shape, wait).producer()
}

/// Opens the consumer of the ring in `file`. The descriptor may be closed afterwards.
///
/// While the end exists, this process must not change the file in other ways: Rust assumes that
/// bytes beneath a reference do not change.
///
/// # Errors
///
/// If the file is not a ring of this shape and way of waiting, or its consumer was already opened.
pub fn open_consumer(file: impl AsFd, shape: Shape, wait: Wait) -> Result<Consumer, Error> {
    Opening::new(file.as_fd(), shape, wait).consumer()
}

/// Options for opening an end, where [`open_producer`] and [`open_consumer`] are not enough.
#[derive(Debug)]
pub struct Opening<'a> {
    file: BorrowedFd<'a>,
    shape: Shape,
    wait: Wait,
    sealed: bool,
    /// The eventfds: first the one that the consumer sleeps on, then the producer's.
    eventfds: Option<(OwnedFd, OwnedFd)>,
}

impl<'a> Opening<'a> {
    /// Creates options with the defaults of [`open_producer`] and [`open_consumer`].
    pub fn new(file: BorrowedFd<'a>, shape: Shape, wait: Wait) -> Self {
        Self { file, shape, wait, sealed: true, eventfds: None }
    }

    /// Accepts a file without seals.
    ///
    /// # Safety
    ///
    /// Nobody may shrink the file while the end exists: access to a removed page kills the process.
    #[must_use]
    pub unsafe fn unsealed(self) -> Self {
        Self { sealed: false, ..self }
    }

    /// Sets the eventfds of a ring with [`Wait::Eventfd`]. The consumer sleeps on `filled`, the
    /// producer on `freed`. Both must be blocking.
    #[must_use]
    pub fn sleeping_on(self, filled: OwnedFd, freed: OwnedFd) -> Self {
        Self { eventfds: Some((filled, freed)), ..self }
    }

    /// Opens the producer.
    ///
    /// # Errors
    ///
    /// Those of [`open_producer`].
    pub fn producer(self) -> Result<Producer, Error> {
        let Self { file, shape, wait, sealed, eventfds } = self;
        let (filled, freed) = wake_methods(wait, eventfds)?;
        let memory = open(file, shape, wait, sealed, End::Producer)?;
        Ok(Producer::new(memory, WaitPolicy { wait, mine: freed, theirs: filled }))
    }

    /// Opens the consumer.
    ///
    /// # Errors
    ///
    /// Those of [`open_consumer`].
    pub fn consumer(self) -> Result<Consumer, Error> {
        let Self { file, shape, wait, sealed, eventfds } = self;
        let (filled, freed) = wake_methods(wait, eventfds)?;
        let memory = open(file, shape, wait, sealed, End::Consumer)?;
        Ok(Consumer::new(memory, WaitPolicy { wait, mine: filled, theirs: freed }))
    }
}

/// Returns how the consumer is woken, and how the producer is.
fn wake_methods(wait: Wait, eventfds: Option<(OwnedFd, OwnedFd)>) -> Result<(WakeMethod, WakeMethod), Error> {
    match (wait, eventfds) {
        (Wait::Eventfd, Some((filled, freed))) => {
            Ok((WakeMethod::Eventfd(Eventfd(filled)), WakeMethod::Eventfd(Eventfd(freed))))
        }
        (Wait::Eventfd, None) => Err(Error::not_a_ring("its ends were given no eventfds to sleep on")),
        (Wait::Spin | Wait::Futex, _) => Ok((WakeMethod::Shared, WakeMethod::Shared)),
    }
}

/// Verifies the file, maps all its pages and claims one end.
fn open(file: BorrowedFd<'_>, shape: Shape, wait: Wait, sealed: bool, end: End) -> Result<Memory, Error> {
    match fcntl_get_seals(file) {
        _ if !sealed => {}
        Ok(seals) if seals.contains(SEALS) => {}
        Ok(_) => return Err(Error::not_a_ring("its size is not sealed")),
        Err(_) => return Err(Error::not_a_ring("it is not a memory file")),
    }

    let mut header = [0; Header::BYTES];
    match pread(file, &mut header, 0).map_err(Error::system("read the header of the ring"))? {
        Header::BYTES => Header { shape, wait }.verify(&header)?,
        found => return Err(Error::not_a_ring(format!("{found} bytes are no header"))),
    }

    // The size is verified after the shape. It follows from the shape, and an error about the shape
    // is more informative.
    let found = fstat(file).map_err(Error::system("ask for the size of the ring"))?.st_size as u64;
    let wanted = size(shape) as u64;
    if found != wanted {
        return Err(Error::Mismatch { what: "size in bytes", wanted, found });
    }

    let map = MmapOptions::new()
        .len(size(shape))
        .populate()
        .map_raw(file.as_raw_fd())
        .map_err(|source| Error::System { task: "map the ring", source })?;
    if !sealed {
        // The pages of a file on disk are mapped read-only at first, and the first write to each
        // causes a page fault. Linux before 5.14 cannot populate them for writing.
        let _ = map.advise(Advice::PopulateWrite);
    }
    let memory = Memory::mapping(map, shape);
    if memory.claim(end) { Ok(memory) } else { Err(Error::AlreadyOpened { end: end.name() }) }
}

/// The header of the file: five words, the first two of which are the magic and the version.
#[derive(Clone, Copy, Debug)]
struct Header {
    shape: Shape,
    wait: Wait,
}

impl Header {
    const BYTES: usize = 5 * size_of::<u64>();

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let words =
            [u64::from_ne_bytes(MAGIC), VERSION, self.wait_word(), self.shape.slot() as u64, self.shape.slots() as u64];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }

    /// Verifies the header of a file. The error names the first difference.
    fn verify(self, bytes: &[u8; Self::BYTES]) -> Result<(), Error> {
        let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().expect("a header has five words");
        if next() != u64::from_ne_bytes(MAGIC) {
            return Err(Error::not_a_ring("its first bytes are not those of a ring"));
        }
        let version = next();
        if version != VERSION {
            return Err(Error::not_a_ring(format!("it has version {version}, this program version {VERSION}")));
        }
        let wanted = [
            ("waiting (0 spins, 1 sleeps on a futex, 2 on an eventfd)", self.wait_word()),
            ("bytes of a slot", self.shape.slot() as u64),
            ("number of slots", self.shape.slots() as u64),
        ];
        for (what, wanted) in wanted {
            let found = next();
            if found != wanted {
                return Err(Error::Mismatch { what, wanted, found });
            }
        }
        Ok(())
    }

    fn wait_word(self) -> u64 {
        match self.wait {
            Wait::Spin => 0,
            Wait::Futex => 1,
            Wait::Eventfd => 2,
        }
    }
}
