//! The control frames of a WebSocket.

use std::io;
use std::sync::atomic::Ordering;

use super::Connection;
use super::outgoing::{Outgoing, Phase};
use crate::codec::Framing;
use crate::codec::websocket::{self, Opcode, Side};

impl Connection {
    /// Replies to a WebSocket ping. Skips the reply if the queue limits are exceeded, because then
    /// the peer does not read.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn pong(&self, payload: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        let full = self.totals.queued.load(Ordering::Relaxed) > self.max_total_queued && !out.queue.is_empty();
        if out.phase != Phase::Open || out.queue.len() > self.max_queue || full {
            return Ok(());
        }
        self.control(&mut out, Opcode::Pong, payload)?;
        self.drain(&mut out)
    }

    /// Sends a WebSocket ping. Returns whether the kernel has accepted it; otherwise it waits in
    /// the queue. After a closing frame nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn ping(&self) -> io::Result<bool> {
        let mut out = self.lock();
        if out.phase == Phase::Open {
            let sent = self.control(&mut out, Opcode::Ping, &[]).and_then(|()| self.drain(&mut out));
            self.abort_on_error(&mut out, sent)?;
        }
        Ok(out.queue.is_empty())
    }

    pub(super) fn control(&self, out: &mut Outgoing, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        let Framing::WebSocket(side) = self.framing else { return Ok(()) };
        let key = out.next_key()?;
        debug_assert_eq!(key.is_some(), side == Side::Client);
        let frame = websocket::control(opcode, payload, key);
        self.push(out, &frame);
        Ok(())
    }
}
