//! How connections open: those made here, and those a listener accepts.

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use super::entry::{Accepting, DatagramEntry, Entry, ListenerEntry};
use crate::Address;
use crate::codec::Decoder;
use crate::connection::Flushed;
use crate::event::{Endpoint, Event, Reason};
use crate::incoming::{Attempt, Incoming, Sending};
use crate::new_endpoint::{NewConnection, Origin};
use crate::reconnecting::ReconnectState;
use crate::resource::Resource;
use crate::slab::Key;
use crate::trace;
use crate::transport::{Link, Listener, Options};

/// How long a listener stops accepting after the system ran out of descriptors, or a limit was
/// reached.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// How many connections a listener accepts before other entries get their turn.
const ACCEPTED_AT_ONCE: usize = 64;

impl<S> Node<S> {
    pub(super) fn add_connection(&mut self, key: Key, begun: NewConnection) {
        let NewConnection { connection, decoder, origin } = begun;
        // It may have been closed before the node handled this command.
        if !self.shared.connection(key).is_some_and(|current| Arc::ptr_eq(&current, &connection)) {
            self.shared.registry.remove(connection.link.source());
            connection.close();
            return;
        }
        let mut incoming = Incoming::new(key, connection, decoder, origin, self.clock);
        // Take over what was requested while its predecessor was in its place.
        if let Some(before) = self.stream(key) {
            if let (Some(attempt), Some(before)) = (incoming.life.attempt(), before.life.attempt()) {
                attempt.farewell = before.farewell.take();
            }
            incoming.sending = before.sending;
            incoming.reading.set_paused(before.reading.is_paused());
            incoming.reconnect = before.reconnect.take();
        } else if let Some(Origin::Connecting(connecting)) = incoming.life.never_open() {
            incoming.reconnect = ReconnectState::new(&connecting.address, &connecting.options).map(Box::new);
        }
        self.set(key.index as usize, Entry::Stream(Box::new(incoming)));
        self.arm(key);
        self.close_in_shutdown(key);
    }

    pub(super) fn watch(&mut self, key: Key) {
        let resources = self.shared.resources.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let entry = match resources.get(key) {
            Some(Resource::Datagrams(socket)) => Entry::Datagrams(DatagramEntry::new(key, socket.clone())),
            Some(Resource::Listener(bound)) => Entry::Listener(ListenerEntry::new(key, bound.clone(), self.clock)),
            _ => return,
        };
        drop(resources);
        self.set(key.index as usize, entry);
        self.close_in_shutdown(key);
    }

    /// Accepts waiting connections, within the limits.
    pub(super) fn accept(&mut self, index: usize) {
        let free = self.shared.limits.connections.saturating_sub(self.shared.connections());
        let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(index) else { return };
        let left = listener.rate.left(self.clock, self.shared.limits.accepts);
        let allowed = free.min(left as usize);
        let (key, bound) = (listener.key, listener.bound.clone());
        let mut links = Vec::with_capacity(ACCEPTED_AT_ONCE.min(allowed));
        let end = accept(&*bound.listener, allowed, &mut links);
        listener.rate.count(links.len() as u32);
        if end == AcceptEnd::More {
            self.turns.queue_later(&mut listener.reading, key);
        }
        let mut backs_off = end == AcceptEnd::RetryLater;
        for link in links {
            match self.shared.accept(link, key, &bound) {
                Ok((key, begun)) => self.accepted(key, begun),
                // epoll cannot register it. The connection is dropped, and its peer sees it end.
                Err(_) => {
                    bound.acceptor.openings.failed.add(1);
                    self.shared.openings.failed.add(1);
                    backs_off = true;
                }
            }
        }
        if backs_off {
            self.back_off(key);
        } else if let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(index) {
            listener.accepting = Accepting::Freely;
        }
    }

    /// Adds a connection that was just accepted and that nobody refers to yet.
    fn accepted(&mut self, key: Key, NewConnection { connection, decoder, origin }: NewConnection) {
        let incoming = Incoming::new(key, connection, decoder, origin, self.clock);
        self.set(key.index as usize, Entry::Stream(Box::new(incoming)));
        self.poll_connected(key);
        self.note_peer(key);
        // A connection that is open at once needs no handshake deadline.
        self.arm(key);
    }

    /// Notes the peer's address, if the transport itself has a handshake.
    fn note_peer(&mut self, key: Key) {
        if let Some(incoming) = self.stream(key)
            && let Some(Attempt { origin: Origin::Accepted { peer: peer @ None, .. }, .. }) = incoming.life.attempt()
        {
            *peer = incoming.connection.link.peer().map(Arc::new);
        }
    }

