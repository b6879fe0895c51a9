//! The orderly end of a whole node.

mod common;

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side, address, connected, until};
use estafette_net::{Endpoint, Error, Event, Node, Options, Outcome, Reason, Reconnect};

/// Runs a node until it returns, and returns what it closed.
fn run(node: &mut Node<u32>) -> Vec<(Endpoint, String)> {
    let mut closed = Vec::new();
    node.run(|event| {
        if let Event::Closed { endpoint, reason } = event {
            closed.push((endpoint, reason.to_string()));
        }
    })
    .unwrap();
    closed
}

/// A node with one accepted connection, whose peer is a plain socket.
fn with_plain_peer(scheme: &str) -> (Side, Endpoint, Endpoint, TcpStream) {
    let mut side = Side::new();
    let listener = side.handle.listen(format!("{scheme}://127.0.0.1:0")).unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    side.step_until("accepted", |seen| !seen.is_empty());
    let accepted = side.accepted(listener)[0];
    (side, listener, accepted, peer)
}

#[test]
fn every_queue_is_written_and_every_endpoint_is_reported_before_run_returns() {
    let (mut side, listener, accepted, mut peer) = with_plain_peer("tcp");
    let datagrams = side.handle.listen("udp://127.0.0.1:0").unwrap();
    let message = vec![7; 20_000_000];
    assert_eq!(side.handle.send(accepted, &message), Outcome::Queued);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).map(|_| all)
    });
    side.handle.shutdown(PATIENCE);
    let mut closed = run(&mut side.node);
    closed.sort();
    let mut expected = [listener, accepted, datagrams].map(|endpoint| (endpoint, "closed here".to_owned()));
    expected.sort();
    assert_eq!(closed, expected);
    assert!(side.handle.has_shut_down());
    assert!(reader.join().unwrap().unwrap() == message);
}

#[test]
fn what_is_left_at_the_deadline_is_cut_and_counted() {
    // This peer never reads.
    let (mut side, _, accepted, _peer) = with_plain_peer("tcp");
    assert_eq!(side.handle.send(accepted, &vec![7; 20_000_000]), Outcome::Queued);
    let begun = Instant::now();
    side.handle.shutdown(Duration::from_millis(50));
    let (mut unwritten, mut early) = (0, false);
    side.node
        .run(|event| {
            if let Event::Closed { endpoint, reason } = event
                && endpoint == accepted
            {
                early = begun.elapsed() < Duration::from_millis(50);
                let Reason::Unwritten(bytes) = reason else { panic!("{reason}") };
                unwritten = bytes;
            }
        })
        .unwrap();
    assert!(!early, "it was cut before the deadline");
    assert!((1..20_000_000).contains(&unwritten), "{unwritten}");
}

#[test]
fn a_second_shutdown_cuts_at_once() {
    let (mut side, _, accepted, _peer) = with_plain_peer("tcp");
    assert_eq!(side.handle.send(accepted, &vec![7; 20_000_000]), Outcome::Queued);
    side.handle.shutdown(Duration::MAX);
    side.step();
    assert!(!side.handle.has_shut_down());
    side.handle.shutdown(Duration::ZERO);
    let closed = run(&mut side.node);
    assert!(closed.iter().any(|(endpoint, reason)| *endpoint == accepted && reason.contains("were not written")));
    // A longer time does not bring anything back.
    side.handle.shutdown(Duration::MAX);
    assert_eq!(run(&mut side.node), []);
}

#[test]
fn a_websocket_gets_the_code_for_going_away() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    assert_eq!(server.handle.send(accepted, b"last"), Outcome::Sent);
    server.handle.shutdown(PATIENCE);
    until(&mut server, &mut client, "closed", |server, client| {
        server.handle.has_shut_down() && client.closed(endpoint).is_some()
    });
    assert_eq!(server.closed(accepted), Some("closed here"));
    assert_eq!(client.messages(endpoint), [b"last"]);
    assert_eq!(client.closed(endpoint), Some("closed by the peer: 1001"));
}

#[test]
fn every_transport_shuts_down_and_frees_its_address() {
    for scheme in ["tcp", "tcp+msg", "unix", "unix+msg", "inproc", "inproc+msg", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, listener) = connected(&mut server, &mut client, &address(scheme, &folder));
        let at = server.handle.local_address(listener).unwrap();
        server.handle.shutdown(PATIENCE);
        until(&mut server, &mut client, "closed", |server, client| {
            server.handle.has_shut_down() && client.closed(endpoint).is_some()
        });
        assert_eq!((server.closed(accepted), server.closed(listener)), (Some("closed here"), Some("closed here")));
        // TCP itself keeps the port of a connection that this side closed for a while.
        if scheme.starts_with("unix") || scheme.starts_with("inproc") {
            Side::new().handle.listen(&at).unwrap_or_else(|error| panic!("{scheme}: {error}"));
        }
    }
}

