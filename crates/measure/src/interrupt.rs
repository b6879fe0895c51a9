//! Ctrl-C and termination signals, as a descriptor that the coordinator can poll. Children do not
//! get them.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A descriptor that becomes readable when the user interrupts the run.
#[derive(Debug)]
pub struct Interrupt {
    pipe: UnixStream,
    seen: bool,
}

impl Interrupt {
    /// Installs handlers for SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn install() -> io::Result<Interrupt> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Interrupt { pipe: read, seen: false })
    }

    /// An interrupt without signals, for a test, and what requests it: any byte.
    #[cfg(test)]
    pub(crate) fn of_test() -> (Interrupt, UnixStream) {
        let (pipe, request) = UnixStream::pair().expect("a socket pair");
        pipe.set_nonblocking(true).expect("a socket");
        (Interrupt { pipe, seen: false }, request)
    }

    /// Whether the user has interrupted the run. Does not block.
    pub fn is_requested(&mut self) -> bool {
        if !self.seen {
            self.seen = matches!(self.pipe.read(&mut [0; 16]), Ok(count) if count > 0);
        }
        self.seen
    }

    /// Checks that the user has not interrupted the run.
    ///
    /// # Errors
    /// When the user has interrupted the run.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if self.is_requested() { Err(anyhow::anyhow!("interrupted")) } else { Ok(()) }
    }
}

impl AsFd for Interrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
