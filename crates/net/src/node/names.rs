//! Connections and datagram sockets to a host whose name is resolved first.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use super::{Entry, Node};
use crate::connection::Connection;
use crate::datagrams::Socket;
use crate::event::{Endpoint, Event, Reason};
use crate::incoming::{Attempt, after};
use crate::lookup::LookupOwner;
use crate::new_endpoint::{Client, Origin, PendingPeer};
use crate::slab::Key;

impl<S> Node<S> {
    /// Adds a datagram socket whose peer's name is being resolved.
    pub(super) fn await_peer(&mut self, key: Key, pending_peer: Box<PendingPeer>) {
        self.watch(key);
        if let Some(Some(Entry::Datagrams(datagrams))) = self.entries.get_mut(key.index as usize)
            && datagrams.key == key
        {
            datagrams.peer = Some(pending_peer);
            self.schedule(after(self.clock, self.shared.limits.handshake), key);
        }
    }

    /// Handles the result of a name lookup.
    pub(super) fn found(&mut self, key: Key, of: &LookupOwner, found: io::Result<Vec<SocketAddr>>) {
        match of {
            LookupOwner::Stream(connection) => self.host_found(key, connection, found),
            LookupOwner::Datagrams(socket) => {
                if let Err(error) = self.peer_found(key, socket, found) {
                    self.close_or_reconnect(key, Reason::NotConnected(error));
                }
            }
        }
    }

    /// The same for a datagram socket: from now on it can send, and waiting senders get `Drained`.
    fn peer_found(&mut self, key: Key, of: &Weak<Socket>, found: io::Result<Vec<SocketAddr>>) -> io::Result<()> {
        let Some(socket) = of.upgrade() else { return Ok(()) };
        let Some(Some(Entry::Datagrams(entry))) = self.entries.get_mut(key.index as usize) else { return Ok(()) };
        let is_own = Arc::ptr_eq(&entry.socket, &socket);
        let Some(pending_peer) = entry.peer.as_ref().filter(|_| is_own) else { return Ok(()) };
        let Client::Datagrams(datagrams) = self.shared.client(&pending_peer.address, found?, &pending_peer.options)?
        else {
            return Err(io::Error::other("a stream transport cannot replace a datagram transport"));
        };
        pending_peer.found.set(Some(datagrams)).ok();
        entry.peer = None;
        self.shared.registry.add(socket.datagrams.source(), key.index as usize, false)?;
        // A sender that finds the socket full from now on registers with epoll, which knows the
        // socket by now.
        if socket.take_waiting() {
            self.outbox.push(Event::Drained(Endpoint::new(key)));
        }
        Ok(())
    }

