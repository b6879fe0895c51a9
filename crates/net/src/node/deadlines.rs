//! Timers: handshakes, incomplete messages, idle connections, closes and reconnects.

use std::io::{self, ErrorKind};
use std::mem;
use std::time::{Duration, Instant};

use super::Node;
use super::entry::{Accepting, Entry};
use crate::event::{Late, Reason};
use crate::incoming::{Armed, Deadline};
use crate::limits::Limits;
use crate::new_endpoint::Origin;
use crate::slab::Key;

impl<S> Node<S> {
    /// Schedules a connection's next deadline. If an earlier one is scheduled already, that one
    /// will schedule the next.
    pub(super) fn arm(&mut self, key: Key) {
        let incoming = match self.entries.get_mut(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => incoming,
            _ => return,
        };
        let Some((due, _)) = incoming.due(&self.shared.limits) else { return };
        if incoming.armed.bring_forward(due) {
            self.schedule(due, key);
        }
    }

    /// Schedules a deadline.
    pub(super) fn schedule(&mut self, at: Instant, key: Key) {
        self.deadlines.push(at, key);
        let entries = &self.entries;
        self.deadlines.prune(entries.len(), |at, key| match entries.get(key.index as usize) {
            Some(Some(entry)) => entry.awaits(key, at),
            _ => false,
        });
    }

    /// Returns the earliest valid deadline. Drops or reschedules outdated ones before it, because
    /// they would wake the node for nothing.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some((at, key)) = self.deadlines.earliest() {
            match self.entries.get(key.index as usize) {
                Some(Some(entry)) if entry.awaits(key, at) => {
                    if !is_postponed(entry, at, &self.shared.limits) {
                        return Some(at);
                    }
                    self.deadlines.pop();
                    self.rearm(key);
                }
                _ => self.deadlines.pop(),
            }
        }
        None
    }

    /// Called after a connection's outdated deadline was dropped: schedules its next one.
    fn rearm(&mut self, key: Key) {
        let Some(incoming) = self.stream(key) else { return };
        incoming.armed = Armed::No;
        self.arm(key);
    }

    /// Handles the deadlines that have passed.
    pub(super) fn deadlines(&mut self) {
        while let Some((at, key)) = self.deadlines.earliest()
            && at <= self.clock
        {
            self.deadlines.pop();
            let index = key.index as usize;
            match self.entries.get_mut(index) {
                Some(Some(entry)) if entry.awaits(key, at) => match entry {
                    Entry::Stream(_) => self.stream_deadline(key),
                    Entry::Datagrams(_) => self.close_or_reconnect(key, Reason::Late(Late::Handshake)),
                    Entry::Listener(listener) => {
                        listener.accepting = Accepting::CatchingUp;
                        self.will_read(index);
                    }
                },
                _ => {}
            }
        }
    }

    /// Handles the armed deadline of a connection, which has passed.
    fn stream_deadline(&mut self, key: Key) {
        let clock = self.clock;
        let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(key.index as usize) else { return };
        let is_extended = mem::take(&mut incoming.armed).is_extended();
        incoming.note_writes();
        match incoming.due(&self.shared.limits) {
            // Data that arrived while the node was busy elsewhere is read first. This extends the
            // deadline once, by 1 ms.
            Some((due, Deadline::Late(_))) if due <= clock && incoming.reading.is_queued() && !is_extended => {
                let soon = clock + Duration::from_millis(1);
                incoming.armed = Armed::Extended(soon);
                self.schedule(soon, key);
            }
            Some((due, deadline)) if due <= clock => self.deadline_passed(key, deadline),
            _ => self.rearm(key),
        }
    }

    /// Handles one deadline that has passed.
    fn deadline_passed(&mut self, key: Key, deadline: Deadline) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        let origin = incoming.life.never_open();
        let more = matches!(origin, Some(Origin::Connecting(connecting)) if !connecting.others.is_empty());
        match deadline {
            Deadline::Continue if incoming.next_reconnect_at().is_some() => self.reconnect_now(key),
            Deadline::Continue => self.finish_end(key),
            Deadline::Ping => match incoming.ping(clock) {
                Ok(()) => self.rearm(key),
                Err(error) => self.send_failed(key, error),
            },
            Deadline::Late(Late::Handshake) => {
                let proxy = origin.and_then(late_proxy);
                if more {
                    self.connect_failed(key, proxy.unwrap_or_else(|| ErrorKind::TimedOut.into()));
                } else {
                    let reason = proxy.map_or(Reason::Late(Late::Handshake), Reason::NotConnected);
                    self.close_or_reconnect(key, reason);
                }
            }
            Deadline::Late(late) => self.end(key, Reason::Late(late), &[]),
        }
    }
}

