//! Waiting for descriptors to become ready, edge-triggered: the traits, and epoll.
//!
//! A backend has two sides. The node's thread owns the one that waits; any thread may use the other
//! one to add, remove and wake. Both are trait objects: the cost of a dynamic call is negligible
//! beside a system call.
//!
//! The node relies on few guarantees, so that other backends fit:
//!
//! - An edge is reported at least once, by some later wait, after data arrived or after requested
//!   writability.
//! - An edge is also reported for what was ready when the descriptor was added.
//! - Edges may be spurious, repeated, in any order, and split into parts.
//! - After a descriptor was removed, waits that begin later report nothing for it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

mod epoll;
#[cfg(test)]
mod scrambled;

pub(crate) use self::epoll::epoll;
#[cfg(test)]
pub(crate) use self::scrambled::scrambled;

/// One readiness event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) index: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has ended its direction, or the descriptor failed: a read reports which.
    pub(crate) read_closed: bool,
    /// Set if writes no longer reach the peer.
    pub(crate) write_closed: Option<WriteClosed>,
}

/// Why writes no longer reach a peer. The later variant outranks the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WriteClosed {
    /// The direction was shut down.
    Shutdown,
    /// The descriptor has failed.
    Error,
}

/// The waiting side, owned by one thread.
pub(crate) trait Backend: Send + Sync {
    /// Waits until something is ready, a thread calls `wake`, or the timeout passes, and appends
    /// what is ready. It may return early.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;

    /// Whether more may be ready than the last wait returned.
    #[cfg(feature = "tokio")]
    fn may_have_more(&self) -> bool;

    /// A descriptor that is readable while a wait would return something.
    #[cfg(feature = "tokio")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd>;
}

/// The side that adds, removes and wakes, for any thread.
pub(crate) trait Registry: Send + Sync {
    /// Starts to report edges of a descriptor under this index; `writable`: writability too.
    fn add(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()>;

    /// Starts or stops to report writability of a descriptor. If it is writable already, this is
    /// reported at once.
    fn set_writable(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()>;

    /// Stops reporting. The index may be reused: an edge reported earlier then applies to its new
    /// owner, which reads or writes once for nothing.
    fn remove(&self, source: BorrowedFd<'_>);

    /// Ends the current wait, or the next one.
    fn wake(&self);
}

/// Both sides of a backend.
pub(crate) type BackendPair = (Box<dyn Backend>, Arc<dyn Registry>);

/// Switches writability reports of one descriptor on and off.
pub(crate) struct WritableSwitch {
    registry: Arc<dyn Registry>,
    index: usize,
}

impl WritableSwitch {
    pub(crate) fn new(registry: Arc<dyn Registry>, index: usize) -> WritableSwitch {
        WritableSwitch { registry, index }
    }

    /// Starts or stops the reports. If the descriptor is writable already, this is reported at
    /// once.
    pub(crate) fn set(&self, source: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        self.registry.set_writable(source, self.index, wanted)
    }
}
