//! How the sending half of a connection ends, and what becomes of what it has not sent.

use std::io;
use std::mem;
use std::sync::atomic::Ordering;

use super::{Connection, Outgoing, Phase};
use crate::codec::websocket::Opcode;
use crate::event::Outcome;

/// What becomes of a message after the end: where a connection returns, it may be taken then, which is told.
pub(super) fn refuse(out: &mut Outgoing) -> Outcome {
    if !out.returns {
        return Outcome::Closed;
    }
    out.owes_drained = true;
    Outcome::Full
}

impl Connection {
    /// Takes nothing more, and writes what it can of what waits; a WebSocket says good-bye with this payload.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn begin_finish(&self, farewell: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        out.returns = false;
        match out.phase {
            Phase::Open => {
                let left = self.write_left(&mut out);
                let finished = left.and_then(|()| self.control(&mut out, Opcode::Close, farewell)).and_then(|()| {
                    out.phase = Phase::Finishing;
                    self.drain(&mut out)
                });
                self.or_broken(&mut out, finished)
            }
            Phase::Opening => {
                out.ends = true;
                Ok(())
            }
            // The node does so with what took its place.
            Phase::Moved => Ok(()),
            Phase::Finishing | Phase::Closing | Phase::Closed => Ok(()),
        }
    }

    /// Takes nothing more, and writes what waits; a WebSocket says good-bye with this payload. Whether there was anything to
    /// end, which there is once.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn begin_close(&self, farewell: &[u8]) -> io::Result<bool> {
        let mut out = self.lock();
        match out.phase {
            Phase::Closing | Phase::Closed | Phase::Moved => return Ok(false),
            // Who finished has said good-bye.
            Phase::Opening | Phase::Finishing => {}
            Phase::Open => {
                self.write_left(&mut out)?;
                self.control(&mut out, Opcode::Close, farewell)?;
            }
        }
        out.phase = Phase::Closing;
        self.drain(&mut out)?;
        Ok(true)
    }

    /// Takes no more, though it has not come about yet. Whether anything waits for that.
    pub(crate) fn ends(&self) -> bool {
        let mut out = self.lock();
        out.ends = true;
        !out.early.is_empty()
    }

    /// What becomes of a message that has met with an error.
    pub(crate) fn refusal(&self) -> Outcome {
        if self.lock().returns { Outcome::Full } else { Outcome::Closed }
    }

    /// Ends it, as it has failed.
    pub(crate) fn cut(&self) {
        self.shut(&mut self.lock());
    }

    /// Ends it for good. How many bytes were not written.
    pub(crate) fn close(&self) -> usize {
        let mut out = self.lock();
        out.returns = false;
        self.shut(&mut out);
        out.unwritten
    }

    /// Ends it. What waits for it to come about is left to what takes its place.
    pub(super) fn shut(&self, out: &mut Outgoing) {
        self.drop_queue(out);
        out.phase = Phase::Closed;
        if !out.returns {
            out.unwritten += out.early.len();
            self.holdings.queued.fetch_sub(out.early.len(), Ordering::Relaxed);
            out.early.clear();
        }
    }

    /// Drops what was to be written.
    fn drop_queue(&self, out: &mut Outgoing) {
        // Before it has come about, that is a request, and no message.
        if out.phase != Phase::Opening {
            out.unwritten += out.queue.len() + mem::take(&mut out.left).len();
        }
        self.holdings.queued.fetch_sub(out.queue.len(), Ordering::Relaxed);
        out.queue.clear();
    }

    /// Says whether another will take its place if it is lost.
    pub(crate) fn set_returns(&self, returns: bool) {
        self.lock().returns = returns;
    }

    /// Gives what waits for this connection, which did not come about or was lost, to the one that takes its place. How many
    /// bytes were taken and not written.
    pub(crate) fn hand_over(&self, to: &Connection) -> usize {
        let mut out = self.lock();
        let mut next = to.lock();
        self.drop_queue(&mut out);
        next.early = mem::take(&mut out.early);
        next.owes_drained = out.owes_drained;
        next.ends = out.ends;
        next.returns = out.returns;
        out.phase = Phase::Moved;
        out.unwritten
    }
}
