//! How connections end, and what is reported about it.

use std::io::{self, ErrorKind};

use super::counting::note_end;
use super::{Entry, Node};
use crate::Address;
use crate::codec::{Decoder, Violation};
use crate::connection::Flushed;
use crate::event::{AcceptFailure, Endpoint, Event, Late, Reason};
use crate::incoming::{Arrivals, Incoming};
#[cfg(doc)]
use crate::limits::Limits;
use crate::new_endpoint::Origin;
use crate::slab::Key;
use crate::trace;

impl<S> Node<S> {
    /// Handles a send error from the kernel. Messages received before it are delivered before
    /// `Closed`.
    pub(super) fn send_failed(&mut self, key: Key, error: io::Error) {
        let Some(incoming) = self.stream(key) else { return };
        if !incoming.life.is_open() {
            return self.end(key, Reason::Io(error), &[]);
        }
        incoming.connection.abort();
        incoming.failed.get_or_insert(error);
        incoming.read_to_end = true;
        self.will_read(key.index as usize);
    }

    /// Closes an endpoint.
    pub(super) fn close(&mut self, key: Key, farewell: &[u8]) {
        match self.entries.get_mut(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => {
                incoming.connection.request_close();
                match incoming.reconnect.take().and_then(|reconnect| reconnect.next_attempt) {
                    // It waits to reconnect: nothing is in flight.
                    Some(_) => self.close_or_reconnect(key, Reason::Closed),
                    None => self.end(key, Reason::Closed, farewell),
                }
            }
            Some(Some(entry)) if entry.key() == key => self.close_or_reconnect(key, Reason::Closed),
            _ => {}
        }
    }

    /// Starts to end a connection, or continues to.
    pub(super) fn end(&mut self, key: Key, reason: Reason, farewell: &[u8]) {
        let Some(incoming) = self.stream(key) else { return };
        if incoming.life.is_ending() {
            return self.end_again(key, reason);
        }
        let is_connecting = incoming.life.is_connecting();
        match (incoming.life.attempt(), &reason) {
            // What was sent before it is open is written first.
            (Some(attempt), Reason::Closed) if incoming.connection.has_early_messages() => {
                attempt.farewell = Some(farewell.to_vec());
            }
            (Some(_), Reason::Closed) | (_, Reason::Io(_)) => self.close_or_reconnect(key, reason),
            (Some(_), _) if is_connecting => self.close_or_reconnect(key, reason),
            _ => self.begin_end(key, reason, farewell),
        }
    }

    /// Handles one more reason to end while a connection ends.
    fn end_again(&mut self, key: Key, reason: Reason) {
        let Some(incoming) = self.stream(key) else { return };
        let was_open = incoming.life.never_open().is_none();
        let Some(ending) = incoming.life.ending() else { return };
        match reason {
            // An error during our own close means that the close failed. If the peer caused the
            // end, its reason stays.
            Reason::Io(_) if ending.finished || !matches!(ending.reason, Some(Reason::Closed)) => self.finish_end(key),
            Reason::Io(_) => self.close_or_reconnect(key, reason),
            Reason::Closed if !was_open => self.close_or_reconnect(key, reason),
            reason => {
                ending.peer_ended |= matches!(reason, Reason::Ended | Reason::Truncated);
                if matches!(reason, Reason::ClosedByPeer(_) | Reason::Violation(_)) {
                    incoming.discard();
                }
                self.continue_end(key);
            }
        }
    }

    /// Begins the orderly end of a connection: the queue is written, then the farewell.
    fn begin_end(&mut self, key: Key, reason: Reason, farewell: &[u8]) {
        self.end_run(key);
        let Some(incoming) = self.stream(key) else { return };
        let connection = incoming.connection.clone();
        if matches!(reason, Reason::Violation(Violation::Handshake(_))) {
            // The reply to a refused handshake is HTTP and not a frame.
            connection.reply(farewell).ok();
        }
        let farewell = frame_payload(&reason, farewell);
        let at_once = is_reported_at_once(&reason);
        let refused = matches!(incoming.life.never_open(), Some(Origin::Connecting(_)));
        if refused || at_once && incoming.reconnect.is_some() {
            // A server that refused expects nothing more. A connection that reconnects has no time
            // to wait for its peer.
            connection.begin_close(&farewell).ok();
            return self.close_or_reconnect(key, reason);
        }
        self.await_peers_end(key, reason, at_once);
        match connection.begin_close(&farewell) {
            Ok(_) => {
                self.continue_end(key);
            }
            Err(error) => self.end(key, Reason::Io(error), &[]),
        }
    }

    /// Reads until the peer ends its direction too, within [`Limits::flush`]. The reason is
    /// reported at once, or when that is over.
    fn await_peers_end(&mut self, key: Key, reason: Reason, at_once: bool) {
        let until = self.flush_deadline();
        let peer_ended = matches!(reason, Reason::Ended | Reason::Truncated);
        // What a peer sends after a violation is discarded. A peer that got our closing frame may
        // still reply to it.
        let arrivals = if matches!(reason, Reason::Closed) { Arrivals::Decoded } else { Arrivals::Discarded };
        let reason = if at_once {
            self.report_end(key, reason);
            None
        } else {
            Some(reason)
        };
        let Some(incoming) = self.stream(key) else { return };
        incoming.begin_ending(reason, until, arrivals, peer_ended);
        if incoming.reading.is_paused() {
            // Even a paused connection is read now, to see the peer's end.
            self.will_read(key.index as usize);
        }
        self.arm(key);
    }

    /// Delivers no further messages of the run of a connection. What is left of it is decoded and
    /// discarded.
    fn end_run(&mut self, key: Key) {
        self.count_run();
        if self.reader.run.as_ref().is_some_and(|run| run.from.key == key) {
            self.reader.end_run();
        }
    }

