//! Senders, which look their endpoint up once.

mod common;

use std::thread;

use common::{Seen, Side, connected, until};
use estafette_net::{Kind, Limits, Outcome};

#[test]
fn clones_in_several_threads_keep_the_order_of_each_thread() {
    const MESSAGES: u32 = 2_000;
    let schemes: &[&str] = if cfg!(feature = "tls") {
        &["tcp+msg", "unix+msg", "inproc+msg", "ws", "tls+msg"]
    } else {
        &["tcp+msg", "unix+msg", "inproc+msg", "ws"]
    };
    for scheme in schemes {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, to, _) = connected(&mut server, &mut client, &common::address(scheme, &folder));
        let sender = client.handle.sender(to);
        assert_eq!(sender.endpoint(), to);
        let threads = [0_u8, 1, 2].map(|thread| {
            let mut sender = sender.clone();
            thread::spawn(move || {
                for number in 0..MESSAGES {
                    let message = [&[thread][..], &number.to_be_bytes()].concat();
                    loop {
                        match sender.send(&message) {
                            Outcome::Sent | Outcome::Queued => break,
                            outcome => assert_eq!(outcome, Outcome::Full, "thread {thread}"),
                        }
                        thread::yield_now();
                    }
                }
            })
        });
        until(&mut server, &mut client, "all messages", |server, _| {
            server.messages(accepted).len() == 3 * MESSAGES as usize
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut next = [0; 3];
        for message in server.messages(accepted) {
            let (thread, number) = message.split_first().unwrap();
            let next = &mut next[usize::from(*thread)];
            assert_eq!(*number, u32::to_be_bytes(*next), "{scheme}: thread {thread}");
            *next += 1;
        }
    }
}

#[test]
fn its_outcomes_are_those_of_the_handle() {
    let mut limits = Limits::default();
    limits.message = 10;
    limits.queue = 1_000;
    let (mut server, mut client) = (Side::new(), Side::with(limits));
    let (accepted, to, _) = connected(&mut server, &mut client, "ws://127.0.0.1:0");
    let mut sender = client.handle.sender(to);
    assert_eq!(sender.send(&[0; 11]), Outcome::TooLarge);
    assert_eq!(server.handle.sender(to).send(b"foreign"), Outcome::ForeignEndpoint);
    assert_eq!(sender.send_text("text"), Outcome::Sent);
    until(&mut server, &mut client, "the text", |server, _| {
        server.seen.contains(&Seen::Message(accepted, Kind::Text, b"text".to_vec()))
    });
    // Nobody reads meanwhile.
    let outcome = loop {
        match sender.send(&[0; 10]) {
            Outcome::Sent | Outcome::Queued => {}
            other => break other,
        }
    };
    assert_eq!(outcome, Outcome::Full);
    until(&mut server, &mut client, "drained", |_, client| client.seen.contains(&Seen::Drained(to)));
    assert_eq!(sender.send(b"more"), Outcome::Sent);
    client.handle.close(to);
    assert_eq!(sender.send(b"late"), Outcome::Closed);
    assert_eq!(sender.send(b"later"), Outcome::Closed);
    // A sender of an endpoint that has ended.
    until(&mut server, &mut client, "closed", |_, client| {
        client.seen.contains(&Seen::Closed(to, "closed here".to_owned()))
    });
    assert_eq!(client.handle.sender(to).send(b"late"), Outcome::Closed);
}

#[test]
fn a_sender_of_a_datagram_socket_sends_to_its_peer_until_the_node_ends() {
    let (mut server, mut client) = (Side::new(), Side::new());
    let listener = server.handle.listen("udp://127.0.0.1:0").unwrap();
    let at = server.handle.local_address(listener).unwrap();
    let to = client.handle.connect(at.clone()).unwrap();
    let mut sender = client.handle.sender(to);
    assert_eq!(sender.send(b"datagram"), Outcome::Sent);
    until(&mut server, &mut client, "a datagram", |server, _| {
        server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"datagram"))
    });
    client.handle.close(to);
    assert_eq!(sender.send(b"late"), Outcome::Closed);
    // Also if the socket was not closed, but its node was dropped.
    let mut sender = client.handle.sender(client.handle.connect(at).unwrap());
    drop(client);
    assert_eq!(sender.send(b"late"), Outcome::Closed);
}
