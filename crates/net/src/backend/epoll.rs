//! Edge-triggered epoll, through mio.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::{Backend, BackendPair, Ready, Registry, WriteClosed};

/// The token of the waker. No index of a slab is this large.
const WAKER: Token = Token(usize::MAX);
/// The most events that one wait returns.
const BATCH: usize = 1024;

struct Epoll {
    poll: Poll,
    events: Events,
    /// The last wait returned as many events as possible.
    full: bool,
}

struct EpollRegistry {
    registry: mio::Registry,
    waker: Waker,
}

/// Creates both sides of an epoll instance.
///
/// # Errors
///
/// If the process has no file descriptors left.
pub(crate) fn epoll() -> io::Result<BackendPair> {
    let poll = Poll::new()?;
    let registry = poll.registry().try_clone()?;
    let waker = Waker::new(&registry, WAKER)?;
    let epoll = Epoll { poll, events: Events::with_capacity(BATCH), full: false };
    Ok((Box::new(epoll), Arc::new(EpollRegistry { registry, waker })))
}

fn interest(writable: bool) -> Interest {
    if writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
}

impl Backend for Epoll {
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        let before = ready.len();
        ready.extend(self.events.iter().filter(|event| event.token() != WAKER).map(|event| Ready {
            index: event.token().0,
            readable: event.is_readable() || event.is_read_closed() || event.is_error(),
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            read_closed: event.is_read_closed() || event.is_error(),
            write_closed: if event.is_error() {
                Some(WriteClosed::Error)
            } else {
                event.is_write_closed().then_some(WriteClosed::Shutdown)
            },
        }));
        // The waker's event may have been one of them.
        self.full = ready.len() - before >= BATCH - 1;
        Ok(())
    }

    #[cfg(feature = "tokio")]
    fn may_have_more(&self) -> bool {
        self.full
    }

    #[cfg(feature = "tokio")]
    fn descriptor(&self) -> io::Result<std::os::fd::OwnedFd> {
        use std::os::fd::AsFd;
        self.poll.registry().as_fd().try_clone_to_owned()
    }
}

impl Registry for EpollRegistry {
    fn add(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&source.as_raw_fd()), Token(index), interest(writable))
    }

    fn set_writable(&self, source: BorrowedFd<'_>, index: usize, writable: bool) -> io::Result<()> {
        self.registry.reregister(&mut SourceFd(&source.as_raw_fd()), Token(index), interest(writable))
    }

    fn remove(&self, source: BorrowedFd<'_>) {
        // It fails only for a descriptor that was never added.
        self.registry.deregister(&mut SourceFd(&source.as_raw_fd())).ok();
    }

    fn wake(&self) {
        // It fails only if the eventfd's counter overflows, and then the thread is awake.
        self.waker.wake().ok();
    }
}
