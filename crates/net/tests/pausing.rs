//! Endpoints that are not read from for a while: what not every transport has to do.

mod common;

use std::net::TcpStream;
use std::time::Duration;

use common::{Seen, Side};
use estafette_net::{Event, Limits, Node, Outcome};

/// Gives both sides many occasions to do what they should not.
fn turns(a: &mut Side, b: &mut Side) {
    for _ in 0..20 {
        a.step();
        b.step();
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