/// The error of a proxy that has not connected in time, if there is one.
fn late_proxy(origin: &Origin) -> Option<io::Error> {
    match origin {
        Origin::Connecting(connecting) => connecting.options.late_proxy(),
        Origin::Accepted { .. } => None,
    }
}

/// Whether the deadline that an entry scheduled for this time is later by now.
fn is_postponed(entry: &Entry, at: Instant, limits: &Limits) -> bool {
    match entry {
        Entry::Stream(incoming) => incoming.due(limits).is_none_or(|(due, _)| due > at),
        Entry::Datagrams(_) | Entry::Listener(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::Endpoint;
    use crate::event::Event;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(10_000);

    fn node(idle: Option<Duration>) -> Node<()> {
        Node::with_limits(Limits { handshake: LONG / 10, message_timeout: LONG / 10, idle, ..Limits::default() })
            .unwrap()
    }

    /// Runs the node until `count` connections are open.
    fn until_there(node: &mut Node<()>, mut count: usize) {
        while count > 0 {
            match node.next(Some(PATIENCE)).unwrap() {
                Some(Event::Connected(_) | Event::Accepted { .. }) => count -= 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Connects a node to itself. Returns the listener and the connecting end.
    fn to_itself(node: &mut Node<()>, scheme: &str) -> (Endpoint, Endpoint) {
        let handle = node.handle();
        let listener = handle.listen(format!("{scheme}://127.0.0.1:0")).unwrap();
        let endpoint = handle.connect(handle.local_address(listener).unwrap()).unwrap();
        until_there(node, 2);
        (listener, endpoint)
    }

    #[test]
    fn an_open_connection_has_no_handshake_deadline() {
        for scheme in ["tcp", "tcp+msg", "ws"] {
            let mut node = node(None);
            to_itself(&mut node, scheme);
            assert_eq!(node.next_deadline(), None, "{scheme}");
            assert_eq!(node.deadlines.earliest(), None, "{scheme}");
        }
    }

    #[test]
    fn a_closed_connection_has_no_deadline() {
        let mut node = node(Some(LONG));
        let (listener, endpoint) = to_itself(&mut node, "ws");
        assert!(node.next_deadline().is_some());
        node.handle().close(listener);
        node.handle().close(endpoint);
        let mut closed = 0;
        while closed < 3 {
            closed += usize::from(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Closed { .. })));
        }
        assert_eq!(node.next_deadline(), None);
    }

    #[test]
    fn an_idle_limit_sets_a_deadline() {
        let begun = Instant::now();
        let mut node = node(Some(LONG));
        to_itself(&mut node, "ws");
        assert!(node.next_deadline().is_some_and(|at| at >= begun + LONG));
    }

    #[test]
    fn a_connection_that_is_being_sent_to_is_not_idle() {
        for scheme in ["tcp", "tcp+msg", "ws"] {
            let mut node = node(Some(LONG));
            let (_, endpoint) = to_itself(&mut node, scheme);
            let opened = node.stream(endpoint.key).unwrap().activity.since();
            let handle = node.handle();
            // A write that is later than the last arrival.
            std::thread::sleep(Duration::from_millis(2));
            assert!(handle.send(endpoint, b"to a peer that only listens").is_accepted());
            let mut batch = handle.batch(endpoint);
            assert!(batch.push(b"more").is_accepted() && batch.flush().is_accepted());
            node.clock = opened + LONG;
            node.deadlines();
            let ends =
                |event: &Event<'_, ()>| matches!(event, Event::Closed { endpoint: which, .. } if *which == endpoint);
            assert!(!node.outbox.iter().any(ends), "{scheme}");
            // Nothing more was sent until the next deadline.
            let due = node.next_deadline().expect("it has a deadline");
            assert!(due > opened + LONG && due <= Instant::now() + LONG, "{scheme}");
            node.clock = due;
            node.deadlines();
            assert!(node.outbox.iter().any(ends), "{scheme}");
        }
    }

    #[test]
    fn an_incomplete_message_has_a_deadline_until_it_is_complete() {
        let mut node = node(None);
        let handle = node.handle();
        let listener = handle.listen("tcp+msg://127.0.0.1:0").unwrap();
        let port = handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        until_there(&mut node, 1);
        peer.write_all(b"\0\0\0\x05he").unwrap();
        let begun = Instant::now();
        while node.next_deadline().is_none() {
            assert!(node.next(Some(Duration::from_millis(1))).unwrap().is_none());
            assert!(begun.elapsed() < PATIENCE, "it is not waited for");
        }
        peer.write_all(b"llo").unwrap();
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Message(_, message)) => assert_eq!(*message, *b"hello"),
            other => panic!("{other:?}"),
        }
        assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
        assert_eq!(node.next_deadline(), None);
    }

    /// A node with a heartbeat, and a WebSocket peer whose handshake is over.
    fn with_heartbeat() -> (Node<()>, Endpoint, TcpStream) {
        let mut node = Node::with_limits(Limits { heartbeat: Some(LONG), ..Limits::default() }).unwrap();
        let handle = node.handle();
        let listener = handle.listen("ws://127.0.0.1:0").unwrap();
        let port = handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.write_all(
            b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
        let endpoint = match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Accepted { endpoint, .. }) => endpoint,
            other => panic!("{other:?}"),
        };
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            peer.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (node, endpoint, peer)
    }

    /// Lets the next deadline pass. Returns why a connection was closed, if one was.
    fn pass_deadline(node: &mut Node<()>) -> Option<String> {
        node.clock = node.next_deadline().expect("there is a deadline");
        node.deadlines();
        node.outbox.pop().map(|event| match event {
            Event::Closed { reason, .. } => reason.to_string(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_silent_peer_gets_a_ping_and_is_closed_if_it_does_not_answer() {
        let (mut node, endpoint, mut peer) = with_heartbeat();
        let begun = node.stream(endpoint.key).unwrap().activity.since();
        assert_eq!(node.next_deadline(), Some(begun + LONG));
        assert_eq!(pass_deadline(&mut node), None);
        let mut ping = [0; 2];
        peer.read_exact(&mut ping).unwrap();
        assert_eq!(ping, [0x89, 0]);
        assert_eq!(node.next_deadline(), Some(begun + LONG + LONG));
        assert_eq!(pass_deadline(&mut node).as_deref(), Some("a ping was not answered in time"));
        let mut close = [0; 4];
        peer.read_exact(&mut close).unwrap();
        assert_eq!(close, [0x88, 2, 3, 0xf0]);
    }

    #[test]
    fn whatever_a_peer_sends_answers_a_ping() {
        // A pong, and a message.
        for frame in [&[0x8a, 0x80, 0, 0, 0, 0][..], &[0x82, 0x81, 0, 0, 0, 0, b'm']] {
            let (mut node, endpoint, mut peer) = with_heartbeat();
            let begun = node.stream(endpoint.key).unwrap().activity.since();
            assert_eq!(pass_deadline(&mut node), None);
            peer.write_all(frame).unwrap();
            let waits = Instant::now();
            while node.stream(endpoint.key).unwrap().activity.since() == begun {
                node.next(Some(Duration::from_millis(1))).unwrap();
                assert!(waits.elapsed() < PATIENCE, "nothing arrives");
            }
            // In terms of the clock of this test, the answer came a second after the ping.
            let arrived = begun + LONG + Duration::from_secs(1);
            node.stream(endpoint.key).unwrap().activity.begin_at(arrived);
            assert_eq!(node.next_deadline(), Some(arrived + LONG));
            // The next silence begins with a ping too.
            assert_eq!(pass_deadline(&mut node), None);
            assert_eq!(node.next_deadline(), Some(arrived + LONG + LONG));
        }
    }

    #[test]
    fn a_paused_connection_and_one_without_websocket_have_no_heartbeat() {
        let (mut node, endpoint, _peer) = with_heartbeat();
        node.handle().pause(endpoint);
        node.next(Some(Duration::ZERO)).unwrap();
        assert_eq!(node.next_deadline(), None);
        for scheme in ["tcp", "tcp+msg"] {
            let mut node = Node::with_limits(Limits { heartbeat: Some(LONG), ..Limits::default() }).unwrap();
            to_itself(&mut node, scheme);
            assert_eq!(node.next_deadline(), None, "{scheme}");
        }
    }
}
