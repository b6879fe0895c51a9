//! A datagram socket that any thread may send on. Nothing is queued: a send that would block is not
//! accepted.

use std::io;
use std::net::SocketAddr;
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError};

#[cfg(loom)]
use loom::sync::Mutex;

use crate::backend::WritableSwitch;
use crate::counters::SocketTally;
use crate::event::Outcome;
use crate::transport::Datagrams;

/// A datagram socket, and whether a sender waits for writability. The loom models in `models/` try
/// every order of these two.
pub(crate) struct Socket {
    pub(crate) datagrams: Box<dyn Datagrams>,
    /// Whether a sender whose send would block waits for `Drained`. Cleared when epoll reports
    /// writability.
    waits: Mutex<bool>,
    /// Set if writability has to be requested from epoll.
    switch: OnceLock<WritableSwitch>,
    /// The longest datagram that is sent, in bytes.
    max_len: usize,
    /// The user has closed it: nothing more is sent.
    closed: AtomicBool,
    pub(crate) tally: SocketTally,
}

impl Socket {
    pub(crate) fn new(datagrams: Box<dyn Datagrams>, max_len: usize) -> Socket {
        Socket {
            datagrams,
            waits: Mutex::new(false),
            switch: OnceLock::new(),
            max_len,
            closed: AtomicBool::new(false),
            tally: SocketTally::default(),
        }
    }

    /// Switches to writability notifications on request.
    pub(crate) fn use_writable_switch(&self, switch: WritableSwitch) {
        self.switch.set(switch).ok();
    }

    /// Sends nothing more: the node will close the socket.
    pub(crate) fn request_close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn max_len(&self) -> usize {
        self.max_len
    }

    /// Called when epoll reports writability. Returns whether a sender waits for it.
    pub(crate) fn take_waiting(&self) -> bool {
        self.set_waits(false)
    }

    /// Sets whether a sender waits, and requests writability accordingly. Returns the previous
    /// value.
    fn set_waits(&self, now: bool) -> bool {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *waits, now);
        if let Some(switch) = self.switch.get().filter(|_| before != now) {
            // It fails only for a socket that is being closed.
            switch.set(self.datagrams.source(), now).ok();
        }
        before
    }

    /// Sends datagrams that lie one behind the other. Returns how many datagrams and bytes are
    /// done, and the outcome: that of the next datagram, or of the last one that the kernel
    /// refused.
    pub(crate) fn send_many(&self, bytes: &[u8], lengths: &[usize], to: Option<SocketAddr>) -> (usize, usize, Outcome) {
        let (mut sent, mut at, mut last) = (0, 0, Outcome::Sent);
        if self.closed.load(Ordering::Relaxed) {
            return (0, 0, Outcome::Closed);
        }
        for run in lengths.chunk_by(|one, other| one == other) {
            let (each, end) = (run[0], at + run.len() * run[0]);
            let until = sent + run.len();
            while sent < until {
                let result = match each {
                    0 => self.attempt(|| self.datagrams.send(&[], to).map(|()| 0)),
                    _ => self.attempt(|| self.datagrams.send_run(&bytes[at..end], each, to)),
                };
                let count = match result {
                    Ok(bytes) => {
                        let count = bytes.checked_div(each).unwrap_or(1).clamp(1, until - sent);
                        self.tally.add_sent(count as u64, (count * each) as u64);
                        count
                    }
                    Err(Outcome::Full) => return (sent, at, Outcome::Full),
                    // A refused datagram is dropped, as the network might; the next ones are tried.
                    Err(outcome) => {
                        last = outcome;
                        1
                    }
                };
                sent += count;
                at += count * each;
            }
        }
        (sent, at, last)
    }

    pub(crate) fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> Outcome {
        if self.closed.load(Ordering::Relaxed) {
            return Outcome::Closed;
        }
        if datagram.len() > self.max_len {
            return Outcome::TooLarge;
        }
        match self.attempt(|| self.datagrams.send(datagram, to)) {
            Ok(()) => {
                self.tally.add_sent(1, datagram.len() as u64);
                Outcome::Sent
            }
            Err(outcome) => outcome,
        }
    }

    /// Calls the transport to send, and maps its errors to an outcome.
    #[inline]
    fn attempt<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> Result<T, Outcome> {
        let mut refused = false;
        loop {
            match call() {
                Ok(sent) => return Ok(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Try once more, unless the flag was set before this attempt: the node's thread
                    // may have handled the writability just before the flag was set.
                    if self.set_waits(true) {
                        self.tally.add_refused();
                        return Err(Outcome::Full);
                    }
                }
                // An ICMP error of an earlier datagram, which says nothing about this one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !refused => refused = true,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    return Err(Outcome::TooLarge);
                }
                Err(error) => {
                    self.tally.add_refused();
                    return Err(Outcome::Refused(error.kind()));
                }
            }
        }
    }
}
