//! Connections of which one direction has ended and the other goes on.

use std::io::ErrorKind;

use super::Node;
use crate::codec::Decoder;
use crate::event::{Endpoint, Event, Reason};
use crate::handle::usual_farewell;
use crate::incoming::Sending;
use crate::slab::Key;

impl<S> Node<S> {
    /// Sends no more at a connection than what waits, once it has come about.
    pub(super) fn finish(&mut self, key: Key) {
        let Some(incoming) = self.stream(key) else { return };
        if incoming.sending == Sending::Finished {
            return;
        }
        incoming.sending = Sending::Finishing;
        if incoming.ending.is_some() {
            return;
        }
        let (connection, opening) = (incoming.connection.clone(), incoming.opening.is_some());
        // Once more, as another may have taken the place of the one that was told when it was asked for.
        match connection.begin_finish(&usual_farewell().payload()) {
            Ok(()) if opening => {}
            Ok(()) => {
                self.became_writable(key);
            }
            Err(error) => self.broken(key, error),
        }
    }

    /// Nothing waits any more at a connection: if it is being finished, its peer is told. Whether the connection is still there.
    pub(super) fn go_on_finishing(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        // A WebSocket's peer was told by a frame, and would take the end of the stream for an accident.
        let told = matches!(incoming.decoder, Decoder::WebSocket(_));
        if incoming.sending != Sending::Finishing || incoming.opening.is_some() || incoming.ending.is_some() || told {
            return true;
        }
        match incoming.connection.link.finish() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            // Any other error is that of a peer that is gone, which reading tells.
            _ => incoming.sending = Sending::Finished,
        }
        if incoming.peer_finished {
            self.end(key, Reason::Ended, &[]);
            return false;
        }
        true
    }

    /// The peer has ended its side, in order. Whether the connection goes on all the same.
    pub(super) fn goes_on(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let goes_on = incoming.connection.half_open
            && !matches!(incoming.decoder, Decoder::WebSocket(_))
            && incoming.sending != Sending::Finished
            && incoming.opening.is_none()
            && incoming.ending.is_none()
            && incoming.failed.is_none()
            && incoming.cut.is_none()
            && !incoming.connection.link.is_deserted();
        if goes_on && !std::mem::replace(&mut incoming.peer_finished, true) {
            self.outbox.push_back(Event::Finished(Endpoint::new(key)));
        } else if !goes_on && incoming.peer_finished && incoming.ending.is_none() && incoming.cut == Some(true) {
            // Reading tells only that the peer has ended, as it did before.
            incoming.failed.get_or_insert(ErrorKind::ConnectionReset.into());
        }
        goes_on
    }
}
