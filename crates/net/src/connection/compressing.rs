//! Compressed messages of a WebSocket. See [`crate::deflate`].

use std::io;

use super::Connection;
use super::outgoing::{Outgoing, Phase};
use crate::codec::Kind;
use crate::codec::websocket::{self, Opcode, mask};
use crate::event::Outcome;

impl Connection {
    /// Compresses a message and sends it. Once it is compressed it has to be sent, because later
    /// ones may refer to it; so this happens under the lock, and only if the message is accepted.
    #[inline(never)]
    pub(super) fn send_compressed(
        &self,
        out: &mut Outgoing,
        kind: Kind,
        payload: &[u8],
    ) -> io::Result<Option<Outcome>> {
        self.write_delegated(out)?;
        let accepts = out.phase == Phase::Open && out.requested_end.is_none() && self.has_room(out, payload.len());
        let compressor = out.compressor.as_mut().filter(|_| accepts);
        let Some(compressor) = compressor else { return self.send_alone(out, kind, payload) };
        let mut body = compressor.compress(payload)?;
        let key = out.next_key()?;
        if let Some(key) = key {
            mask::apply(&mut body, key, 0);
        }
        let header = websocket::compressed_header(Opcode::from(kind), body.len(), key);
        if out.queue.is_empty() {
            return self.write_through(out, header, &body).map(Some);
        }
        self.push(out, header.bytes());
        self.push(out, &body);
        out.owes_drained = true;
        Ok(Some(Outcome::Queued))
    }
}
