//! What a close promises from the moment it returns.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use common::{PATIENCE, Side, address, connected, until};
use estafette_net::{Close, Event, Handle, Node, Options, Outcome, Reconnect};

/// How many messages a peer writes at once.
const MANY: usize = 100_000;

/// A message of four bytes, as a peer writes it.
fn frame(scheme: &str) -> &'static [u8] {
    match scheme {
        "ws" => b"\x82\x84\0\0\0\0four",
        "tcp+msg" => b"\0\0\0\x04four",
        _ => b"four",
    }
}

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A node whose only peer writes many messages at once, and reads until the end.
fn flooded(scheme: &str) -> (Node<()>, thread::JoinHandle<()>) {
    let node = Node::new().unwrap();
    let handle = node.handle();
    let options = if scheme == "tcp" { Options::default().records(4) } else { Options::default() };
    let listener = handle.listen_with(format!("{scheme}://127.0.0.1:0"), &options).unwrap();
    let port = handle.local_address(listener).unwrap().port().unwrap();
    let mut flood = if scheme == "ws" { UPGRADE.to_vec() } else { Vec::new() };
    flood.extend(frame(scheme).repeat(MANY));
    let peer = thread::spawn(move || {
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writes = peer.try_clone().unwrap();
        // It fails when the node has closed.
        thread::spawn(move || writes.write_all(&flood).and_then(|()| writes.shutdown(std::net::Shutdown::Write)).ok());
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).ok();
    });
    (node, peer)
}

/// What a node reports, with the first message answered by a close.
#[derive(Default)]
struct Seen {
    messages: usize,
    closed: bool,
}

impl Seen {
    fn on_event(&mut self, handle: &Handle<()>, event: &Event<'_, ()>) {
        match event {
            Event::Message(from, message) => {
                assert_eq!(**message, *b"four");
                self.messages += 1;
                handle.close(*from);
            }
            Event::Closed { .. } => self.closed = true,
            _ => {}
        }
    }
}

#[test]
fn no_message_is_delivered_after_a_close() {
    for scheme in ["tcp", "tcp+msg", "ws"] {
        for by_next in [false, true] {
            let (mut node, peer) = flooded(scheme);
            let (handle, mut seen) = (node.handle(), Seen::default());
            while !seen.closed {
                if by_next {
                    let event = node.next(Some(PATIENCE)).unwrap().expect("it is closed");
                    seen.on_event(&handle, &event);
                } else {
                    node.poll(Some(PATIENCE), |event| seen.on_event(&handle, &event)).unwrap();
                }
            }
            assert_eq!(seen.messages, 1, "{scheme}, by next: {by_next}");
            peer.join().unwrap();
        }
    }
}

#[test]
fn a_close_ends_no_other_connection_of_the_same_turn() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let folder = tempfile::tempdir().unwrap();
    let (first, to_first, listener) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let at = server.handle.local_address(listener).unwrap();
    let to_second = client.handle.connect(&at).unwrap();
    until(&mut server, &mut client, "accepted", |server, _| server.accepted(listener).len() == 2);
    for to in [to_first, to_second] {
        let mut batch = client.handle.batch(to);
        (0..100).for_each(|_| assert!(batch.push(b"four").is_accepted()));
    }
    let (mut of_first, mut of_second) = (0, 0);
    while of_second < 100 {
        let handle = server.handle.clone();
        let on_event = |event: Event<'_, u32>| match event {
            Event::Message(from, _) if from == first => {
                of_first += 1;
                handle.close(first);
            }
            Event::Message(..) => of_second += 1,
            _ => {}
        };
        server.node.poll(Some(PATIENCE), on_event).unwrap();
    }
    assert_eq!(of_first, 1);
}

