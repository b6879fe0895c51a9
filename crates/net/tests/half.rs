//! Half-closed connections, as far as the conformance suite does not cover them.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::{Seen, Side, address, connected_with, options, until};
use estafette_net::{Endpoint, Limits, Options, Outcome};

fn finished(side: &Side, endpoint: Endpoint) -> bool {
    side.seen.contains(&Seen::Finished(endpoint))
}

/// A half-open listener, and a client that is not half-open.
fn half_open() -> (Options, Options) {
    let (ours, theirs) = options();
    (ours.half_open(true), theirs)
}

#[test]
fn a_close_after_finish_does_not_wait_for_the_peer() {
    let mut limits = Limits::default();
    // The peer never ends its direction.
    limits.flush = Duration::from_millis(100);
    let (mut server, mut client) = (Side::new(), Side::with(limits));
    let folder = tempfile::tempdir().unwrap();
    let (accepted, endpoint, _) = connected_with(&mut server, &mut client, &address("tcp", &folder), &half_open());
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "finished", |server, _| finished(server, accepted));
    client.handle.close(endpoint);
    assert_eq!(client.until_closed(endpoint), "closed here");
}

/// A half-open listener, and the socket of a peer that has sent "all" and ended its direction.
fn finished_peer() -> (Side, Endpoint, TcpStream) {
    let mut server = Side::new();
    let listener = server.handle.listen_with("tcp://127.0.0.1:0", &Options::default().half_open(true)).unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.write_all(b"all").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let accepted = server.until("finished", |seen| match seen {
        Seen::Finished(endpoint) => Some(*endpoint),
        _ => None,
    });
    assert_eq!(server.messages(accepted), [b"all"]);
    (server, accepted, peer)
}

#[test]
fn a_finished_peer_still_receives() {
    let (mut server, accepted, mut peer) = finished_peer();
    assert_eq!(server.handle.send(accepted, b"answer"), Outcome::Sent);
    server.handle.finish(accepted);
    assert_eq!(server.until_closed(accepted), "ended by the peer");
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

#[test]
fn a_reset_after_the_peers_end_is_reported() {
    let (mut server, accepted, peer) = finished_peer();
    // With `SO_LINGER` of 0, closing sends a reset.
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let reason = server.until_closed(accepted);
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn a_closed_unix_peer_is_distinguished_from_a_finished_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Side::new();
    let address = address("unix", &folder);
    server.handle.listen_with(address.as_str(), &Options::default().half_open(true)).unwrap();
    let mut peer = UnixStream::connect(folder.path().join("socket")).unwrap();
    peer.write_all(b"all").unwrap();
    drop(peer);
    let (closed, reason) = server.until("closed", |seen| match seen {
        Seen::Closed(which, reason) => Some((*which, reason.clone())),
        _ => None,
    });
    assert_eq!(reason, "ended by the peer");
    assert_eq!(server.messages(closed), [b"all"]);
}

#[test]
fn a_closed_inproc_peer_is_distinguished_from_a_finished_one() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected_with(&mut server, &mut client, "inproc://gone", &half_open());
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "finished", |server, _| finished(server, accepted));
    drop(client);
    assert_eq!(server.until_closed(accepted), "ended by the peer");
}

#[test]
fn finishing_a_listener_or_datagram_socket_does_nothing() {
    let mut side = Side::new();
    let listener = side.handle.listen("tcp://127.0.0.1:0").unwrap();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    side.handle.finish(listener);
    side.handle.finish(socket);
    let to = side.handle.connect(side.handle.local_address(listener).unwrap()).unwrap();
    side.until("connected", |seen| (*seen == Seen::Connected(to)).then_some(()));
    assert!(side.closed(listener).is_none() && side.closed(socket).is_none());
}
