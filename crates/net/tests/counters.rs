//! What the counters of a node, its listeners and its connections say.

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side, address, connected, until};
use estafette_net::{Counters, Endpoint, Event, Node, Options, Outcome, Reconnect};

fn of(side: &Side, endpoint: Endpoint) -> Counters {
    side.handle.counters_of(endpoint).expect("it has not ended")
}

/// The length of a message's header, as the sender of this scheme writes it.
fn header(scheme: &str) -> u64 {
    match scheme {
        "tcp+msg" | "unix+msg" | "inproc+msg" => 4,
        // With the masking key of a client.
        "ws" => 6,
        _ => 0,
    }
}

#[test]
fn both_ends_count_the_same_messages_and_bytes() {
    for scheme in ["tcp+msg", "unix+msg", "inproc+msg", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, listener) = connected(&mut server, &mut client, &address(scheme, &folder));
        let opened = [of(&client, endpoint).sent_bytes, of(&server, accepted).sent_bytes];
        assert_eq!(of(&client, endpoint).sent_messages, 0, "{scheme}: a handshake is no message");
        // Single messages, a batch, and a long message that has memory of its own.
        for _ in 0..10 {
            assert_eq!(client.handle.send(endpoint, &[7; 10]), Outcome::Sent);
        }
        let mut batch = client.handle.batch(endpoint);
        (0..1000).for_each(|_| assert!(batch.push(&[7; 10]).is_accepted()));
        assert!(batch.flush().is_accepted());
        until(&mut server, &mut client, "small", |server, _| server.received(accepted) == 10_100);
        assert!(client.handle.send(endpoint, &vec![7; 300_000]).is_accepted());
        until(&mut server, &mut client, "all", |server, _| server.received(accepted) == 310_100);
        let (sent, received) = (of(&client, endpoint), of(&server, accepted));
        assert_eq!((sent.sent_messages, received.received_messages), (1011, 1011), "{scheme}");
        assert_eq!(sent.sent_bytes, received.received_bytes, "{scheme}");
        let long = if scheme == "ws" { 14 } else { header(scheme) };
        assert_eq!(sent.sent_bytes - opened[0], 310_100 + 1010 * header(scheme) + long, "{scheme}");
        assert_eq!((received.sent_messages, received.sent_bytes), (0, opened[1]), "{scheme}");
        assert_eq!((sent.queued_bytes, sent.refused_sends), (0, 0), "{scheme}");
        // The listener and the node have the same sums.
        let (mut expected, mut of_client) = (received, sent);
        expected.accepted = 1;
        of_client.connected = 1;
        assert_eq!((of(&server, listener), server.handle.counters()), (expected, expected), "{scheme}");
        assert_eq!(client.handle.counters(), of_client, "{scheme}");
    }
}

#[test]
fn sums_keep_the_figures_of_connections_that_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (first, to_first, listener) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let at = server.handle.local_address(listener).unwrap();
    let to_second = client.handle.connect(&at).unwrap();
    until(&mut server, &mut client, "accepted", |server, _| server.accepted(listener).len() == 2);
    let second = server.accepted(listener)[1];
    for to in [to_first, to_second] {
        assert!(client.handle.send(to, b"hello").is_accepted());
    }
    until(&mut server, &mut client, "both", |server, _| [first, second].iter().all(|one| server.received(*one) == 5));
    let before = of(&server, listener);
    assert_eq!((before.received_messages, before.received_bytes, before.accepted), (2, 18, 2));
    client.handle.close(to_first);
    until(&mut server, &mut client, "closed", |server, client| {
        server.closed(first).is_some() && client.closed(to_first).is_some()
    });
    assert_eq!(server.handle.counters_of(first), None);
    assert_eq!((of(&server, listener), server.handle.counters()), (before, before));
    server.handle.close(listener);
    server.until_closed(listener);
    assert_eq!(server.handle.counters(), before);
    assert_eq!(client.handle.counters().sent_messages, 2);
}

