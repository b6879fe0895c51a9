//! Pausing, as far as the conformance suite does not cover it.

mod common;

use std::net::TcpStream;
use std::time::Duration;

use common::{Seen, Side};
use estafette_net::{Event, Limits, Node, Outcome};

/// Steps both nodes many times, to give them the chance to do something wrong.
fn turns(a: &mut Side, b: &mut Side) {
    for _ in 0..20 {
        a.step();
        b.step();
    }
}

#[test]
fn a_reset_during_a_pause_is_reported_after_it() {
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
    // With `SO_LINGER` of 0, closing sends a reset.
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    turns(&mut server, &mut Side::new());
    assert!(!server.seen.iter().any(|seen| matches!(seen, Seen::Closed(..))));
    server.handle.resume(accepted);
    let reason = server.until_closed(accepted);
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn time_spent_paused_does_not_count_as_idle() {
    let mut limits = Limits::default();
    limits.idle = Some(Duration::from_millis(50));
    let mut node = Node::<u32>::with_limits(limits).unwrap();
    let handle = node.handle();
    handle.listen("inproc://idle").unwrap();
    let endpoint = handle.connect("inproc://idle").unwrap();
    let (mut opened, mut closed, mut resumed) = (Vec::new(), Vec::new(), false);
    while closed.len() < 2 {
        node.poll(Some(Duration::from_secs(60)), |event| match event {
            // Commands are handled before deadlines, so the pause takes effect in time.
            Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                handle.pause(endpoint);
                opened.push(endpoint);
                if opened.len() == 2 {
                    handle.signal_after(Duration::from_millis(200), 0);
                }
            }
            Event::Signal(_) => {
                assert!(closed.is_empty(), "{closed:?}");
                resumed = true;
                opened.iter().for_each(|endpoint| handle.resume(*endpoint));
            }
            Event::Closed { endpoint, reason } => {
                assert!(resumed, "{reason}");
                closed.push((endpoint, reason.to_string()));
            }
            _ => {}
        })
        .unwrap();
    }
    // The other end may have reported the end of this one first.
    assert!(closed.iter().any(|(_, reason)| reason == "idle for too long"), "{closed:?}");
    assert!(closed.iter().any(|(which, _)| *which == endpoint));
}

#[test]
fn a_paused_datagram_socket_keeps_what_fits_into_its_buffer() {
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
