//! Connections of which one direction ends before the other: what not every transport has to do.

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

/// A listener that is half open, and a client that is not.
fn half_open() -> (Options, Options) {
    let (ours, theirs) = options();
    (ours.half_open(true), theirs)
}

#[test]
fn what_is_closed_after_it_was_finished_waits_for_nobody() {
    let mut limits = Limits::default();
    // The peer never ends its side.
    limits.flush = Duration::from_millis(100);
    let (mut server, mut client) = (Side::new(), Side::with(limits));
    let folder = tempfile::tempdir().unwrap();
    let (accepted, endpoint, _) = connected_with(&mut server, &mut client, &address("tcp", &folder), &half_open());
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "finished", |server, _| finished(server, accepted));
    client.handle.close(endpoint);
    assert_eq!(client.until_closed(endpoint), "closed here");
}

/// A listener that is half open, and a socket of a peer that has said "all" and sends no more.
fn told_all() -> (Side, Endpoint, TcpStream) {
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
fn a_socket_is_told_the_end_and_read_on() {
    let (mut server, accepted, mut peer) = told_all();
    assert_eq!(server.handle.send(accepted, b"answer"), Outcome::Sent);
    server.handle.finish(accepted);
    assert_eq!(server.until_closed(accepted), "ended by the peer");
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
}

#[test]
fn a_reset_is_told_after_the_peers_end() {
    let (mut server, accepted, peer) = told_all();
    // With a time of 0 to linger, closing resets.
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let reason = server.until_closed(accepted);
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn a_peer_that_is_gone_altogether_is_told_where_the_system_tells() {
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
fn a_peer_within_the_process_that_is_gone_altogether_is_told() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected_with(&mut server, &mut client, "inproc://gone", &half_open());
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "finished", |server, _| finished(server, accepted));
    drop(client);
    assert_eq!(server.until_closed(accepted), "ended by the peer");
}

#[test]
fn what_has_nothing_to_finish_is_left_alone() {
    let mut side = Side::new();
    let listener = side.handle.listen("tcp://127.0.0.1:0").unwrap();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    side.handle.finish(listener);
    side.handle.finish(socket);
    let to = side.handle.connect(side.handle.local_address(listener).unwrap()).unwrap();
    side.until("connected", |seen| (*seen == Seen::Connected(to)).then_some(()));
    assert!(side.closed(listener).is_none() && side.closed(socket).is_none());
}