/// Runs a node until this many endpoints have ended. Returns their counters as read in the
/// callback.
fn last_counters(node: &mut Node<()>, ends: usize, mut on_event: impl FnMut(&Event<'_, ()>)) -> Vec<Counters> {
    let (handle, begun) = (node.handle(), Instant::now());
    let (mut ended, mut last) = (Vec::new(), Vec::new());
    while ended.len() < ends {
        assert!(begun.elapsed() < PATIENCE, "{} of {ends} end", ended.len());
        let polled = node.poll(Some(Duration::from_millis(1)), |event| {
            on_event(&event);
            let endpoint = match event {
                Event::Closed { endpoint, .. } => endpoint,
                Event::AcceptFailed(failure) => failure.endpoint,
                _ => return,
            };
            ended.push(endpoint);
            last.push(handle.counters_of(endpoint).expect("its end is being reported"));
        });
        polled.unwrap();
        // They are forgotten after the callback. Only an end that is the peer's fault is reported before
        // the connection is gone.
        let exists = |endpoint| handle.endpoints().iter().any(|info| info.endpoint == endpoint);
        assert!(ended.iter().all(|endpoint| handle.counters_of(*endpoint).is_none() || exists(*endpoint)));
    }
    last
}

#[test]
fn the_last_counters_can_be_read_while_closed_is_delivered() {
    for scheme in ["tcp+msg", "unix+msg", "inproc+msg", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let mut node = Node::<()>::new().unwrap();
        let handle = node.handle();
        let listener = handle.listen(address(scheme, &folder)).unwrap();
        let client = handle.connect(handle.local_address(listener).unwrap()).unwrap();
        assert!(handle.send(client, b"hello").is_accepted());
        let mut received = 0;
        let last = last_counters(&mut node, 2, |event| match event {
            Event::Message(from, _) if *from == client => {
                received += 1;
                if received == 3 {
                    handle.close(client);
                }
            }
            Event::Message(from, _) => (0..3).for_each(|_| assert!(handle.send(*from, b"reply").is_accepted())),
            _ => {}
        });
        let mut counts: Vec<_> = last.iter().map(|last| (last.received_messages, last.sent_messages)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(1, 3), (3, 1)], "{scheme}");
        assert!(last.iter().all(|last| last.queued_bytes == 0 && last.received_bytes >= 5), "{scheme}: {last:?}");
    }
}

#[test]
fn every_kind_of_endpoint_has_last_counters() {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let of_messages = handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    let of_websockets = handle.listen("ws://127.0.0.1:0").unwrap();
    let port = |listener| handle.local_address(listener).unwrap().port().unwrap();
    // A violation is reported at once, and the connection goes on until the peer has ended too.
    let mut violates = TcpStream::connect(("127.0.0.1", port(of_messages))).unwrap();
    violates.write_all(&[0xff; 9]).unwrap();
    assert_eq!(last_counters(&mut node, 1, |_| {})[0].received_bytes, 9);
    drop(violates);
    // This one is never accepted.
    let mut odd = TcpStream::connect(("127.0.0.1", port(of_websockets))).unwrap();
    odd.write_all(b"no HTTP\r\n\r\n").unwrap();
    assert_eq!(last_counters(&mut node, 1, |_| {})[0].received_bytes, 11);
    drop(odd);
    handle.close(of_websockets);
    assert_eq!(last_counters(&mut node, 1, |_| {})[0].failed, 1);
    let socket = handle.listen("udp://127.0.0.1:0").unwrap();
    let to = handle.connect(handle.local_address(socket).unwrap()).unwrap();
    assert_eq!(handle.send(to, b"hello"), Outcome::Sent);
    handle.close(to);
    assert_eq!(last_counters(&mut node, 1, |_| {})[0].sent_bytes, 5);
}

#[test]
fn the_last_counters_are_there_until_the_next_event_is_asked_for() {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let socket = handle.listen("udp://127.0.0.1:0").unwrap();
    handle.close(socket);
    assert!(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Closed { .. })));
    assert_eq!(handle.counters_of(socket), Some(Counters::default()));
    assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
    assert_eq!(handle.counters_of(socket), None);
    // Nothing is kept of a node that was dropped.
    let listener = handle.listen("tcp://127.0.0.1:0").unwrap();
    drop(node);
    assert_eq!(handle.counters_of(listener), None);
}

#[test]
fn queued_bytes_and_refused_sends_are_those_of_the_queue() {
    let mut side = Side::new();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = side.handle.connect(format!("tcp://{}", peer.local_addr().unwrap())).unwrap();
    side.step_until("connected", |seen| !seen.is_empty());
    let mut accepted = 0;
    while side.handle.send(endpoint, &[7; 100_000]).is_accepted() {
        accepted += 1;
    }
    assert_eq!(side.handle.send(endpoint, &[7; 100_000]), Outcome::Full);
    let counters = of(&side, endpoint);
    assert_eq!((counters.sent_messages, counters.refused_sends), (accepted, 2));
    assert!(counters.queued_bytes > 0);
    assert_eq!(counters.sent_bytes + counters.queued_bytes as u64, accepted * 100_000);
    assert_eq!(side.handle.counters().queued_bytes, counters.queued_bytes);
    side.handle.close(endpoint);
    drop(peer);
    side.until_closed(endpoint);
    assert_eq!(side.handle.counters().queued_bytes, 0);
}

