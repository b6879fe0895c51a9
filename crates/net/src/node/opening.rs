//! How connections come about: those that are made here, and those that a listener accepts.

use std::cmp::Reverse;
use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Entry, Node};
use crate::Address;
use crate::codec::Decoder;
use crate::connection::Flushed;
use crate::event::{Endpoint, Event, Reason};
use crate::incoming::{Incoming, Sending};
use crate::reconnect::Again;
use crate::shared::{Begun, How, Resource};
use crate::slab::Key;
use crate::transport::Options;

/// How long a listener rests after the system had no descriptor for a connection, or too many had come.
const REST: Duration = Duration::from_millis(50);
/// How many connections a listener accepts before others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;

impl<S> Node<S> {
    pub(super) fn look_after(&mut self, key: Key, begun: Begun) {
        let Begun { connection, decoder, how } = begun;
        // It may have been closed before the node came to know of it.
        if !self.shared.connection(key).is_some_and(|there| Arc::ptr_eq(&there, &connection)) {
            self.shared.registry.remove(connection.link.source());
            connection.close();
            return;
        }
        let mut incoming = Incoming::new(key, connection, decoder, how, self.clock);
        // What was asked for while another was in its place.
        if let Some(before) = self.stream(key) {
            incoming.farewell = before.farewell.take();
            incoming.sending = before.sending;
            incoming.paused = before.paused;
            incoming.again = before.again.take();
        } else if let Some(How::Connecting { address, options, .. }) = &incoming.opening {
            incoming.again = Again::new(address, options).map(Box::new);
        }
        let accepted = matches!(incoming.opening, Some(How::Accepted(_)));
        self.set(key.index as usize, Entry::Stream(Box::new(incoming)));
        // One that was accepted may be there at once: then it has no deadline, which would wake the node for nothing.
        if !accepted {
            self.arm(key);
        }
    }

    pub(super) fn watch(&mut self, key: Key) {
        let resources = self.shared.resources.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entry = match resources.get(key) {
            Some(Resource::Datagrams(socket)) => {
                Entry::Datagrams { key, socket: socket.clone(), ready: false, paused: false }
            }
            Some(Resource::Listener { listener, scheme, half_open }) => Entry::Listener {
                key,
                listener: listener.clone(),
                scheme: *scheme,
                half_open: *half_open,
                ready: false,
                paused: false,
                resting: false,
                second: self.clock,
                accepted: 0,
            },
            _ => return,
        };
        drop(resources);
        self.set(key.index as usize, entry);
    }

    /// Accepts what waits at a listener, within limits.
    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(Some(Entry::Listener { key, listener, scheme, half_open, second, accepted, .. })) =
                self.entries.get_mut(index)
            else {
                return;
            };
            let (key, scheme, half_open) = (*key, *scheme, *half_open);
            if self.clock.duration_since(*second) >= Duration::from_secs(1) {
                (*second, *accepted) = (self.clock, 0);
            }
            if *accepted >= self.shared.limits.accepts || self.shared.count() >= self.shared.limits.connections {
                return self.rest(key);
            }
            match listener.accept() {
                Ok(link) => {
                    *accepted += 1;
                    match self.shared.accept(link, key, scheme, half_open) {
                        Ok((key, begun)) => {
                            self.look_after(key, begun);
                            self.link_up(key);
                            self.arm(key);
                        }
                        Err(_) => return self.rest(key),
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The peer has gone in the meantime.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // No descriptors, or no memory: those that are there are served, and it is tried again.
                    _ => return self.rest(key),
                },
            }
        }
        if let Some(Some(Entry::Listener { ready, .. })) = self.entries.get_mut(index) {
            *ready = true;
            self.later.push_back(index);
        }
    }

    /// Lets a listener rest: epoll does not tell again of what waits there already.
    pub(super) fn rest(&mut self, key: Key) {
        if let Some(Some(Entry::Listener { resting, .. })) = self.entries.get_mut(key.index as usize)
            && mem::replace(resting, true)
        {
            return;
        }
        self.deadlines.push(Reverse((self.clock + REST, key)));
    }

    /// Goes on to bring a link about. Whether it is there.
    pub(super) fn link_up(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let reads_ahead = !incoming.connection.link.short_read_is_last();
        match incoming.connection.link.connected() {
            Ok(()) => {
                incoming.linked = true;
                // A WebSocket is open when its request has been answered.
                if !matches!(incoming.decoder, Decoder::WebSocket(_)) {
                    self.open(key);
                }
                // What the link itself has read too much of, epoll does not tell of. Of all else it does.
                if reads_ahead {
                    self.will_read(key.index as usize);
                }
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                self.not_connected(key, error);
                false
            }
        }
    }

    /// A connection has come about.
    pub(super) fn open(&mut self, key: Key) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        let Some(how) = incoming.opening.take() else { return };
        incoming.since = clock;
        incoming.unfinished_since = None;
        if let Some(again) = &mut incoming.again {
            again.succeeded();
        }
        let opened = incoming.connection.open();
        let endpoint = Endpoint::new(key);
        self.outbox.push_back(match how {
            How::Connecting { .. } => Event::Connected(endpoint),
            How::Accepted(listener) => Event::Accepted { endpoint, listener: Endpoint::new(listener) },
        });
        self.arm(key);
        match opened {
            Ok(Flushed::Empty { told: true }) => self.outbox.push_back(Event::Drained(endpoint)),
            Ok(_) => {}
            Err(error) => return self.broken(key, error),
        }
        let Some(incoming) = self.stream(key) else { return };
        if let Some(farewell) = incoming.farewell.take() {
            self.end(key, Reason::Closed, &farewell);
        } else if incoming.sending == Sending::Finishing {
            self.finish(key);
        }
    }

    /// A connection did not come about. The host's next address is tried, if it has one.
    pub(super) fn not_connected(&mut self, key: Key, error: io::Error) {
        let Some(incoming) = self.stream(key) else { return };
        if let Some(How::Connecting { address, others, options }) = incoming.opening.take()
            && !others.is_empty()
            && self.connect_instead(key, &address, others, &options).is_ok()
        {
            return;
        }
        self.forget(key, Reason::NotConnected(error));
    }

    /// Connects anew, in the place of a connection that did not come about.
    pub(super) fn connect_instead(
        &mut self,
        key: Key,
        address: &Address,
        to: Vec<SocketAddr>,
        options: &Options,
    ) -> io::Result<()> {
        let Some(incoming) = self.stream(key) else { return Ok(()) };
        let before = incoming.connection.clone();
        self.shared.registry.remove(before.link.source());
        let begun = self.shared.begin_instead((key, &before), address, to, options)?;
        let connection = begun.connection.clone();
        self.look_after(key, *begun);
        if let Err(error) = self.shared.watch(&connection, key, true) {
            self.broken(key, error);
        }
        Ok(())
    }
}
