//! A socket of datagrams, which any thread may send by. Nothing is queued: what there is no room for is not taken.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::event::Outcome;
use crate::transport::Datagrams;

/// A socket of datagrams, and whether a sender waits for room.
pub(crate) struct Socket {
    pub(crate) datagrams: Box<dyn Datagrams>,
    pub(crate) owes_drained: AtomicBool,
    /// The longest datagram that is sent.
    most: usize,
}

impl Socket {
    pub(crate) fn new(datagrams: Box<dyn Datagrams>, most: usize) -> Socket {
        Socket { datagrams, owes_drained: AtomicBool::new(false), most }
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Sends datagrams that lie one after the other. How many were sent, their bytes, and what became of the next.
    pub(crate) fn send_many(&self, bytes: &[u8], lengths: &[usize], to: Option<SocketAddr>) -> (usize, usize, Outcome) {
        let mut at = 0;
        for (sent, length) in lengths.iter().enumerate() {
            match self.send(&bytes[at..at + length], to) {
                Outcome::Full => return (sent, at, Outcome::Full),
                // One that the system does not send is gone, as a datagram may be; the others are tried.
                _ => at += length,
            }
        }
        (lengths.len(), at, Outcome::Sent)
    }

    pub(crate) fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> Outcome {
        if datagram.len() > self.most {
            return Outcome::TooLarge;
        }
        let (mut waits, mut refused) = (false, false);
        loop {
            match self.datagrams.send(datagram, to) {
                Ok(()) => return Outcome::Sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if waits {
                        return Outcome::Full;
                    }
                    // Once more, as the node's thread may have been told of room just before it could know that we wait.
                    self.owes_drained.store(true, Ordering::SeqCst);
                    waits = true;
                }
                // Somebody did not listen to an earlier one, which says nothing of this.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !refused => refused = true,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    return Outcome::TooLarge;
                }
                Err(error) => return Outcome::Refused(error.kind()),
            }
        }
    }
}
