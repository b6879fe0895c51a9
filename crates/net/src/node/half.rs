//! Half-closed connections: one direction has ended and the other continues.

use std::io::ErrorKind;

use super::Node;
use crate::backend::WriteClosed;
use crate::codec::Decoder;
use crate::event::{Endpoint, Event, Reason};
use crate::handle::usual_farewell;
use crate::incoming::Sending;
use crate::slab::Key;

impl<S> Node<S> {
    /// Ends the sending direction after what is queued has been written.
    pub(super) fn finish(&mut self, key: Key) {
        let Some(incoming) = self.stream(key) else { return };
        if incoming.sending == Sending::Finished {
            return;
        }
        incoming.sending = Sending::Finishing;
        if incoming.life.is_ending() {
            return;
        }
        let (connection, opening) = (incoming.connection.clone(), incoming.life.is_opening());
        // Repeated here, because the connection may have been replaced since the handle finished
        // it.
        match connection.begin_finish(&usual_farewell().payload()) {
            Ok(()) if opening => {}
            Ok(()) => {
                self.became_writable(key);
            }
            Err(error) => self.send_failed(key, error),
        }
    }

    /// Called when the send queue is empty: if the connection is finishing, ends the sending
    /// direction. Returns whether the connection still exists.
    pub(super) fn continue_finish(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        // A WebSocket's peer has received a closing frame, and would take the end of the stream for
        // an error.
        let is_websocket = matches!(incoming.decoder, Decoder::WebSocket(_));
        if incoming.sending != Sending::Finishing || !incoming.life.is_open() || is_websocket {
            return true;
        }
        match incoming.connection.link.finish() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            // Any other error means that the peer is gone, which a read will report.
            _ => incoming.sending = Sending::Finished,
        }
        if incoming.life.is_peer_finished() {
            self.end(key, Reason::Ended, &[]);
            return false;
        }
        true
    }

    /// Handles an orderly end of the peer's direction. Returns whether the connection continues
    /// half-open.
    pub(super) fn stays_half_open(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let stays_half_open = incoming.connection.half_open
            && !matches!(incoming.decoder, Decoder::WebSocket(_))
            && incoming.sending != Sending::Finished
            && incoming.life.is_open()
            && incoming.failed.is_none()
            && incoming.write_closed.is_none()
            && !incoming.connection.link.is_deserted();
        if stays_half_open {
            if incoming.life.finish_peer() {
                self.outbox.push(Event::Finished(Endpoint::new(key)));
            }
        } else if incoming.life.is_peer_finished() && incoming.write_closed == Some(WriteClosed::Error) {
            // A read reports only that the peer has ended its direction, which is known already.
            incoming.failed.get_or_insert(ErrorKind::ConnectionReset.into());
        }
        stays_half_open
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpStream};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::Options;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_half_open_connection_counts_no_message_that_was_delivered() {
        let mut node = Node::<()>::new().unwrap();
        let handle = node.handle();
        let listener = handle.listen_with("tcp+msg://127.0.0.1:0", &Options::default().half_open(true)).unwrap();
        let port = handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // The end arrives together with the end of a long message.
        let message = vec![7; 3 << 20];
        let sender = std::thread::spawn(move || {
            peer.write_all(&[&(message.len() as u32).to_be_bytes(), &message[..]].concat()).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            peer
        });
        loop {
            match node.next(Some(PATIENCE)).unwrap().expect("an event") {
                Event::Finished(_) => break,
                Event::Accepted { .. } => {}
                Event::Message(_, message) => assert_eq!(message.len(), 3 << 20),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(node.shared.totals.unfinished.load(Ordering::Relaxed), 0);
        drop(sender.join().unwrap());
    }
}