    /// The same for a connection.
    fn host_found(&mut self, key: Key, of: &Weak<Connection>, found: io::Result<Vec<SocketAddr>>) {
        let Some(incoming) = self.stream_of(key, of.as_ptr()) else { return };
        let Some(Attempt { origin: Origin::Connecting(connecting), .. }) = incoming.life.attempt() else { return };
        let (address, options) = (connecting.address.clone(), connecting.options.clone());
        let begun = found.and_then(|to| self.connect_replacement(key, &address, to, &options));
        if let Err(error) = begun {
            self.close_or_reconnect(key, Reason::NotConnected(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Read;
    use std::net::{TcpListener, UdpSocket};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, mpsc};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Endpoint, Event, Limits, Options, Outcome};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A resolver that replies when the test says so, and counts how many names are resolved at a
    /// time.
    struct Slow {
        answers: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
        asked: Arc<AtomicUsize>,
        max_at_once: Arc<AtomicUsize>,
    }

    fn slow(limits: Limits) -> (Node<()>, Slow) {
        let mut node = Node::with_limits(limits).unwrap();
        let (answers, results) = mpsc::channel();
        let results = Mutex::new(results);
        let (asked, max_at_once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let slow = Slow { answers, asked: asked.clone(), max_at_once: max_at_once.clone() };
        let shared = Arc::get_mut(&mut node.shared).expect("nobody has a handle yet");
        let lookups = Arc::get_mut(&mut shared.lookups).expect("no thread was started yet");
        lookups.resolver = Arc::new(move |_, _| {
            max_at_once.fetch_max(asked.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // A test that ended without a reply has dropped the sender.
            let answer = results.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
            asked.fetch_sub(1, Ordering::SeqCst);
            answer
        });
        (node, slow)
    }

    impl Slow {
        fn until_asked(&self, names: usize) {
            let begun = Instant::now();
            while self.max_at_once.load(Ordering::SeqCst) < names {
                assert!(begun.elapsed() < PATIENCE, "never asked");
                std::thread::yield_now();
            }
        }
    }

    /// The next event, as text.
    fn next_event(node: &mut Node<()>) -> String {
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Closed { reason, .. }) => reason.to_string(),
            Some(event) => format!("{event:?}").split('(').next().unwrap_or_default().to_owned(),
            None => panic!("no event arrives"),
        }
    }

    #[test]
    fn sends_during_a_lookup_are_queued_and_the_next_address_is_tried() {
        let (mut node, slow) = slow(Limits::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let handle = node.handle();
        let endpoint = handle.connect("tcp://example.org:80").unwrap();
        assert_eq!(handle.send(endpoint, b"early"), Outcome::Queued);
        handle.close(endpoint);
        slow.until_asked(1);
        assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
        slow.answers.send(Ok(vec![nobody, address])).unwrap();
        assert_eq!(next_event(&mut node), "Connected");
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 5];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"early");
        drop(stream);
        // The close was requested before any address was known.
        while !next_event(&mut node).starts_with("closed here") {}
    }

    #[test]
    fn a_name_without_address_is_reported_as_closed() {
        let (mut node, slow) = slow(Limits::default());
        let endpoint = node.handle().connect("ws://example.org").unwrap();
        slow.answers.send(Err(io::Error::other("no such name"))).unwrap();
        assert_eq!(next_event(&mut node), "not connected: no such name");
        assert_eq!(node.handle().send(endpoint, b"late"), Outcome::Closed);
    }

    #[test]
    fn a_lookup_ends_on_close_and_at_the_handshake_limit() {
        let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
        let (mut node, slow) = slow(limits);
        let first = node.handle().connect("tcp://example.org:80").unwrap();
        node.handle().close(first);
        assert_eq!(next_event(&mut node), "closed here");
        node.handle().connect("tcp://example.org:80").unwrap();
        assert_eq!(next_event(&mut node), "timed out before the connection was open");
        slow.until_asked(1);
        // Both connections are closed, so these results are ignored.
        slow.answers.send(Ok(Vec::new())).unwrap();
        slow.answers.send(Ok(Vec::new())).unwrap();
        assert!(node.next(Some(Duration::from_millis(20))).unwrap().is_none());
    }

    #[test]
    fn a_proxy_whose_name_is_not_found_in_time_is_named() {
        let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
        let (mut node, slow) = slow(limits);
        let options = Options::default().proxy("socks5://proxy.example:1080".parse().unwrap());
        node.handle().connect_with("tcp://192.0.2.1:80", &options).unwrap();
        let event = next_event(&mut node);
        assert!(event.contains("socks5://proxy.example:1080") && event.contains("Limits::handshake"), "{event}");
        slow.answers.send(Ok(Vec::new())).unwrap();
    }

    #[test]
    fn lookups_do_not_keep_a_dropped_node_alive() {
        let (node, slow) = slow(Limits::default());
        let socket = node.handle().connect("udp://example.org:80").unwrap();
        node.handle().connect("tcp://example.org:80").unwrap();
        slow.until_asked(2);
        let mut batch = node.handle().batch(socket);
        let (lookups, shared) = (Arc::downgrade(&node.shared.lookups), Arc::downgrade(&node.shared));
        drop(node);
        assert!(batch.push(b"never").is_accepted());
        assert_eq!(batch.flush(), Outcome::Closed);
        drop(batch);
        assert!(lookups.upgrade().is_none() && shared.upgrade().is_none());
        slow.answers.send(Ok(Vec::new())).unwrap();
        slow.answers.send(Ok(Vec::new())).unwrap();
        let begun = Instant::now();
        while slow.asked.load(Ordering::SeqCst) > 0 {
            assert!(begun.elapsed() < PATIENCE, "the thread never ends");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_datagram_socket_is_full_until_its_peer_is_resolved() {
        let (mut node, slow) = slow(Limits::default());
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        listener.set_read_timeout(Some(PATIENCE)).unwrap();
        let handle = node.handle();
        let endpoint = handle.connect("udp://example.org:80").unwrap();
        let mut batch = handle.batch(endpoint);
        assert_eq!(handle.send(endpoint, b"early"), Outcome::Full);
        assert!(batch.push(b"in a batch").is_accepted());
        assert_eq!(batch.flush(), Outcome::Full);
        assert_eq!(handle.send(endpoint, &[0; 70_000]), Outcome::Full);
        assert_eq!((handle.local_address(endpoint), handle.peer_address(endpoint)), (None, None));
        assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
        slow.answers.send(Ok(vec![listener.local_addr().unwrap()])).unwrap();
        assert_eq!(next_event(&mut node), "Drained");

        assert_eq!(batch.flush(), Outcome::Sent);
        assert_eq!(handle.send(endpoint, b"late"), Outcome::Sent);
        assert_eq!(handle.send(endpoint, &[0; 70_000]), Outcome::TooLarge);
        let mut buffer = [0; 100];
        let (len, from) = listener.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"in a batch");
        assert_eq!(handle.local_address(endpoint).unwrap().port(), Some(from.port()));
        assert_eq!(listener.recv(&mut buffer).unwrap(), 4);
        listener.send_to(b"answer", from).unwrap();
        assert_eq!(next_event(&mut node), "Message");
        handle.close(endpoint);
        assert_eq!(next_event(&mut node), "closed here");
        assert_eq!(node.next_deadline(), None);
    }

    #[test]
    fn a_datagram_socket_whose_peer_is_not_resolved_is_closed() {
        for reason in ["not connected: no such name", "closed here", "timed out before the connection was open"] {
            let (late, mut limits) = (reason == "timed out before the connection was open", Limits::default());
            limits.handshake = if late { Duration::from_millis(50) } else { PATIENCE };
            let (mut node, slow) = slow(limits);
            let handle = node.handle();
            let endpoint = handle.connect("udp://example.org:80").unwrap();
            let mut batch = handle.batch(endpoint);
            assert!(batch.push(b"never").is_accepted());
            assert_eq!(batch.flush(), Outcome::Full);
            match reason {
                "closed here" => handle.close(endpoint),
                "timed out before the connection was open" => {}
                _ => slow.answers.send(Err(io::Error::other("no such name"))).unwrap(),
            }
            assert_eq!(next_event(&mut node), reason);
            assert_eq!(handle.send(endpoint, b"late"), Outcome::Closed);
            assert_eq!(batch.flush(), Outcome::Closed);
            // The socket is closed, so this result is ignored.
            slow.answers.send(Ok(vec!["127.0.0.1:1".parse().unwrap()])).unwrap();
            assert!(node.next(Some(Duration::from_millis(20))).unwrap().is_none());
            assert_eq!(handle.shared.count(), 0);
        }
    }

    #[test]
    fn few_names_are_resolved_at_a_time_and_all_of_them_in_the_end() {
        let (mut node, slow) = slow(Limits::default());
        let handle = node.handle();
        let mut endpoints: HashSet<Endpoint> =
            (0..50).map(|_| handle.connect("tcp://example.org:80").unwrap()).collect();
        slow.until_asked(8);
        for _ in 0..endpoints.len() {
            slow.answers.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        }
        while !endpoints.is_empty() {
            match node.next(Some(PATIENCE)).unwrap() {
                Some(Event::Closed { endpoint, .. }) => assert!(endpoints.remove(&endpoint)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(slow.max_at_once.load(Ordering::SeqCst), 8);
        assert_eq!(handle.shared.count(), 0);
    }
}
