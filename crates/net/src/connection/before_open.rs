//! What a connection writes until it is open.

use std::io;
use std::mem;

use super::outgoing::Phase;
use super::{Connection, Flushed};

impl Connection {
    /// Queues what is to be written first once the link is connected.
    pub(crate) fn first(&self, bytes: &[u8]) {
        self.push(&mut self.lock(), bytes);
    }

    /// Queues bytes of the handshake, or a reply to a control frame, and writes as much as
    /// possible.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn reply(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        if out.phase == Phase::Closed {
            return Ok(());
        }
        self.push(&mut out, bytes);
        self.drain(&mut out)
    }

    /// Ends the handshake: the messages that waited for it are written.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn open(&self) -> io::Result<Flushed> {
        {
            let mut out = self.lock();
            if out.phase == Phase::Opening {
                out.phase = Phase::Open;
                let early = mem::take(&mut out.early);
                out.queue.push(early.front());
            }
        }
        self.flush()
    }
}
