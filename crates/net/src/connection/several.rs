//! Several threads that send on one connection at the same time. See [`crate::line`].

use std::io;
use std::mem;
use std::sync::PoisonError;

use super::{Connection, Holdings, Outgoing, Phase};
use crate::codec::websocket::mask;
use crate::codec::{Header, Kind, MOST_HEADER};
use crate::event::Outcome;

/// The most bytes that are left to the next thread in line.
const MOST: usize = 64 << 10;

impl Holdings {
    /// Takes the spare buffer.
    fn take(&self) -> Vec<u8> {
        mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, mut spare: Vec<u8>) {
        spare.clear();
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = spare;
    }
}

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
        if out.left.len() + MOST_HEADER + payload.len() > MOST {
            self.write_left(out)?;
        }
        // If something is queued for the peer, each thread needs the outcome of its own message.
        let flows = out.phase == Phase::Open && out.queue.is_empty() && !out.ends;
        if !flows || MOST_HEADER + payload.len() > MOST {
            self.write_left(out)?;
            return self.send_alone(out, kind, payload);
        }
        let before = out.left.len();
        if before == 0 {
            out.left = self.holdings.take();
        }
        let key = out.next_key()?;
        out.left.extend_from_slice(self.header(kind, payload.len(), key).bytes());
        let body = out.left.len();
        out.left.extend_from_slice(payload);
        if let Some(key) = key {
            mask::apply(&mut out.left[body..], key, 0);
        }
        if others {
            return Ok(Some(Outcome::Sent));
        }
        let frames = mem::take(&mut out.left);
        let sent = self.write_through(out, Header::NONE, &frames);
        if sent.is_err() {
            out.unwritten += before;
        }
        self.holdings.put_back(frames);
        sent.map(Some)
    }

    /// Writes what others left. They have returned `Sent`, so no `Drained` follows for them.
    pub(super) fn write_left(&self, out: &mut Outgoing) -> io::Result<()> {
        if out.left.is_empty() {
            return Ok(());
        }
        let frames = mem::take(&mut out.left);
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
        self.holdings.put_back(frames);
        written
    }
}
