//! Connections that reconnect after a loss.

mod common;

use std::io::Read;
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use common::{Seen, Side, address, options, until};
use estafette_net::{Endpoint, Limits, Options, Outcome, Reconnect};

/// A delay of at most 10 ms.
fn policy() -> Reconnect {
    Reconnect::default().initial_delay(Duration::from_millis(10)).factor(1)
}

fn count(side: &Side, is: impl Fn(&Seen) -> bool) -> usize {
    side.seen.iter().filter(|seen| is(seen)).count()
}

fn connected(side: &Side, endpoint: Endpoint) -> usize {
    count(side, |seen| *seen == Seen::Connected(endpoint))
}

/// The losses of an endpoint: the reason, and how many bytes were not written.
fn losses(side: &Side, of: Endpoint) -> Vec<(&str, usize)> {
    side.seen
        .iter()
        .filter_map(|seen| match seen {
            Seen::Lost(endpoint, reason, unwritten) if *endpoint == of => Some((&reason[..], *unwritten)),
            _ => None,
        })
        .collect()
}

fn accepted(side: &Side, nth: usize) -> Option<Endpoint> {
    let mut all = side.seen.iter().filter_map(|seen| match seen {
        Seen::Accepted(endpoint, _) => Some(*endpoint),
        _ => None,
    });
    all.nth(nth)
}

/// A connected client of a listener that accepts nobody yet.
fn unread(limits: Limits) -> (tempfile::TempDir, UnixListener, Side, Endpoint) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let mut client = Side::with(limits);
    let options = Options::default().reconnect(policy());
    let endpoint = client.handle.connect_with(address("unix", &folder), &options).unwrap();
    client.until("connected", |seen| (*seen == Seen::Connected(endpoint)).then_some(()));
    (folder, listener, client, endpoint)
}

#[test]
fn a_connection_ended_by_its_peer_reconnects_under_the_same_endpoint() {
    let schemes = if cfg!(feature = "tls") {
        &["tcp+msg", "unix+msg", "inproc+msg", "ws", "tls+msg", "wss"][..]
    } else {
        &["tcp+msg", "unix+msg", "inproc+msg", "ws"]
    };
    for scheme in schemes.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (ours, theirs) = options();
        let listener = server.handle.listen_with(address(scheme, &folder).as_str(), &ours).unwrap();
        let mut at = server.handle.local_address(listener).unwrap().to_string();
        // The name is resolved again each time.
        at = at.replace("127.0.0.1", "localhost");
        let endpoint = client.handle.connect_with(at, &theirs.reconnect(policy())).unwrap();
        let mut sender = client.handle.sender(endpoint);
        for round in 0..3 {
            until(&mut server, &mut client, "connected", |server, client| {
                accepted(server, round).is_some() && connected(client, endpoint) == round + 1
            });
            let accepted = accepted(&server, round).unwrap();
            assert_eq!(client.handle.send(endpoint, &[round as u8]), Outcome::Sent, "{scheme}");
            assert_eq!(sender.send(b"sender"), Outcome::Sent, "{scheme}");
            until(&mut server, &mut client, "messages", |server, _| {
                server.messages(accepted) == [&[round as u8][..], b"sender"]
            });
            server.handle.close(accepted);
            until(&mut server, &mut client, "lost", |_, client| losses(client, endpoint).len() == round + 1);
        }
        let why = if scheme.starts_with("ws") { "closed by the peer: 1000" } else { "ended by the peer" };
        assert_eq!(losses(&client, endpoint), [(why, 0); 3], "{scheme}");
        client.handle.close(endpoint);
        until(&mut server, &mut client, "closed", |_, client| {
            client.seen.contains(&Seen::Closed(endpoint, "closed here".to_owned()))
        });
        assert_eq!(client.handle.send(endpoint, b"late"), Outcome::Closed, "{scheme}");
        assert_eq!(sender.send(b"late"), Outcome::Closed, "{scheme}");
    }
}

#[test]
fn messages_sent_while_disconnected_are_queued_until_a_reconnect_succeeds() {
    let mut limits = Limits::default();
    // The peer does not end its direction.
    limits.flush = Duration::from_millis(100);
    let (folder, listener, mut client, endpoint) = unread(limits);
    let mut batch = client.handle.batch(endpoint);
    drop(listener);
    std::fs::remove_file(folder.path().join("socket")).unwrap();
    let begun = |client: &Side| losses(client, endpoint).len() >= 4;
    until(&mut Side::new(), &mut client, "several losses", |_, client| begun(client));
    assert_eq!(client.handle.send(endpoint, b"early, "), Outcome::Queued);
    assert!(batch.push(b"in a batch, ").is_accepted());
    assert_eq!(batch.flush(), Outcome::Queued);
    let before = losses(&client, endpoint).len();
    until(&mut Side::new(), &mut client, "more losses", |_, client| losses(client, endpoint).len() > before + 1);
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    until(&mut Side::new(), &mut client, "connected", |_, client| connected(client, endpoint) == 2);
    assert!(batch.push(b"late").is_accepted() && batch.flush().is_accepted());
    client.handle.close(endpoint);
    assert_eq!(client.until_closed(endpoint), "closed here");
    let mut there = String::new();
    listener.accept().unwrap().0.read_to_string(&mut there).unwrap();
    assert_eq!(there, "early, in a batch, late");
    let losses = losses(&client, endpoint);
    assert!(losses[0].0 != losses[1].0 && losses[1].0.starts_with("not connected: No such file"), "{losses:?}");
    assert!(
        losses.iter().all(|(_, unwritten)| *unwritten == 0),
        "messages queued for the next connection are not lost"
    );
}

