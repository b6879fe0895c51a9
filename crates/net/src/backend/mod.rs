//! Waiting for descriptors to become ready, edge by edge: what a node asks of the system, and who answers.
//!
//! A backend has two sides: one waits, and belongs to the node's thread; any thread adds, removes and wakes by the other. Both are
//! asked for by way of a table: a wait is a system call, beside which that is nothing.
//!
//! What a node may rely on is little, so that other backends fit: an edge is told at least once, by some later wait, after
//! something came, or there was room again for which it was asked; also of what was there when the descriptor was added. It may
//! be told in vain, twice, in any order and in parts. None of a descriptor that was removed is told by waits that begin later.

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

/// What is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) index: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side has ended, or failed: reading tells which.
    pub(crate) closed: bool,
    /// Nothing that is written arrives any more, and whether that is an error.
    pub(crate) cut: Option<bool>,
}

/// The waiting side, of one thread.
pub(crate) trait Backend: Send + Sync {
    /// Waits until something is ready, somebody wakes, or the time is over, and adds what is ready. It may end early.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;

    /// Whether more is ready than the last wait brought, perhaps.
    #[cfg(feature = "tokio")]
    fn may_have_more(&self) -> bool;

    /// A descriptor that is readable when a wait would bring something.
    #[cfg(feature = "tokio")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd>;
}

/// The side that adds, removes and wakes, of any thread.
pub(crate) trait Registry: Send + Sync {
    /// Tells of every edge of a descriptor from now on, by this index; of room, if that is wanted.
    fn add(&self, source: BorrowedFd<'_>, index: usize, room: bool) -> io::Result<()>;

    /// Tells of room at a descriptor that was added from now on, and at once if there is some already; or not any more.
    fn ask(&self, source: BorrowedFd<'_>, index: usize, room: bool) -> io::Result<()>;

    /// Tells no more of it. Another may have its index next: an edge that was told before is then told of that one, which is
    /// read, or written to, in vain.
    fn remove(&self, source: BorrowedFd<'_>);

    /// Ends the wait, or the next one.
    fn wake(&self);
}

/// Both sides.
pub(crate) type Sides = (Box<dyn Backend>, Arc<dyn Registry>);

/// How a backend is asked to tell of room at a descriptor, where it is not to tell of that all the time.
pub(crate) struct Room {
    registry: Arc<dyn Registry>,
    index: usize,
}

impl Room {
    pub(crate) fn new(registry: Arc<dyn Registry>, index: usize) -> Room {
        Room { registry, index }
    }

    /// Has it tell from now on, and at once if there is room already; or not any more.
    pub(crate) fn ask(&self, source: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        self.registry.ask(source, self.index, wanted)
    }
}
