//! The memory files of a group: a ring for each producer, and the bell its members sleep on.

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

/// The memory of one producer's ring. It lives as long as somebody has a descriptor or a mapping.
#[derive(Debug)]
pub struct RingFile(SharedFile);

impl RingFile {
    /// An empty ring of so many bytes, rounded up to a power of two and a page, for a group of so
    /// many members. The descriptor is closed when a program is executed.
    ///
    /// # Errors
    ///
    /// If the system refuses it, or the numbers are absurd.
    pub fn create(capacity: usize, members: usize) -> Result<Self, OpenError> {
        verify_members(members)?;
        SharedFile::create(RING, capacity.max(1), members as u64).map(Self)
    }

    /// The ring behind a descriptor that came from elsewhere.
    ///
    /// # Errors
    ///
    /// If it is not a ring of this version, with its size sealed.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OpenError> {
        let file = SharedFile::from_fd(RING, fd)?;
        verify_members(usize::try_from(file.parameter()).unwrap_or(usize::MAX))?;
        match file.capacity() {
            0 => Err(OpenError::NotOurs { what: RING.what, reason: "it has no capacity".into() }),
            _ => Ok(Self(file)),
        }
    }

    /// The bytes of records it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The members that its group may have.
    #[must_use]
    pub fn members(&self) -> usize {
        self.0.parameter() as usize
    }

    /// The descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Another descriptor of the same ring.
    ///
    /// # Errors
    ///
    /// If no descriptor is left.
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
    /// A bell for a group. The descriptor is closed when a program is executed.
    ///
    /// # Errors
    ///
    /// If the system refuses it.
    pub fn create() -> Result<Self, OpenError> {
        SharedFile::create(BELL, 0, 0).map(Self)
    }

    /// The bell behind a descriptor that came from elsewhere.
    ///
    /// # Errors
    ///
    /// If it is not a bell of this version, with its size sealed.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OpenError> {
        SharedFile::from_fd(BELL, fd).map(Self)
    }

    /// The descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Another descriptor of the same bell.
    ///
    /// # Errors
    ///
    /// If no descriptor is left.
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
