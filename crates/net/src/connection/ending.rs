//! How the sending half of a connection ends, and what happens to unsent data.

use std::io;
use std::mem;

use super::Connection;
use super::outgoing::{Outgoing, Phase, RequestedEnd};
use crate::codec::websocket::Opcode;
use crate::event::Outcome;

impl Connection {
    /// Accepts nothing more, and writes what it can of the queue. A WebSocket sends a closing frame
    /// with this payload.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn begin_finish(&self, farewell: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        out.will_reconnect = false;
        match out.phase {
            // The closing frame is that of the close.
            Phase::Open | Phase::Opening if out.requested_end == Some(RequestedEnd::Close) => Ok(()),
            Phase::Open => {
                let left = self.write_delegated(&mut out);
                let finished = left.and_then(|()| self.control(&mut out, Opcode::Close, farewell)).and_then(|()| {
                    out.phase = Phase::Finishing;
                    self.drain(&mut out)
                });
                self.abort_on_error(&mut out, finished)
            }
            Phase::Opening => {
                out.requested_end = Some(RequestedEnd::Finish);
                Ok(())
            }
            // The node repeats this for the connection that replaced it.
            Phase::Replaced => Ok(()),
            Phase::Finishing | Phase::Closing | Phase::Closed => Ok(()),
        }
    }

    /// Accepts nothing more, and writes what it can of the queue. A WebSocket sends a closing frame
    /// with this payload. Returns `false` if the connection was closing already.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn begin_close(&self, farewell: &[u8]) -> io::Result<bool> {
        let mut out = self.lock();
        match out.phase {
            Phase::Closing | Phase::Closed | Phase::Replaced => return Ok(false),
            // After `begin_finish` the closing frame has been sent.
            Phase::Opening | Phase::Finishing => {}
            Phase::Open => {
                self.write_delegated(&mut out)?;
                self.control(&mut out, Opcode::Close, farewell)?;
            }
        }
        out.phase = Phase::Closing;
        self.drain(&mut out)?;
        Ok(true)
    }

    /// Accepts nothing more: the node will close the connection. Returns `false` if another
    /// connection has replaced this one.
    pub(crate) fn request_close(&self) -> bool {
        let mut out = self.lock();
        out.requested_end = Some(RequestedEnd::Close);
        out.will_reconnect = false;
        out.phase != Phase::Replaced
    }

    /// Whether messages wait for the connection to open.
    pub(crate) fn has_early_messages(&self) -> bool {
        !self.lock().early.is_empty()
    }

    /// The outcome of a message whose write failed.
    pub(crate) fn refused_outcome(&self) -> Outcome {
        if self.lock().will_reconnect { Outcome::Full } else { Outcome::Closed }
    }

    /// Ends the connection after an error.
    pub(crate) fn abort(&self) {
        self.shut(&mut self.lock());
    }

    /// Ends the connection for good. Returns how many bytes were not written.
    pub(crate) fn close(&self) -> usize {
        let mut out = self.lock();
        out.will_reconnect = false;
        self.shut(&mut out);
        out.unwritten
    }

    /// Ends the connection. Messages that wait for it to open are kept for a successor, if there
    /// will be one.
    pub(super) fn shut(&self, out: &mut Outgoing) {
        self.drop_queue(out);
        out.phase = Phase::Closed;
        if !out.will_reconnect {
            out.unwritten += out.early.len();
            out.early.clear(&self.totals.spares);
            self.count_removed(out);
        }
    }

    /// Discards the queue.
    fn drop_queue(&self, out: &mut Outgoing) {
        // Before the connection is open, the queue holds the handshake request and no message.
        if out.phase != Phase::Opening {
            out.unwritten += out.queue.len() + mem::take(&mut out.delegated).len();
        }
        out.queue.clear(&self.totals.spares);
        self.count_removed(out);
    }

    /// Sets whether a successor replaces this connection if it is lost.
    pub(crate) fn set_will_reconnect(&self, will_reconnect: bool) {
        self.lock().will_reconnect = will_reconnect;
    }

    /// Moves what waits for this connection to open to its successor. Returns how many accepted
    /// bytes were not written.
    pub(crate) fn move_to_successor(&self, to: &Connection) -> usize {
        let mut out = self.lock();
        let mut next = to.lock();
        self.drop_queue(&mut out);
        next.early = mem::take(&mut out.early);
        next.counted += mem::take(&mut out.counted);
        next.owes_drained = out.owes_drained;
        next.requested_end = out.requested_end;
        next.will_reconnect = out.will_reconnect;
        next.counts.messages += out.counts.messages;
        next.counts.bytes += out.counts.bytes;
        next.counts.refused += out.counts.refused;
        to.received.messages.add(self.received.messages.get());
        to.received.bytes.add(self.received.bytes.get());
        out.phase = Phase::Replaced;
        out.unwritten
    }
}
