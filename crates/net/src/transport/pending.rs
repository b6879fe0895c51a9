//! Placeholders for a link or a datagram socket whose destination is not known yet.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use super::bell::Bell;
use super::{Datagrams, Link, Received};
use crate::Address;

/// A link that stays unconnected until it is replaced.
pub(crate) struct Pending {
    source: &'static Bell,
}

impl Pending {
    /// Creates a placeholder. All of them share one descriptor, which never becomes ready.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub(crate) fn new() -> io::Result<Pending> {
        static SOURCE: OnceLock<Bell> = OnceLock::new();
        if let Some(source) = SOURCE.get() {
            return Ok(Pending { source });
        }
        let source = Bell::new()?;
        Ok(Pending { source: SOURCE.get_or_init(|| source) })
    }
}

impl Link for Pending {
    fn source(&self) -> BorrowedFd<'_> {
        self.source.source()
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

/// The result of resolving a peer's name, set once: its socket, or `None` if there is none.
pub(crate) type Found = Arc<OnceLock<Option<Box<dyn Datagrams>>>>;

/// A datagram socket that cannot send until its peer is resolved, and then forwards to the resolved
/// socket.
pub(crate) struct PendingDatagrams {
    pending: Pending,
    found: Found,
}

impl PendingDatagrams {
    /// Creates a placeholder.
    ///
    /// # Errors
    ///
    /// As [`Pending::new`].
    pub(crate) fn new(found: Found) -> io::Result<PendingDatagrams> {
        Ok(PendingDatagrams { pending: Pending::new()?, found })
    }

    fn resolved(&self) -> io::Result<&dyn Datagrams> {
        match self.found.get() {
            Some(Some(found)) => Ok(&**found),
            Some(None) => Err(ErrorKind::NotConnected.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Datagrams for PendingDatagrams {
    fn source(&self) -> BorrowedFd<'_> {
        self.resolved().map_or_else(|_| self.pending.source(), Datagrams::source)
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.resolved()?.receive(buffer)
    }

    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
        self.resolved()?.send(datagram, to)
    }

    fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
        self.resolved()?.send_run(datagrams, each, to)
    }

    /// On request, whatever the resolved socket does: the node itself reports `Drained` when the
    /// peer is resolved.
    fn writable_on_request(&self) -> bool {
        true
    }

    /// Unlimited until then: the resolved socket rejects what is too long.
    fn max_len(&self) -> usize {
        self.resolved().map_or(usize::MAX, Datagrams::max_len)
    }

    fn local(&self) -> Option<Address> {
        self.resolved().ok()?.local()
    }
}
