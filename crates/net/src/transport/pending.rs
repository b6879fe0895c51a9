//! What stands in the place of a link, or of a socket of datagrams, until it is known where it leads.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};

use super::{Datagrams, Link, Received};
use crate::Address;

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

/// Where it is put what a peer's name led to: nothing, if it led nowhere. It is once.
pub(crate) type Found = Arc<OnceLock<Option<Box<dyn Datagrams>>>>;

/// A socket of datagrams that has no room until it is known where its peer is, and then is the one that was found.
pub(crate) struct PendingDatagrams {
    pending: Pending,
    found: Found,
}

impl PendingDatagrams {
    /// One of them.
    ///
    /// # Errors
    ///
    /// As [`Pending::new`].
    pub(crate) fn new(found: Found) -> io::Result<PendingDatagrams> {
        Ok(PendingDatagrams { pending: Pending::new()?, found })
    }

    fn there(&self) -> io::Result<&dyn Datagrams> {
        match self.found.get() {
            Some(Some(found)) => Ok(&**found),
            Some(None) => Err(ErrorKind::NotConnected.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Datagrams for PendingDatagrams {
    fn source(&self) -> BorrowedFd<'_> {
        self.there().map_or_else(|_| self.pending.source(), Datagrams::source)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.there()?.receive(buffer)
    }

    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
        self.there()?.send(datagram, to)
    }

    fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
        self.there()?.send_run(datagrams, each, to)
    }

    /// Whoever found no room is told of some as soon as the peer was found, whatever the socket says.
    fn room_on_request(&self) -> bool {
        true
    }

    /// What is longer, the socket that is found refuses.
    fn most(&self) -> usize {
        self.there().map_or(usize::MAX, Datagrams::most)
    }

    fn local(&self) -> Option<Address> {
        self.there().ok()?.local()
    }
}