#[test]
fn datagram_sockets_count_what_they_send_and_receive() {
    let mut side = Side::new();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    let to = side.handle.connect(side.handle.local_address(socket).unwrap()).unwrap();
    for _ in 0..10 {
        assert_eq!(side.handle.send(to, b"hello"), Outcome::Sent);
    }
    side.step_until("single", |seen| seen.len() == 10);
    let mut batch = side.handle.batch(to);
    (0..60).for_each(|_| assert!(batch.push(b"hello").is_accepted()));
    assert_eq!(batch.flush(), Outcome::Sent);
    side.step_until("all", |seen| seen.len() == 70);
    let (sent, received) = (of(&side, to), of(&side, socket));
    assert_eq!((sent.sent_messages, sent.sent_bytes), (70, 350));
    assert_eq!((received.received_messages, received.received_bytes), (70, 350));
    let peer = side.seen.iter().find_map(|seen| match seen {
        Seen::Message(from, ..) => Some(*from),
        _ => None,
    });
    assert_eq!(of(&side, peer.unwrap()), received, "a peer of a shared socket has the counters of the socket");
}

#[test]
fn connections_that_never_opened_count_as_failed() {
    let mut side = Side::new();
    let listener = side.handle.listen("ws://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    // One is not HTTP, and one ends before it has said anything.
    let mut odd = TcpStream::connect(("127.0.0.1", port)).unwrap();
    odd.write_all(b"no HTTP\r\n\r\n").unwrap();
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    side.step_until("both", |seen| seen.len() == 2);
    drop(odd);
    let failed = |counters: Counters| (counters.accepted, counters.connected, counters.failed);
    assert_eq!(failed(of(&side, listener)), (0, 0, 2));
    // The port of a listener that has gone.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    side.seen.clear();
    side.handle.connect(format!("tcp://{nobody}")).unwrap();
    side.step_until("refused", |seen| !seen.is_empty());
    // A connection that is closed on this side has not failed.
    let closed = side.handle.connect(format!("ws://127.0.0.1:{port}")).unwrap();
    side.handle.close(closed);
    side.until_closed(closed);
    side.step_until("given up", |seen| seen.len() >= 2);
    assert_eq!(side.handle.counters().failed, 3 + of(&side, listener).failed - 2);
}

#[test]
fn a_connection_that_reconnects_goes_on_counting() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let options = Options::default().reconnect(Reconnect::default().initial_delay(Duration::from_millis(1)));
    let listener = server.handle.listen(address("tcp+msg", &folder).as_str()).unwrap();
    let at = server.handle.local_address(listener).unwrap();
    let endpoint = client.handle.connect_with(&at, &options).unwrap();
    for round in 1..=2 {
        until(&mut server, &mut client, "open", |server, client| {
            server.accepted(listener).len() == round && client.count(&Seen::Connected(endpoint)) == round
        });
        let accepted = server.accepted(listener)[round - 1];
        assert!(client.handle.send(endpoint, b"hello").is_accepted());
        assert!(server.handle.send(accepted, b"welcome").is_accepted());
        until(&mut server, &mut client, "received", |server, client| {
            server.received(accepted) == 5 && client.received(endpoint) == 7 * round
        });
        server.handle.close(accepted);
        until(&mut server, &mut client, "lost", |_, client| {
            client.seen.iter().filter(|seen| matches!(seen, Seen::Lost(..))).count() == round
        });
    }
    let counters = of(&client, endpoint);
    assert_eq!((counters.sent_messages, counters.sent_bytes), (2, 18));
    assert_eq!((counters.received_messages, counters.received_bytes), (2, 22));
    assert!(client.handle.counters().connected >= 2);
}

#[test]
fn threads_that_share_a_write_count_every_message() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (_, endpoint, _) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let (handle, reader) = (client.handle.clone(), server.handle.clone());
    let reads = thread::spawn(move || {
        let mut messages = 0;
        server.node.run(|event| messages += usize::from(matches!(event, Event::Message(..)))).unwrap();
        (server, messages)
    });
    let accepted: u64 = thread::scope(|scope| {
        let sends = |_| scope.spawn(|| (0..1000).filter(|_| handle.send(endpoint, b"hello").is_accepted()).count());
        let senders: Vec<_> = (0..4).map(sends).collect();
        senders.into_iter().map(|sender| sender.join().unwrap() as u64).sum()
    });
    let sent = of(&client, endpoint);
    assert_eq!((sent.sent_messages, sent.sent_bytes + sent.queued_bytes as u64), (accepted, accepted * 9));
    client.handle.close(endpoint);
    client.until_closed(endpoint);
    let begun = std::time::Instant::now();
    while reader.counters().received_messages < accepted {
        assert!(begun.elapsed() < PATIENCE, "never received");
        thread::sleep(Duration::from_millis(1));
    }
    reader.stop();
    let (server, messages) = reads.join().unwrap();
    assert_eq!((messages as u64, server.handle.counters().received_messages), (accepted, accepted));
}
