//! Several threads that send by one connection at the same time: what the first of them does for the others. See [`crate::gate`].

use std::io;

use super::{Connection, Outgoing, Phase};
use crate::codec::Header;

/// How often a sender writes what others brought meanwhile, before they wait for it.
const ROUNDS: u32 = 8;

impl Connection {
    /// Writes what other threads brought, before anything else.
    #[cold]
    pub(super) fn write_brought(&self, out: &mut Outgoing) -> io::Result<()> {
        self.write_whole(out, &self.gate.take())
    }

    /// Writes frames whose senders were told that they are sent.
    fn write_whole(&self, out: &mut Outgoing, frames: &[u8]) -> io::Result<()> {
        match out.phase {
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
        }
    }

    /// Writes what others brought meanwhile, and has the next one be the first. Who sends goes on soon: after some rounds the others
    /// wait for their turn.
    #[inline]
    pub(super) fn leave<T>(&self, out: &mut Outgoing, sent: io::Result<T>) -> io::Result<T> {
        let mut sent = self.or_broken(out, sent);
        let (mut rounds, mut spare) = (0, Vec::new());
        loop {
            self.gate.set_open(rounds < ROUNDS && out.phase == Phase::Open && out.queue.is_empty() && !out.ends);
            let Some(frames) = self.gate.leave(spare) else { return sent };
            let written = self.write_whole(out, &frames);
            if let Err(error) = self.or_broken(out, written) {
                sent = Err(error);
            }
            rounds += 1;
            spare = frames;
            spare.clear();
        }
    }
}
