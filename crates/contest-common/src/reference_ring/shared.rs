//! The file in which a ring between processes lies.
//!
//! Best it is a sealed memory file. That has no name in any file system: it is handed on as a descriptor, and is gone with
//! the last of them. Seals keep its size, so that no peer can take a page away beneath a reader. Any other file that can be
//! mapped will do where both ends trust each other to leave its size alone ([`Opening::unsealed`]).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use memmap2::{Advice, MmapOptions};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create,
};
use rustix::io::{pread, pwrite, retry_on_intr};

use super::error::Error;
use super::lane::{Manner, Wait};
use super::memory::{End, Memory, size};
use super::ring::{Consumer, Producer};
use super::shape::Shape;
use super::sync::{Alarm, Eventfd};

/// The first bytes of a ring.
const MAGIC: [u8; 8] = *b"estafLR\0";

/// Counts the changes of the layout and of the protocol.
const VERSION: u64 = 1;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A memory file with an empty ring, to be handed to both ends.
///
/// It is closed when a program is executed, unless the flag is taken off.
///
/// # Errors
///
/// If the system has no memory or no descriptor left.
pub fn create_shared(shape: Shape, wait: Wait) -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("estafette-reference-ring", flags).map_err(Error::system("create a memory file"))?;
    lay_out(&file, shape, wait)?;
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(Error::system("seal the ring"))?;
    Ok(file)
}

/// Makes an empty file an empty ring, to be handed to both ends.
///
/// # Errors
///
/// If there is no room for it, or the file system allocates none beforehand.
pub fn lay_out(file: impl AsFd, shape: Shape, wait: Wait) -> Result<(), Error> {
    // Not `ftruncate`: if there is not as much memory, that shows here, and not as a SIGBUS at the first message.
    retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, size(shape) as u64))
        .map_err(Error::system("allocate the ring"))?;
    let header = Header { shape, wait }.to_bytes();
    match pwrite(&file, &header, 0).map_err(Error::system("write the header of the ring"))? {
        Header::BYTES => Ok(()),
        _ => Err(Error::not_a_ring("its header was written in part only")),
    }
}

/// The producer of the ring in `file`. The descriptor may be closed afterwards.
///
/// While the end lives, this process must not change the file in other ways: Rust knows nothing of bytes that change
/// beneath a reference.
///
/// # Errors
///
/// If the file is not a ring of this shape and manner of waiting, or its producer was taken before.
pub fn open_producer(file: impl AsFd, shape: Shape, wait: Wait) -> Result<Producer, Error> {
    Opening::new(file.as_fd(), shape, wait).producer()
}

/// The consumer of the ring in `file`. The descriptor may be closed afterwards.
///
/// While the end lives, this process must not change the file in other ways: Rust knows nothing of bytes that change
/// beneath a reference.
///
/// # Errors
///
/// If the file is not a ring of this shape and manner of waiting, or its consumer was taken before.
pub fn open_consumer(file: impl AsFd, shape: Shape, wait: Wait) -> Result<Consumer, Error> {
    Opening::new(file.as_fd(), shape, wait).consumer()
}

/// How an end of a ring is opened, where [`open_producer`] and [`open_consumer`] do not say enough.
#[derive(Debug)]
pub struct Opening<'a> {
    file: BorrowedFd<'a>,
    shape: Shape,
    wait: Wait,
    sealed: bool,
    /// What the consumer sleeps on, and what the producer does.
    eventfds: Option<(OwnedFd, OwnedFd)>,
}

impl<'a> Opening<'a> {
    /// As the two functions open it.
    pub fn new(file: BorrowedFd<'a>, shape: Shape, wait: Wait) -> Self {
        Self { file, shape, wait, sealed: true, eventfds: None }
    }

    /// A ring in a file without seals.
    ///
    /// # Safety
    ///
    /// Nobody may make the file shorter as long as the end lives: who touches a page that is gone is killed.
    #[must_use]
    pub unsafe fn unsealed(self) -> Self {
        Self { sealed: false, ..self }
    }

    /// A ring of [`Wait::Eventfd`] whose consumer sleeps on `filled` and whose producer on `freed`, both of which block.
    #[must_use]
    pub fn sleeping_on(self, filled: OwnedFd, freed: OwnedFd) -> Self {
        Self { eventfds: Some((filled, freed)), ..self }
    }

    /// The producer.
    ///
    /// # Errors
    ///
    /// Those of [`open_producer`].
    pub fn producer(self) -> Result<Producer, Error> {
        let Self { file, shape, wait, sealed, eventfds } = self;
        let (filled, freed) = alarms(wait, eventfds)?;
        let memory = open(file, shape, wait, sealed, End::Producer)?;
        Ok(Producer::new(memory, Manner { wait, mine: freed, theirs: filled }))
    }

    /// The consumer.
    ///
    /// # Errors
    ///
    /// Those of [`open_consumer`].
    pub fn consumer(self) -> Result<Consumer, Error> {
        let Self { file, shape, wait, sealed, eventfds } = self;
        let (filled, freed) = alarms(wait, eventfds)?;
        let memory = open(file, shape, wait, sealed, End::Consumer)?;
        Ok(Consumer::new(memory, Manner { wait, mine: filled, theirs: freed }))
    }
}

/// What the consumer sleeps on, and what the producer does.
fn alarms(wait: Wait, eventfds: Option<(OwnedFd, OwnedFd)>) -> Result<(Alarm, Alarm), Error> {
    match (wait, eventfds) {
        (Wait::Eventfd, Some((filled, freed))) => Ok((Alarm::Eventfd(Eventfd(filled)), Alarm::Eventfd(Eventfd(freed)))),
        (Wait::Eventfd, None) => Err(Error::not_a_ring("its ends were given no eventfds to sleep on")),
        (Wait::Spin | Wait::Futex, _) => Ok((Alarm::Shared, Alarm::Shared)),
    }
}

/// Verifies the file, maps it with all its pages, and takes one end.
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

    // The size is verified after the shape, as it follows from it, and the shape says more about what is wrong.
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
        // Pages of a file on a disk are mapped to be read only, and the first write to each costs a fault. Linux before 5.14
        // does not know how to have them now.
        let _ = map.advise(Advice::PopulateWrite);
    }
    let memory = Memory::mapping(map, shape);
    if memory.take(end) { Ok(memory) } else { Err(Error::taken(end)) }
}

/// What the file says of itself: five words, of which the first are the magic and the version.
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

    /// Says what differs between this header and the one of a file.
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