    /// Stops accepting for a while. A timer resumes it, because epoll does not report connections
    /// that wait already.
    pub(super) fn back_off(&mut self, key: Key) {
        let Some(Some(Entry::Listener(listener))) = self.entries.get_mut(key.index as usize) else { return };
        match listener.back_off() {
            Accepting::BackingOff => return,
            // Reported once until it has accepted all that waited.
            Accepting::CatchingUp => {}
            Accepting::Freely => trace::backing_off(Endpoint::new(key)),
        }
        self.schedule(self.clock + ACCEPT_BACKOFF, key);
    }

    /// Continues to connect a link. Returns whether it is connected.
    pub(super) fn poll_connected(&mut self, key: Key) -> bool {
        let Some(incoming) = self.stream(key) else { return false };
        let reads_ahead = !incoming.connection.link.short_read_is_last();
        match incoming.connection.link.connected() {
            Ok(()) => {
                incoming.life.link_connected();
                // A WebSocket is open only after its handshake.
                if !matches!(incoming.decoder, Decoder::WebSocket(_)) {
                    self.open(key);
                }
                // epoll does not report what the link itself has read ahead. Other links need no
                // read here.
                if reads_ahead {
                    self.will_read(key.index as usize);
                }
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                self.connect_failed(key, error);
                false
            }
        }
    }

    /// Marks a connection as open, reports that, and writes what was queued for it.
    pub(super) fn open(&mut self, key: Key) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        let Some(Attempt { origin, farewell }) = incoming.life.open() else { return };
        incoming.activity.begin_at(clock);
        incoming.partial.since = None;
        if let Some(reconnect) = &mut incoming.reconnect {
            reconnect.succeeded();
        }
        let connection = incoming.connection.clone();
        let opened = connection.open();
        let endpoint = Endpoint::new(key);
        self.count_open(&connection);
        self.outbox.push(match origin {
            Origin::Connecting(_) => {
                trace::connected(endpoint);
                Event::Connected(endpoint)
            }
            Origin::Accepted { listener, .. } => {
                let listener = Endpoint::new(listener);
                trace::accepted(endpoint, listener, &connection);
                Event::Accepted { endpoint, listener }
            }
        });
        self.arm(key);
        match opened {
            Ok(Flushed::Empty { notify: true }) => self.outbox.push(Event::Drained(endpoint)),
            Ok(_) => {}
            Err(error) => return self.send_failed(key, error),
        }
        if let Some(farewell) = farewell {
            self.end(key, Reason::Closed, &farewell);
        } else if self.stream(key).is_some_and(|incoming| incoming.sending == Sending::Finishing) {
            self.finish(key);
        }
    }

    /// Handles a failed connection attempt: tries the host's next address, if there is one.
    pub(super) fn connect_failed(&mut self, key: Key, error: io::Error) {
        let Some(incoming) = self.stream(key) else { return };
        if let Some(Attempt { origin: Origin::Connecting(connecting), .. }) = incoming.life.attempt()
            && !connecting.others.is_empty()
        {
            let others = mem::take(&mut connecting.others);
            let (address, options) = (connecting.address.clone(), connecting.options.clone());
            if self.connect_replacement(key, &address, others, &options).is_ok() {
                return;
            }
        }
        self.close_or_reconnect(key, Reason::NotConnected(error));
    }

    /// Starts a new connection attempt in the place of one that failed or was lost.
    pub(super) fn connect_replacement(
        &mut self,
        key: Key,
        address: &Address,
        to: Vec<SocketAddr>,
        options: &Options,
    ) -> io::Result<()> {
        let Some(incoming) = self.stream(key) else { return Ok(()) };
        let before = incoming.connection.clone();
        self.shared.registry.remove(before.link.source());
        let begun = self.shared.begin_replacement((key, &before), address, to, options)?;
        let connection = begun.connection.clone();
        self.add_connection(key, *begun);
        if let Err(error) = self.shared.watch(&connection, key, true) {
            self.send_failed(key, error);
        }
        Ok(())
    }
}

/// Why a batch of accepts ended.
#[derive(PartialEq, Eq)]
enum AcceptEnd {
    NoneWaiting,
    /// More may wait; other entries get their turn first.
    More,
    /// A limit was reached, or the system is out of resources: try again later.
    RetryLater,
}