#[test]
fn a_loss_reports_the_unwritten_bytes_and_a_send_at_that_moment_gets_full() {
    let mut limits = Limits::default();
    limits.queue = 100_000;
    let (_folder, listener, mut client, endpoint) = unread(limits);
    let mut taken = 0;
    while client.handle.send(endpoint, &[7; 10_000]).is_accepted() {
        taken += 10_000;
    }
    let drained = |client: &Side| count(client, |seen| *seen == Seen::Drained(endpoint));
    let before = drained(&client);
    drop(listener.accept().unwrap());
    // The node has not noticed the loss yet.
    assert_eq!(client.handle.send(endpoint, b"just then"), Outcome::Full);
    until(&mut Side::new(), &mut client, "drained", |_, client| drained(client) > before);
    assert_eq!(connected(&client, endpoint), 2);
    let [(_, unwritten)] = losses(&client, endpoint)[..] else { panic!("{:?}", client.seen) };
    assert!((80_000..taken).contains(&unwritten), "{unwritten} of {taken}");
    assert_eq!(client.handle.send(endpoint, b"again"), Outcome::Sent);
    let mut there = [0; 5];
    listener.accept().unwrap().0.read_exact(&mut there).unwrap();
    assert_eq!(&there, b"again");
}

#[test]
fn after_the_maximum_number_of_attempts_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    let mut client = Side::new();
    let options = Options::default().reconnect(policy().max_attempts(3));
    let endpoint = client.handle.connect_with(address("unix", &folder), &options).unwrap();
    client.until("connected", |seen| (*seen == Seen::Connected(endpoint)).then_some(()));
    drop(listener);
    assert_eq!(client.until_closed(endpoint), "not connected: Connection refused (os error 111)");
    let losses = losses(&client, endpoint);
    assert_eq!(losses.len(), 3);
    assert!(losses[1..].iter().all(|(why, _)| why.starts_with("not connected")), "{losses:?}");
}

#[test]
fn a_failed_first_attempt_is_repeated_too() {
    let mut client = Side::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = Options::default().reconnect(policy().max_attempts(1));
    let endpoint = client.handle.connect_with(format!("tcp://{nobody}"), &options).unwrap();
    assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
    client.until("lost", |seen| matches!(seen, Seen::Lost(which, _, 0) if *which == endpoint).then_some(()));
    assert!(client.until_closed(endpoint).starts_with("not connected: Connection refused"));
}

#[test]
fn a_handshake_that_takes_too_long_is_repeated() {
    let mut limits = Limits::default();
    limits.handshake = Duration::from_millis(100);
    let mut client = Side::with(limits);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = Options::default().reconnect(policy());
    let at = format!("ws://{}", silent.local_addr().unwrap());
    let endpoint = client.handle.connect_with(at, &options).unwrap();
    assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
    until(&mut Side::new(), &mut client, "lost", |_, client| losses(client, endpoint).len() == 3);
    // Written or not, the handshake request is not a message that could be lost.
    assert_eq!(losses(&client, endpoint), [("timed out before the connection was open", 0); 3]);
    client.handle.close(endpoint);
    client.until_closed(endpoint);
}

#[test]
fn a_close_during_the_delay_ends_it_at_once() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let folder = tempfile::tempdir().unwrap();
    let at = address("unix", &folder);
    let listener = server.handle.listen(at.as_str()).unwrap();
    // The delay is random between 0 and this bound. The chance that it ends during this test is one
    // in a million.
    let hours = Duration::from_secs(1_000_000);
    let options = Options::default().reconnect(policy().initial_delay(hours).max_delay(hours));
    let endpoint = client.handle.connect_with(at.as_str(), &options).unwrap();
    until(&mut server, &mut client, "connected", |server, client| {
        connected(client, endpoint) == 1 && accepted(server, 0).is_some()
    });
    server.handle.close(listener);
    server.handle.close(accepted(&server, 0).unwrap());
    until(&mut server, &mut client, "lost", |_, client| losses(client, endpoint).len() == 1);
    assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
    client.handle.close(endpoint);
    assert_eq!(client.until_closed(endpoint), "closed here, and 5 bytes were not written in time");
    assert_eq!(client.handle.send(endpoint, b"late"), Outcome::Closed);
}

#[test]
fn a_finished_connection_does_not_reconnect() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let folder = tempfile::tempdir().unwrap();
    let at = address("unix", &folder);
    server.handle.listen(at.as_str()).unwrap();
    let endpoint = client.handle.connect_with(at.as_str(), &Options::default().reconnect(policy())).unwrap();
    client.handle.finish(endpoint);
    until(&mut server, &mut client, "closed", |_, client| {
        client.seen.contains(&Seen::Closed(endpoint, "ended by the peer".to_owned()))
    });
    assert_eq!((connected(&client, endpoint), losses(&client, endpoint).len()), (1, 0));
}

#[test]
fn a_connection_finished_just_before_its_loss_does_not_reconnect() {
    let (_folder, listener, mut client, endpoint) = unread(Limits::default());
    // The queue is not read, which delays the end of the connection.
    while client.handle.send(endpoint, &[7; 10_000]) == Outcome::Sent {}
    let (peer, _) = listener.accept().unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    // The queue has space, so a message is accepted until the node notices the end.
    until(&mut Side::new(), &mut client, "the end", |_, client| client.handle.send(endpoint, b"") == Outcome::Full);
    client.handle.finish(endpoint);
    assert_eq!(client.handle.send(endpoint, b""), Outcome::Closed);
    drop(peer);
    assert_eq!(client.until_closed(endpoint), "ended by the peer");
    assert_eq!((connected(&client, endpoint), losses(&client, endpoint).len()), (1, 0));
}