#[test]
fn a_closed_datagram_socket_delivers_no_more_of_a_run() {
    let mut side = Side::new();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    let to = side.handle.connect(side.handle.local_address(socket).unwrap()).unwrap();
    // Later datagrams arrive in runs of several.
    for _ in 0..3 {
        let mut batch = side.handle.batch(to);
        (0..64).for_each(|_| assert!(batch.push(b"four").is_accepted()));
        assert_eq!(batch.flush(), Outcome::Sent);
        side.until("a message", |seen| matches!(seen, common::Seen::Message(..)).then_some(()));
    }
    let mut batch = side.handle.batch(to);
    (0..64).for_each(|_| assert!(batch.push(b"last").is_accepted()));
    assert_eq!(batch.flush(), Outcome::Sent);
    let (handle, mut last, mut closed) = (side.handle.clone(), 0, false);
    while !closed {
        let on_event = |event: Event<'_, u32>| match event {
            Event::Message(_, message) if *message == *b"last" => {
                last += 1;
                handle.close(socket);
            }
            Event::Closed { .. } => closed = true,
            _ => {}
        };
        side.node.poll(Some(PATIENCE), on_event).unwrap();
    }
    assert_eq!(last, 1);
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn an_async_node_delivers_no_message_after_a_close() {
    let (node, peer) = flooded("tcp+msg");
    let mut node = estafette_net::AsyncNode::new(node).unwrap();
    let (handle, mut seen) = (node.handle(), Seen::default());
    while !seen.closed {
        let event = node.next().await.unwrap().expect("nobody stops it");
        seen.on_event(&handle, &event);
    }
    assert_eq!(seen.messages, 1);
    peer.join().unwrap();
}

#[test]
fn a_send_after_a_close_returns_closed_and_is_not_delivered() {
    for scheme in ["tcp", "tcp+msg", "ws", "unix+msg", "inproc+msg"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (_, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        assert_eq!(client.handle.send(endpoint, b"before"), Outcome::Sent);
        let (handle, mut outcomes, mut closed) = (server.handle.clone(), Vec::new(), false);
        while !closed {
            let on_event = |event: Event<'_, u32>| match event {
                Event::Message(from, _) => {
                    let mut batch = handle.batch(from);
                    assert_eq!(batch.push(b"in a batch"), Outcome::Queued);
                    assert_eq!(handle.send(from, b"before"), Outcome::Sent);
                    handle.close(from);
                    outcomes.extend([handle.send(from, b"after"), handle.send_text(from, "after"), batch.flush()]);
                }
                Event::Closed { .. } => closed = true,
                _ => {}
            };
            server.node.poll(Some(Duration::from_millis(1)), on_event).unwrap();
            client.step();
        }
        assert_eq!(outcomes, [Outcome::Closed; 3], "{scheme}");
        client.until_closed(endpoint);
        assert_eq!(client.messages(endpoint).concat(), b"before", "{scheme}");
    }
}

#[test]
fn a_send_after_a_close_returns_closed_in_every_state() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Reconnect::default().initial_delay(Duration::from_secs(1000));
    for options in [Options::default(), Options::default().reconnect(plan)] {
        let mut server = Side::new();
        let listener = server.handle.listen(address("ws", &folder).as_str()).unwrap();
        let mut client = Side::new();
        let at = server.handle.local_address(listener).unwrap();
        // It is still opening.
        let endpoint = client.handle.connect_with(&at, &options).unwrap();
        assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
        client.handle.close(endpoint);
        assert_eq!(client.handle.send(endpoint, b"after"), Outcome::Closed);
        // It is open, and was finished before.
        let endpoint = client.handle.connect_with(&at, &options).unwrap();
        until(&mut server, &mut client, "open", |_, client| client.seen.contains(&common::Seen::Connected(endpoint)));
        client.handle.close(endpoint);
        assert_eq!(client.handle.send(endpoint, b"after"), Outcome::Closed);
        client.handle.finish(endpoint);
        assert_eq!(client.handle.send(endpoint, b"after"), Outcome::Closed);
        until(&mut server, &mut client, "closed", |_, client| client.closed(endpoint).is_some());
    }
}

#[test]
fn a_datagram_socket_sends_nothing_after_a_close() {
    let mut side = Side::new();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    let to = side.handle.connect(side.handle.local_address(socket).unwrap()).unwrap();
    let mut batch = side.handle.batch(to);
    assert_eq!(batch.push(b"in a batch"), Outcome::Queued);
    side.handle.close(to);
    assert_eq!(side.handle.send(to, b"after"), Outcome::Closed);
    assert_eq!(batch.flush(), Outcome::Closed);
    assert_eq!(side.until_closed(to), "closed here");
    assert!(side.messages(socket).is_empty());
}

#[test]
fn a_finish_after_a_close_does_not_change_the_code_of_the_closing_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    client.handle.close_with(endpoint, &Close { code: Some(4000), reason: "done".to_owned() }).unwrap();
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "closed", |server, _| server.closed(accepted).is_some());
    assert_eq!(server.closed(accepted), Some("closed by the peer: 4000: done"));
}
