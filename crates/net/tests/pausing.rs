//! Endpoints that are not read from for a while.

mod common;

use std::net::TcpStream;
use std::time::Duration;

use common::{Seen, Side, address, connected, until};
use estafette_net::{Event, Limits, Node, Outcome};
use rustix::time::{ClockId, clock_gettime};

const SCHEMES: &[&str] = if cfg!(feature = "tls") {
    &["tcp", "tcp+msg", "unix+msg", "inproc", "ws", "tls+msg", "wss"]
} else {
    &["tcp", "tcp+msg", "unix+msg", "inproc", "ws"]
};

/// Gives both sides many occasions to do what they should not.
fn turns(a: &mut Side, b: &mut Side) {
    for _ in 0..20 {
        a.step();
        b.step();
    }
}

#[test]
fn a_peer_that_is_paused_has_to_wait_and_loses_nothing() {
    for scheme in SCHEMES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        server.handle.pause(accepted);
        turns(&mut server, &mut client);
        let mut sent = 0;
        // Until nothing more is taken, for so many turns of both.
        loop {
            let before = sent;
            while client.handle.send(endpoint, &[sent as u8; 50_000]).taken() {
                sent += 1;
                assert!(sent < 10_000, "{scheme}: it takes everything");
            }
            if sent == before {
                break;
            }
            turns(&mut server, &mut client);
        }
        assert!(server.messages(accepted).is_empty(), "{scheme}");
        // The other direction goes on.
        assert_eq!(server.handle.send(accepted, b"slowly"), Outcome::Sent, "{scheme}");
        until(&mut server, &mut client, "there", |_, client| client.messages(endpoint).concat() == b"slowly");
        server.handle.resume(accepted);
        until(&mut server, &mut client, "all there", |server, client| {
            server.messages(accepted).concat().len() == sent * 50_000 && client.seen.contains(&Seen::Drained(endpoint))
        });
        let there = server.messages(accepted).concat();
        assert!(
            there.chunks(50_000).enumerate().all(|(i, chunk)| chunk.iter().all(|byte| *byte == i as u8)),
            "{scheme}"
        );
    }
}

#[test]
fn a_pause_takes_no_time_of_the_processor() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("tcp", &folder));
    server.handle.pause(accepted);
    turns(&mut server, &mut client);
    assert_eq!(client.handle.send(endpoint, b"unread"), Outcome::Sent);
    turns(&mut server, &mut client);
    let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = spent();
    assert!(server.node.next(Some(Duration::from_millis(500))).unwrap().is_none());
    // Who looks again and again has spent half a second, or what others leave of it.
    assert!(spent() - before < Duration::from_millis(50), "{:?}", spent() - before);
}

#[test]
fn a_connection_is_closed_though_it_is_paused() {
    for scheme in SCHEMES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, _) = connected(&mut server, &mut client, &address(scheme, &folder));
        server.handle.pause(accepted);
        turns(&mut server, &mut client);
        assert!(client.handle.send(endpoint, b"unread").taken());
        assert_eq!(server.handle.send(accepted, b"last"), Outcome::Sent);
        turns(&mut server, &mut client);
        server.handle.close(accepted);
        let closed = |side: &Side| side.seen.iter().any(|seen| matches!(seen, Seen::Closed(..)));
        until(&mut server, &mut client, "closed", |server, client| closed(server) && closed(client));
        assert_eq!(server.until_closed(accepted), "closed here", "{scheme}");
        assert_eq!(client.messages(endpoint), [b"last"], "{scheme}");
        assert!(server.messages(accepted).is_empty(), "{scheme}");
    }
}

#[test]
fn a_reset_is_told_after_the_pause() {
    let mut server = Side::new();
    let listener = server.handle.listen("tcp://127.0.0.1:0").unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let accepted = server.until("accepted", |seen| match seen {
        Seen::Accepted(endpoint, _) => Some(*endpoint),
        _ => None,
    });
    server.handle.pause(accepted);
    turns(&mut server, &mut Side::new());
    // With a time of 0 to linger, closing resets.
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    turns(&mut server, &mut Side::new());
    assert!(!server.seen.iter().any(|seen| matches!(seen, Seen::Closed(..))));
    server.handle.resume(accepted);
    let reason = server.until_closed(accepted);
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn what_could_not_come_is_not_late() {
    let mut limits = Limits::default();
    limits.idle = Some(Duration::from_millis(50));
    let mut node = Node::<u32>::with_limits(limits).unwrap();
    let handle = node.handle();
    handle.listen("inproc://idle").unwrap();
    let endpoint = handle.connect("inproc://idle").unwrap();
    let (mut told, mut closed, mut resumed) = (Vec::new(), Vec::new(), false);
    while closed.len() < 2 {
        node.poll(Some(Duration::from_secs(60)), |event| match event {
            // Before anything can be late: what is asked for is done first.
            Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                handle.pause(endpoint);
                told.push(endpoint);
                if told.len() == 2 {
                    handle.signal_after(Duration::from_millis(200), 0);
                }
            }
            Event::Signal(_) => {
                assert!(closed.is_empty(), "{closed:?}");
                resumed = true;
                told.iter().for_each(|endpoint| handle.resume(*endpoint));
            }
            Event::Closed { endpoint, reason } => {
                assert!(resumed, "{reason}");
                closed.push((endpoint, reason.to_string()));
            }
            _ => {}
        })
        .unwrap();
    }
    // The other may have been told the end of this one first.
    assert!(closed.iter().any(|(_, reason)| reason == "idle for too long"), "{closed:?}");
    assert!(closed.iter().any(|(which, _)| *which == endpoint));
}

#[test]
fn a_listener_that_is_paused_accepts_nobody() {
    for scheme in ["tcp", "unix", "inproc"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let listener = server.handle.listen(address(scheme, &folder).as_str()).unwrap();
        server.handle.pause(listener);
        turns(&mut server, &mut client);
        let endpoint = client.handle.connect(server.handle.local_address(listener).unwrap()).unwrap();
        until(&mut server, &mut client, "connected", |_, client| client.seen.contains(&Seen::Connected(endpoint)));
        turns(&mut server, &mut client);
        assert_eq!(server.seen, [], "{scheme}");
        server.handle.resume(listener);
        server.until("accepted", |seen| matches!(seen, Seen::Accepted(_, from) if *from == listener).then_some(()));
    }
}

#[test]
fn a_socket_of_datagrams_that_is_paused_keeps_what_there_is_room_for() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let socket = server.handle.listen("udp://127.0.0.1:0").unwrap();
    server.handle.pause(socket);
    turns(&mut server, &mut client);
    let endpoint = client.handle.connect(server.handle.local_address(socket).unwrap()).unwrap();
    assert_eq!(client.handle.send(endpoint, b"later"), Outcome::Sent);
    turns(&mut server, &mut client);
    assert_eq!(server.seen, []);
    server.handle.resume(socket);
    server.until("later", |seen| matches!(seen, Seen::Message(_, _, message) if message == b"later").then_some(()));
}
