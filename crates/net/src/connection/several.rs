//! Several threads that send by one connection at the same time: what the first of them does for the others. See [`crate::gate`].

use std::io;

use super::{Connection, Outgoing, Phase};
use crate::codec::Header;
use crate::event::Outcome;

/// How often a sender writes what others brought meanwhile, before they wait for it.
const ROUNDS: u32 = 8;

/// What the system said while something was written: the connection is to be closed.
pub(crate) struct Broken {
    pub(crate) error: io::Error,
    /// What became of the sender's own message, if that had been written.
    pub(crate) sent: Option<Outcome>,
}

impl Connection {
    /// Writes what other threads brought. They were told that it is sent, and are not told of room for more.
    pub(super) fn write_brought(&self, out: &mut Outgoing, frames: &[u8]) -> io::Result<()> {
        let owes_drained = out.owes_drained;
        let written = match out.phase {
            Phase::Open if out.queue.is_empty() => self.write_through(out, Header::NONE, frames).map(drop),
            Phase::Open => {
                self.push(out, frames);
                Ok(())
            }
            // The connection ended before the peer had them.
            _ => {
                out.unwritten += frames.len();
                Ok(())
            }
        };
        out.owes_drained = owes_drained;
        if written.is_err() {
            out.unwritten += frames.len();
        }
        written
    }

    /// Lets nobody bring anything any more, as the connection ends, and writes what was brought before.
    pub(super) fn shut_gate(&self, out: &mut Outgoing) -> io::Result<()> {
        let brought = self.gate.shut();
        if brought.is_empty() { Ok(()) } else { self.write_brought(out, &brought) }
    }

    /// Writes what others brought meanwhile, and has the next one be the first. Who sends goes on soon: after some rounds the others
    /// wait for their turn.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    #[inline]
    pub(super) fn leave(&self, out: &mut Outgoing) -> io::Result<()> {
        let (mut rounds, mut left) = (0, Ok(()));
        loop {
            self.gate.set_open(rounds < ROUNDS && out.phase == Phase::Open && out.queue.is_empty() && !out.ends);
            let Some(frames) = self.gate.leave() else { return left };
            let written = self.write_brought(out, &frames);
            left = left.and(self.or_broken(out, written));
            rounds += 1;
        }
    }
}