#[test]
fn no_endpoint_is_created_during_or_after_a_shutdown() {
    let mut side = Side::new();
    let listener = side.handle.listen("tcp://127.0.0.1:0").unwrap();
    let at = side.handle.local_address(listener).unwrap();
    side.handle.shutdown(PATIENCE);
    for _ in 0..2 {
        assert!(matches!(side.handle.listen("tcp://127.0.0.1:0"), Err(Error::ShuttingDown)));
        assert!(matches!(side.handle.connect(&at), Err(Error::ShuttingDown)));
        run(&mut side.node);
    }
    let port = at.port().unwrap();
    let refused = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
}

#[test]
fn a_connection_that_is_opening_writes_what_was_sent_early() {
    let mut server = Side::new();
    let listener = server.handle.listen("ws://127.0.0.1:0").unwrap();
    let at = server.handle.local_address(listener).unwrap();
    let mut client = Side::new();
    let endpoint = client.handle.connect(&at).unwrap();
    let with_nothing_to_send = client.handle.connect(&at).unwrap();
    assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
    client.handle.shutdown(PATIENCE);
    until(&mut server, &mut client, "over", |server, client| {
        client.handle.has_shut_down()
            && server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"early"))
    });
    assert_eq!(client.closed(endpoint), Some("closed here"));
    assert_eq!(client.closed(with_nothing_to_send), Some("closed here"));
    assert!(!client.seen.contains(&Seen::Connected(with_nothing_to_send)));
}

#[test]
fn a_lost_connection_does_not_reconnect_during_a_shutdown() {
    let mut client = Side::new();
    let options = Options::default().reconnect(Reconnect::default().initial_delay(Duration::from_secs(1000)));
    // Nobody listens there.
    let at = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = client.handle.connect_with(format!("tcp://{at}"), &options).unwrap();
    client.step_until("lost", |seen| matches!(seen, [Seen::Lost(..)]));
    assert_eq!(client.handle.send(endpoint, b"never"), Outcome::Queued);
    client.handle.shutdown(PATIENCE);
    let closed = run(&mut client.node);
    assert_eq!(closed, [(endpoint, "closed here, and 5 bytes were not written in time".to_owned())]);
}

#[test]
fn messages_are_not_delivered_after_a_shutdown_in_the_same_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (_, endpoint, _) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let mut batch = client.handle.batch(endpoint);
    (0..1000).for_each(|_| assert!(batch.push(b"four").is_accepted()));
    assert_eq!(batch.flush(), Outcome::Sent);
    let (handle, mut messages) = (server.handle.clone(), 0);
    let client = thread::spawn(move || client.until_closed(endpoint));
    server
        .node
        .run(|event| {
            if let Event::Message(..) = event {
                messages += 1;
                handle.shutdown(PATIENCE);
            }
        })
        .unwrap();
    assert_eq!(messages, 1);
    assert_eq!(client.join().unwrap(), "ended by the peer");
}

#[test]
fn a_signal_that_was_sent_before_is_delivered_before_run_returns() {
    let mut side = Side::new();
    side.handle.listen("tcp://127.0.0.1:0").unwrap();
    let (handle, mut signals) = (side.handle.clone(), Vec::new());
    side.handle.shutdown(PATIENCE);
    side.node
        .run(|event| match event {
            Event::Closed { .. } => handle.signal(1),
            Event::Signal(signal) => signals.push(signal),
            _ => {}
        })
        .unwrap();
    assert_eq!(signals, [1]);
}

#[test]
fn another_thread_may_shut_a_sleeping_node_down() {
    let mut node = Node::<u32>::new().unwrap();
    node.handle().listen("inproc://shut-down-by-a-thread").unwrap();
    let handle = node.handle();
    let runs = thread::spawn(move || run(&mut node).len());
    handle.shutdown(PATIENCE);
    assert_eq!(runs.join().unwrap(), 1);
    assert!(handle.has_shut_down());
}

#[test]
fn a_loop_by_next_ends_with_none() {
    let mut side = Side::new();
    let listener = side.handle.listen("tcp://127.0.0.1:0").unwrap();
    side.handle.shutdown(PATIENCE);
    match side.node.next(None).unwrap() {
        Some(Event::Closed { endpoint, .. }) => assert_eq!(endpoint, listener),
        other => panic!("{other:?}"),
    }
    assert!(!side.handle.has_shut_down(), "the last event was not delivered yet");
    assert!(side.node.next(None).unwrap().is_none());
    assert!(side.handle.has_shut_down());
}

#[cfg(feature = "tokio")]
#[tokio::test]
async fn an_async_node_shuts_down() {
    let mut node = estafette_net::AsyncNode::new(Node::<()>::new().unwrap()).unwrap();
    let handle = node.handle();
    let listener = handle.listen("ws://127.0.0.1:0").unwrap();
    let client = handle.connect(handle.local_address(listener).unwrap()).unwrap();
    assert_eq!(handle.send(client, b"last"), Outcome::Queued);
    let (mut messages, mut closed) = (0, 0);
    while let Some(event) = node.next().await.unwrap() {
        match event {
            Event::Message(_, message) => {
                assert_eq!(*message, *b"last");
                messages += 1;
                handle.shutdown(PATIENCE);
            }
            Event::Closed { .. } => closed += 1,
            _ => {}
        }
    }
    assert_eq!((messages, closed), (1, 3));
    assert!(handle.has_shut_down());
    assert!(node.next().await.unwrap().is_none(), "it would wait for ever");
}
