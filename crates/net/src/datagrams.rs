//! A socket of datagrams, which any thread may send by. Nothing is queued: what there is no room for is not taken.

use std::io;
use std::net::SocketAddr;
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::{OnceLock, PoisonError};

#[cfg(loom)]
use loom::sync::Mutex;

use crate::backend::Room;
use crate::event::Outcome;
use crate::transport::Datagrams;

/// A socket of datagrams, and whether a sender waits for room. `models/` has every order tried of that and of there being room.
pub(crate) struct Socket {
    pub(crate) datagrams: Box<dyn Datagrams>,
    /// Whether a sender that found no room waits to hear of some. It stays so until epoll tells.
    waits: Mutex<bool>,
    /// Where epoll has to be asked to tell.
    room: OnceLock<Room>,
    /// The longest datagram that is sent.
    most: usize,
}

impl Socket {
    pub(crate) fn new(datagrams: Box<dyn Datagrams>, most: usize) -> Socket {
        Socket { datagrams, waits: Mutex::new(false), room: OnceLock::new(), most }
    }

    /// Epoll tells of room where it is asked to, and only there.
    pub(crate) fn asks_for(&self, room: Room) {
        self.room.set(room).ok();
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// There is room, as epoll told: whether a sender waits to hear of it.
    pub(crate) fn take_waiting(&self) -> bool {
        self.set_waits(false)
    }

    /// Notes whether a sender waits, and has epoll tell of room accordingly. Whether one did before.
    fn set_waits(&self, now: bool) -> bool {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *waits, now);
        if let Some(room) = self.room.get().filter(|_| before != now) {
            // It fails for a socket alone that is being closed.
            room.ask(self.datagrams.source(), now).ok();
        }
        before
    }

    /// Sends datagrams that lie one behind the other. How many are done with, their bytes, and what became
    /// of the next, or of the last one that the system did not send.
    pub(crate) fn send_many(&self, bytes: &[u8], lengths: &[usize], to: Option<SocketAddr>) -> (usize, usize, Outcome) {
        let (mut sent, mut at, mut last) = (0, 0, Outcome::Sent);
        for run in lengths.chunk_by(|one, other| one == other) {
            let (each, end) = (run[0], at + run.len() * run[0]);
            let until = sent + run.len();
            while sent < until {
                let result = match each {
                    0 => self.attempt(|| self.datagrams.send(&[], to).map(|()| 0)),
                    _ => self.attempt(|| self.datagrams.send_run(&bytes[at..end], each, to)),
                };
                let count = match result {
                    Ok(bytes) => bytes.checked_div(each).unwrap_or(1).clamp(1, until - sent),
                    Err(Outcome::Full) => return (sent, at, Outcome::Full),
                    // One that the system does not send is gone, as a datagram may be; the others are tried.
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
        if datagram.len() > self.most {
            return Outcome::TooLarge;
        }
        match self.attempt(|| self.datagrams.send(datagram, to)) {
            Ok(()) => Outcome::Sent,
            Err(outcome) => outcome,
        }
    }

    /// Sends by a call of the transport, or says what became of that.
    #[inline]
    fn attempt<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> Result<T, Outcome> {
        let mut refused = false;
        loop {
            match call() {
                Ok(sent) => return Ok(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Once more, unless it was noted before this try that somebody waits: the node's thread may have been told of
                    // room just before it could know.
                    if self.set_waits(true) {
                        return Err(Outcome::Full);
                    }
                }
                // Somebody did not listen to an earlier one, which says nothing of this.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !refused => refused = true,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    return Err(Outcome::TooLarge);
                }
                Err(error) => return Err(Outcome::Refused(error.kind())),
            }
        }
    }
}
