//! A descriptor that is made ready by a call: for transports without sockets.
//!
//! Nobody reads a bell. Each ring is an edge of its own for whoever waits edge-triggered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// On Linux an eventfd, elsewhere a pipe.
#[cfg(target_os = "linux")]
pub(super) struct Bell(EventBell);
#[cfg(not(target_os = "linux"))]
pub(super) struct Bell(PipeBell);

impl Bell {
    /// # Errors
    ///
    /// If the process has no file descriptors left.
    pub(super) fn new() -> io::Result<Bell> {
        #[cfg(target_os = "linux")]
        return EventBell::new().map(Bell);
        #[cfg(not(target_os = "linux"))]
        return PipeBell::new().map(Bell);
    }

    pub(super) fn ring(&self) {
        self.0.ring();
    }

    /// What becomes ready.
    pub(super) fn source(&self) -> BorrowedFd<'_> {
        self.0.source()
    }
}

#[cfg(target_os = "linux")]
struct EventBell(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl EventBell {
    fn new() -> io::Result<EventBell> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(EventBell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    fn ring(&self) {
        // It fails only after 2^64 rings.
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }

    fn source(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A pipe in which a byte lies from the first ring on. Each ring takes a byte and then adds one, so
/// the pipe never fills, and whoever waits sees an arrival.
#[cfg(any(test, not(target_os = "linux")))]
struct PipeBell {
    reader: io::PipeReader,
    writer: io::PipeWriter,
}

#[cfg(any(test, not(target_os = "linux")))]
impl PipeBell {
    fn new() -> io::Result<PipeBell> {
        // It is close-on-exec.
        let (reader, writer) = io::pipe()?;
        for end in [reader.as_fd(), writer.as_fd()] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(PipeBell { reader, writer })
    }

    fn ring(&self) {
        // The first ring finds nothing to take. Several rings at a time leave a byte each.
        rustix::io::read(&self.reader, &mut [0; 64]).ok();
        // It fails only if the pipe is full, and then the arrival of what fills it is an edge.
        rustix::io::write(&self.writer, &[1]).ok();
    }

    fn source(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::epoll;

    /// Each ring is reported once, however many came before it.
    #[test]
    fn every_ring_of_a_pipe_is_an_edge() {
        let bell = PipeBell::new().unwrap();
        let (mut backend, registry) = epoll().unwrap();
        registry.add(bell.source(), 7, false).unwrap();
        let mut edges = || {
            let mut ready = Vec::new();
            backend.wait(Some(Duration::ZERO), &mut ready).unwrap();
            ready.len()
        };
        assert_eq!(edges(), 0);
        for _ in 0..100_000 {
            bell.ring();
        }
        for _ in 0..3 {
            assert_eq!((edges(), edges()), (1, 0));
            bell.ring();
        }
    }
}