    /// Continues to end a connection as far as possible now. Returns whether it still exists.
    pub(super) fn continue_end(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let connection = incoming.connection.clone();
        let is_websocket = matches!(incoming.decoder, Decoder::WebSocket(_));
        let Some(ending) = incoming.life.ending() else { return true };
        let waits_for_answer = is_websocket && ending.arrivals == Arrivals::Decoded;
        if !ending.finished && (!waits_for_answer || ending.peer_ended) {
            match connection.flush() {
                Ok(Flushed::Finished) => match connection.link.finish() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // Any other error means that the peer is gone, which a read will report.
                    _ => ending.finished = true,
                },
                Ok(_) => {}
                Err(error) => {
                    self.end(key, Reason::Io(error), &[]);
                    return false;
                }
            }
        }
        if ending.finished && ending.peer_ended {
            self.finish_end(key);
            return false;
        }
        true
    }

    /// Finishes the end of a connection, with the reason recorded when it began.
    pub(super) fn finish_end(&mut self, key: Key) {
        let Some(ending) = self.stream(key).and_then(|incoming| incoming.life.ending()) else { return };
        match ending.reason.take() {
            Some(reason) => self.reconnect_or_remove(key, reason),
            None => self.remove(key, None),
        }
    }

    /// Ends an endpoint at once and reports why: as `Lost` if it will reconnect, otherwise as
    /// `Closed`.
    pub(super) fn close_or_reconnect(&mut self, key: Key, reason: Reason) {
        let ending = self.stream(key).and_then(|incoming| incoming.life.ending());
        if ending.is_some_and(|ending| ending.reason.is_none()) {
            self.remove(key, None);
        } else {
            self.reconnect_or_remove(key, reason);
        }
    }

    /// As [`Node::close_or_reconnect`], for an end that was not reported yet.
    fn reconnect_or_remove(&mut self, key: Key, reason: Reason) {
        if let Err(reason) = self.schedule_reconnect(key, reason) {
            self.remove(key, Some(reason));
        }
    }

    /// Reports the end of a connection.
    fn report_end(&mut self, key: Key, reason: Reason) {
        let Some(Some(Entry::Stream(incoming))) = self.entries.get(key.index as usize) else { return };
        note_end(&self.shared.openings, incoming, &reason);
        let failure = failed_accept(incoming);
        self.push_end(key, failure, reason);
    }

    /// Reports the end of an endpoint: as a failure of a listener if it was not accepted yet.
    fn push_end(&mut self, key: Key, failure: Option<(Endpoint, Option<Address>)>, reason: Reason) {
        let endpoint = Endpoint::new(key);
        if let Some(counters) = self.shared.counters_of(key) {
            self.shared.last_counters.keep(key, counters);
        }
        match failure {
            Some((listener, peer)) => self.outbox.push_failure(AcceptFailure { endpoint, listener, peer, reason }),
            None => self.outbox.push(Event::Closed { endpoint, reason }),
        }
    }

    /// Removes an endpoint, and reports the reason unless it was reported before.
    fn remove(&mut self, key: Key, mut reason: Option<Reason>) {
        let index = key.index as usize;
        self.count_run();
        let Some(entry) = self.entries.get_mut(index).and_then(Option::take) else { return };
        match &entry {
            Entry::Stream(incoming) => {
                let unwritten = incoming.connection.close();
                if unwritten > 0 && matches!(reason, Some(Reason::Closed)) {
                    reason = Some(Reason::Unwritten(unwritten));
                }
                self.shared.registry.remove(incoming.connection.link.source());
                // A sender may keep the link alive, so the peer is notified explicitly.
                incoming.connection.link.finish().ok();
            }
            Entry::Datagrams(datagrams) => {
                self.shared.registry.remove(datagrams.socket.datagrams.source());
                // A sender may keep the socket alive.
                datagrams.socket.request_close();
                if let Some(peer) = &datagrams.peer {
                    // A batch may keep the socket alive for longer.
                    peer.found.set(None).ok();
                }
            }
            Entry::Listener(listener) => {
                self.shared.registry.remove(listener.bound.listener.source());
                listener.bound.listener.close();
            }
        }
        let failure = match &entry {
            Entry::Stream(incoming) => failed_accept(incoming),
            _ => None,
        };
        if let Some(reason) = reason {
            match &entry {
                Entry::Stream(incoming) => note_end(&self.shared.openings, incoming, &reason),
                _ => trace::closed(Endpoint::new(key), &reason),
            }
            self.push_end(key, failure, reason);
        }
        drop(entry);
        self.polling.forget(index);
        self.forget_reads(index);
        self.shared.remove(key);
    }
}

/// The listener and the peer of a connection that was not accepted yet.
fn failed_accept(incoming: &Incoming) -> Option<(Endpoint, Option<Address>)> {
    let Some(Origin::Accepted { listener, peer }) = incoming.life.never_open() else { return None };
    let peer = peer.as_deref().cloned().or_else(|| incoming.connection.link.peer());
    Some((Endpoint::new(*listener), peer))
}

/// Whether the peer is at fault. Such an end is reported at once, however long the peer stays.
fn is_reported_at_once(reason: &Reason) -> bool {
    matches!(reason, Reason::Violation(_) | Reason::Late(_) | Reason::NoRoom)
}

/// The payload of the closing frame of a WebSocket that ends for this reason.
fn frame_payload(reason: &Reason, farewell: &[u8]) -> Vec<u8> {
    match reason {
        Reason::Late(Late::Message | Late::Idle | Late::Heartbeat) | Reason::NoRoom => 1008_u16.to_be_bytes().to_vec(),
        Reason::Violation(Violation::Handshake(_)) => Vec::new(),
        _ => farewell.to_vec(),
    }
}
