//! Shows the supervisor whether somebody holds an end of the pipeline: a socket pair, of which the
//! holder has the only other side. The kernel closes that side when the holder's process dies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// The holder's side.
#[derive(Debug)]
pub(crate) struct Lease(OwnedFd);

/// The supervisor's side.
#[derive(Debug)]
pub(crate) struct LeaseWatch(OwnedFd);

/// What the holder of an end is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It has the end, or it is still to get it.
    Present,
    /// It has closed the end.
    Closed,
    /// It is gone and has not closed the end: its process died.
    Dead,
}

impl Lease {
    /// Both sides.
    ///
    /// # Errors
    ///
    /// If no descriptor is left.
    pub(crate) fn new() -> io::Result<(Lease, LeaseWatch)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Lease(theirs), LeaseWatch(ours)))
    }

    /// Says that the end is closed on purpose. To be called when nothing of the end is used any more.
    pub(crate) fn close(&self) {
        // If nobody listens, the pipeline is gone.
        let _ = send(&self.0, b"c", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

impl From<OwnedFd> for Lease {
    fn from(descriptor: OwnedFd) -> Lease {
        Lease(descriptor)
    }
}

impl From<Lease> for OwnedFd {
    fn from(lease: Lease) -> OwnedFd {
        lease.0
    }
}

impl LeaseWatch {
    /// What the holder is doing now.
    pub(crate) fn holder(&self) -> Holder {
        match recv(&self.0, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 1..)) => Holder::Closed,
            Err(Errno::AGAIN | Errno::INTR) => Holder::Present,
            Ok((_, 0)) | Err(_) => Holder::Dead,
        }
    }
}

/// Readable once the holder is no longer present.
impl AsFd for LeaseWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_dropped_was_not_closed() {
        let (lease, watch) = Lease::new().unwrap();
        assert_eq!(watch.holder(), Holder::Present);
        let elsewhere = lease.0.try_clone().unwrap();
        drop(lease);
        assert_eq!(watch.holder(), Holder::Present, "another process has it");
        drop(elsewhere);
        assert_eq!(watch.holder(), Holder::Dead);
    }

    #[test]
    fn a_lease_that_is_closed_stays_so() {
        let (lease, watch) = Lease::new().unwrap();
        lease.close();
        assert_eq!(watch.holder(), Holder::Closed);
        drop(lease);
        assert_eq!(watch.holder(), Holder::Closed);
    }

    #[test]
    fn closing_after_the_pipeline_does_no_harm() {
        let (lease, watch) = Lease::new().unwrap();
        drop(watch);
        lease.close();
    }
}
