//! What stands in the place of a link until it is known where it leads.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{EventfdFlags, eventfd};

use super::Link;

/// A link that never comes about by itself.
pub(crate) struct Pending {
    source: &'static OwnedFd,
}

impl Pending {
    /// One of them.
    ///
    /// # Errors
    ///
    /// If the system has no descriptors left: all of them share one, which never becomes ready.
    pub(crate) fn new() -> io::Result<Pending> {
        static SOURCE: OnceLock<OwnedFd> = OnceLock::new();
        if let Some(source) = SOURCE.get() {
            return Ok(Pending { source });
        }
        let source = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Pending { source: SOURCE.get_or_init(|| source) })
    }
}

impl Link for Pending {
    fn source(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }

    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn connected(&self) -> io::Result<()> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn finish(&self) -> io::Result<()> {
        Ok(())
    }
}
