//! The memory files of a group: one ring for each producer, and the bell that the members sleep on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::layout::RingControls;
use super::ring::Ring;
use crate::bell::{Bell, MAX_MEMBERS};
use crate::error::OpenError;
use crate::file::{Kind, Pages, SharedFile};
use crate::memory::Memory;

const RING: Kind = Kind {
    what: "a ring",
    name: "estafette-ring",
    magic: *b"estafGR\0",
    controls: size_of::<RingControls>(),
    has_descriptors: false,
    pages: Pages::AsTouched,
};

const BELL: Kind = Kind {
    what: "a bell",
    name: "estafette-bell",
    magic: *b"estafBL\0",
    controls: size_of::<Bell>(),
    has_descriptors: false,
    pages: Pages::AtOnce,
};

/// The memory of one producer's ring. It lives as long as a descriptor or a mapping of it.
#[derive(Debug)]
pub struct RingFile(SharedFile);

impl RingFile {
    /// Creates an empty ring of `capacity` bytes, rounded up to a power of two and to a page, for a
    /// group of up to `members` members. The descriptor is close-on-exec.
    ///
    /// # Errors
    ///
    /// If the system refuses it, or a number is out of range.
    pub fn create(capacity: usize, members: usize) -> Result<Self, OpenError> {
        verify_members(members)?;
        SharedFile::create(RING, capacity.max(1), members as u64).map(Self)
    }

    /// Makes a ring from a descriptor that arrived by other means.
    ///
    /// # Errors
    ///
    /// If it is not a ring of this version, or its size is not sealed.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OpenError> {
        let file = SharedFile::from_fd(RING, fd)?;
        verify_members(usize::try_from(file.parameter()).unwrap_or(usize::MAX))?;
        match file.capacity() {
            0 => Err(OpenError::NotOurs { what: RING.what, reason: "it has no capacity".into() }),
            _ => Ok(Self(file)),
        }
    }

    /// The capacity for records in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The maximum number of members of the group.
    #[must_use]
    pub fn members(&self) -> usize {
        self.0.parameter() as usize
    }

    /// The file descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Duplicates the descriptor of the ring.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn map(&self) -> Result<Ring, OpenError> {
        Ok(Ring::new(Memory::map(&self.0)?, self.members()))
    }
}

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory of a group's bell.
#[derive(Debug)]
pub struct BellFile(SharedFile);

impl BellFile {
    /// Creates a bell for a group. The descriptor is close-on-exec.
    ///
    /// # Errors
    ///
    /// If the system refuses it.
    pub fn create() -> Result<Self, OpenError> {
        SharedFile::create(BELL, 0, 0).map(Self)
    }

    /// Makes a bell from a descriptor that arrived by other means.
    ///
    /// # Errors
    ///
    /// If it is not a bell of this version, or its size is not sealed.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OpenError> {
        SharedFile::from_fd(BELL, fd).map(Self)
    }

    /// The file descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Duplicates the descriptor of the bell.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn map(&self) -> Result<Memory<Bell>, OpenError> {
        Memory::map(&self.0)
    }
}

impl AsFd for BellFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn verify_members(members: usize) -> Result<(), OpenError> {
    match members {
        1..=MAX_MEMBERS => Ok(()),
        found => Err(OpenError::Members { found, max: MAX_MEMBERS }),
    }
}
