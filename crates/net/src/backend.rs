//! Waiting for descriptors to become ready: epoll, edge by edge, by mio.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

/// The token of the waker: no index of a slab is as large.
const WAKER: Token = Token(usize::MAX);
/// How many events one wait brings at most.
const BATCH: usize = 1024;

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
pub(crate) struct Backend {
    poll: Poll,
    events: Events,
    /// The last wait brought as many events as it could.
    full: bool,
}

/// The side that adds, removes and wakes, of any thread.
pub(crate) struct Registry {
    registry: mio::Registry,
    waker: Waker,
}

/// Both sides.
pub(crate) fn backend() -> io::Result<(Backend, Registry)> {
    let poll = Poll::new()?;
    let registry = poll.registry().try_clone()?;
    let waker = Waker::new(&registry, WAKER)?;
    Ok((Backend { poll, events: Events::with_capacity(BATCH), full: false }, Registry { registry, waker }))
}

/// How epoll is asked to tell of room at a descriptor, where it is not to tell of that all the time.
pub(crate) struct Room {
    registry: Arc<Registry>,
    index: usize,
}

impl Room {
    pub(crate) fn new(registry: Arc<Registry>, index: usize) -> Room {
        Room { registry, index }
    }

    /// Has it tell from now on, and at once if there is room already; or not any more.
    pub(crate) fn ask(&self, source: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        let Room { registry, index } = self;
        registry.registry.reregister(&mut SourceFd(&source.as_raw_fd()), Token(*index), interest(wanted))
    }
}

fn interest(room: bool) -> Interest {
    if room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
}

impl Backend {
    /// Waits until something is ready, somebody wakes, or the time is over.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let before = ready.len();
        ready.extend(self.events.iter().filter(|event| event.token() != WAKER).map(|event| Ready {
            index: event.token().0,
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            closed: event.is_read_closed() || event.is_error(),
            cut: (event.is_write_closed() || event.is_error()).then(|| event.is_error()),
        }));
        // The waker may have been among them.
        self.full = ready.len() - before >= BATCH - 1;
        Ok(())
    }

    /// Whether more is ready than the last wait brought, perhaps.
    #[cfg(feature = "tokio")]
    pub(crate) fn may_have_more(&self) -> bool {
        self.full
    }

    /// A descriptor that is readable when a wait would bring something.
    #[cfg(feature = "tokio")]
    pub(crate) fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        use std::os::fd::AsFd;
        self.poll.registry().as_fd().try_clone_to_owned()
    }
}

impl Registry {
    /// Tells of every edge of a descriptor from now on, by this index; of room, if that is wanted.
    pub(crate) fn add(&self, source: BorrowedFd<'_>, index: usize, room: bool) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&source.as_raw_fd()), Token(index), interest(room))
    }

    /// Tells no more of it. Another may have its index next: an edge that was told before is then told of that one, which is
    /// read, or written to, in vain.
    pub(crate) fn remove(&self, source: BorrowedFd<'_>) {
        // It fails only for what was never added.
        self.registry.deregister(&mut SourceFd(&source.as_raw_fd())).ok();
    }

    /// Ends the wait, or the next one.
    pub(crate) fn wake(&self) {
        // The system fails to only where the count of an eventfd overflows, and then it is awake.
        self.waker.wake().ok();
    }
}
