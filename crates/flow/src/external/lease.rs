//! Detects whether the holder of an external end is alive, by a socket pair. Only the holder has
//! the other side. The kernel closes that side when the holder's process dies.

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

/// The state of an end's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// It has the end, or the end was not taken yet.
    Present,
    /// It has closed the end.
    Closed,
    /// Its process died: the side was closed without a notice.
    Dead,
}

impl Lease {
    /// Creates both sides.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left.
    pub(crate) fn new() -> io::Result<(Lease, LeaseWatch)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Lease(theirs), LeaseWatch(ours)))
    }

    /// Notifies the supervisor that the end is closed on purpose. Call it when the end is not used
    /// any more.
    pub(crate) fn close(&self) {
        // An error means that the pipeline has ended.
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
    /// The current state of the holder.
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
    fn a_dropped_lease_means_a_dead_holder() {
        let (lease, watch) = Lease::new().unwrap();
        assert_eq!(watch.holder(), Holder::Present);
        let elsewhere = lease.0.try_clone().unwrap();
        drop(lease);
        assert_eq!(watch.holder(), Holder::Present, "another process has it");
        drop(elsewhere);
        assert_eq!(watch.holder(), Holder::Dead);
    }

    #[test]
    fn a_closed_lease_stays_closed() {
        let (lease, watch) = Lease::new().unwrap();
        lease.close();
        assert_eq!(watch.holder(), Holder::Closed);
        drop(lease);
        assert_eq!(watch.holder(), Holder::Closed);
    }

    #[test]
    fn closing_after_the_pipeline_has_ended_is_harmless() {
        let (lease, watch) = Lease::new().unwrap();
        drop(watch);
        lease.close();
    }
}