/// Accepts a batch of waiting connections and sets them up afterwards. Repeating one system call is
/// faster than alternating it with others.
fn accept(listener: &dyn Listener, allowed: usize, links: &mut Vec<Box<dyn Link>>) -> AcceptEnd {
    for _ in 0..ACCEPTED_AT_ONCE {
        if links.len() == allowed {
            return AcceptEnd::RetryLater;
        }
        match listener.accept() {
            Ok(link) => links.push(link),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return AcceptEnd::NoneWaiting,
                // The peer went away while it waited.
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                // No descriptors, or no memory. Existing connections are served, and accepting is
                // tried again later.
                _ => return AcceptEnd::RetryLater,
            },
        }
    }
    AcceptEnd::More
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use rustix::net::{RecvFlags, recv};

    use super::*;
    use crate::{Limits, Outcome};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A node that listens, and `count` peers that wait to be accepted.
    fn waiting(limits: Limits, count: usize) -> (Node<()>, Endpoint, Vec<TcpStream>) {
        let node = Node::with_limits(limits).unwrap();
        let handle = node.handle();
        let listener = handle.listen("tcp://127.0.0.1:0").unwrap();
        let port = handle.local_address(listener).unwrap().port().unwrap();
        let peers = (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
        (node, listener, peers)
    }

    fn accepted(node: &mut Node<()>) -> Endpoint {
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Accepted { endpoint, .. }) => endpoint,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn epoll_reports_nothing_for_an_idle_accepted_connection() {
        let count = 2 * ACCEPTED_AT_ONCE + 1;
        let (mut node, listener, _peers) = waiting(Limits::default(), count);
        for _ in 0..count {
            accepted(&mut node);
        }
        let mut ready = Vec::new();
        node.backend.wait(Some(Duration::ZERO), &mut ready).unwrap();
        ready.retain(|ready| ready.index != listener.key.index as usize);
        assert_eq!(ready, []);
    }

    #[test]
    fn every_full_queue_of_an_accepted_connection_is_followed_by_drained() {
        let (mut node, _, mut peers) = waiting(Limits::default(), 1);
        let (handle, endpoint, peer) = (node.handle(), accepted(&mut node), &mut peers[0]);
        peer.set_nonblocking(true).unwrap();
        let (mut sent, mut received, block) = (0, 0, vec![7; 100_000]);
        for _ in 0..3 {
            loop {
                match handle.send(endpoint, &block) {
                    Outcome::Full => break,
                    outcome => assert!(outcome.is_accepted(), "{outcome:?}"),
                }
                sent += block.len();
            }
            let (begun, mut drained) = (Instant::now(), false);
            while !drained || received < sent {
                received += peer.read(&mut vec![0; 1 << 20]).unwrap_or(0);
                drained |= matches!(node.next(Some(Duration::ZERO)).unwrap(), Some(Event::Drained(_)));
                assert!(begun.elapsed() < PATIENCE, "{received} of {sent}, and drained: {drained}");
            }
        }
    }

    #[test]
    fn a_resume_does_not_read_the_answer_of_a_proxy() {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut node = Node::<()>::new().unwrap();
        let handle = node.handle();
        let url = format!("socks5://{}", proxy.local_addr().unwrap());
        let options = Options::default().proxy(url.parse().unwrap());
        let endpoint = handle.connect_with("tcp://192.0.2.1:80", &options).unwrap();
        let (mut stream, _) = proxy.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let (begun, mut greeting) = (Instant::now(), [0; 3]);
        while stream.read_exact(&mut greeting).is_err() {
            assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
            assert!(begun.elapsed() < PATIENCE, "the proxy is never greeted");
        }
        stream.write_all(b"\x05\0").unwrap();
        let link = handle.shared.connection(endpoint.key).unwrap();
        while !matches!(recv(link.link.source(), &mut [0; 2], RecvFlags::PEEK), Ok((2, _))) {
            assert!(begun.elapsed() < PATIENCE, "nothing arrives");
        }
        // The node reads before epoll has reported what has arrived.
        handle.resume(endpoint);
        node.commands();
        assert!(node.next_ready().is_none());
        let mut request = [0; 10];
        while stream.read_exact(&mut request).is_err() {
            assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
            assert!(begun.elapsed() < PATIENCE, "the proxy is never asked to connect");
        }
        stream.write_all(b"\x05\0\0\x01\0\0\0\0\0\0").unwrap();
        assert!(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Connected(_))));
    }

    #[test]
    fn a_listener_accepts_no_more_in_a_second_than_its_limit() {
        let begun = Instant::now();
        let (mut node, _, _peers) = waiting(Limits { accepts: 3, ..Limits::default() }, 5);
        for _ in 0..4 {
            accepted(&mut node);
        }
        assert!(begun.elapsed() >= Duration::from_secs(1));
        accepted(&mut node);
    }

    #[test]
    fn a_listener_accepts_no_more_connections_than_the_limit() {
        let (mut node, _, _peers) = waiting(Limits { connections: 2, ..Limits::default() }, 5);
        let first = accepted(&mut node);
        accepted(&mut node);
        // The listener retries during this wait.
        assert!(node.next(Some(2 * ACCEPT_BACKOFF)).unwrap().is_none());
        node.handle().close(first);
        assert!(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Closed { .. })));
        accepted(&mut node);
        assert!(node.next(Some(2 * ACCEPT_BACKOFF)).unwrap().is_none());
    }
}
