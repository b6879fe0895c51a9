//! Several threads that send on one connection at the same time. See [`crate::line`].

use std::io;
use std::mem;

use super::Connection;
use super::outgoing::{Outgoing, Phase};
use crate::codec::websocket::mask;
use crate::codec::{Header, Kind, MAX_HEADER};
use crate::event::Outcome;
use crate::queue::CHUNK;

/// The most bytes that are left to the next thread in line.
const MOST: usize = CHUNK;

impl Connection {
    /// Sends a message while other threads are in line, or when others have left frames to this
    /// one.
    #[inline(never)]
    pub(super) fn send_in_line(
        &self,
        out: &mut Outgoing,
        kind: Kind,
        payload: &[u8],
        others: bool,
    ) -> io::Result<Option<Outcome>> {
        if out.delegated.len() + MAX_HEADER + payload.len() > MOST {
            self.write_delegated(out)?;
        }
        // If something is queued for the peer, each thread needs the outcome of its own message.
        let flows = out.phase == Phase::Open && out.queue.is_empty() && out.requested_end.is_none();
        if !flows || MAX_HEADER + payload.len() > MOST {
            self.write_delegated(out)?;
            return self.send_alone(out, kind, payload);
        }
        let before = out.delegated.len();
        if before == 0 {
            out.delegated = self.totals.spares.take_or_allocate();
        }
        let key = out.next_key()?;
        out.delegated.extend_from_slice(self.header(kind, payload.len(), key).bytes());
        let body = out.delegated.len();
        out.delegated.extend_from_slice(payload);
        if let Some(key) = key {
            mask::apply(&mut out.delegated[body..], key, 0);
        }
        if others {
            return Ok(Some(Outcome::Sent));
        }
        let frames = mem::take(&mut out.delegated);
        let sent = self.write_through(out, Header::NONE, &frames);
        if sent.is_err() {
            out.unwritten += before;
        }
        self.totals.spares.put_back(frames);
        sent.map(Some)
    }

    /// Writes what others left. They have returned `Sent`, so no `Drained` follows for them.
    pub(super) fn write_delegated(&self, out: &mut Outgoing) -> io::Result<()> {
        if out.delegated.is_empty() {
            return Ok(());
        }
        let frames = mem::take(&mut out.delegated);
        let owes_drained = out.owes_drained;
        let written = if out.queue.is_empty() {
            self.write_through(out, Header::NONE, &frames).map(drop)
        } else {
            self.push(out, &frames);
            Ok(())
        };
        out.owes_drained = owes_drained;
        if written.is_err() {
            out.unwritten += frames.len();
        }
        self.totals.spares.put_back(frames);
        written
    }
}
