//! Batches of short and long messages.

mod common;

use common::{Seen, Side, connected};
use estafette_net::{Event, Node, Outcome};

/// Some that are collected, and some that are too long for it.
const LENGTHS: [usize; 9] = [10, 20_000, 5, 16_383, 16_384, 1, 100_000, 0, 3];

fn message(number: usize) -> Vec<u8> {
    let length = LENGTHS[number % LENGTHS.len()];
    (0..length).map(|at| (at + number) as u8).collect()
}

#[test]
fn short_and_long_messages_keep_their_order() {
    for scheme in ["tcp+msg", "unix+msg", "inproc+msg", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (_, to, _) = connected(&mut server, &mut client, &common::address(scheme, &folder));
        let mut batch = client.handle.batch(to);
        for number in 0..18 {
            let message = message(number);
            assert!(batch.push(&message).is_accepted(), "{scheme}");
            assert!(message.len() < 16_384 || batch.is_empty(), "{scheme}: a long message is not collected");
        }
        assert!(batch.flush().is_accepted());
        let mut arrived = Vec::new();
        while arrived.len() < 18 {
            client.step();
            server.step();
            arrived = server
                .seen
                .iter()
                .filter_map(|seen| match seen {
                    Seen::Message(_, _, message) => Some(message.clone()),
                    _ => None,
                })
                .collect();
        }
        assert!(arrived.into_iter().eq((0..18).map(message)), "{scheme}");
    }
}

#[test]
fn what_a_full_connection_did_not_accept_is_accepted_later() {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    let to = handle.connect(handle.local_address(listener).unwrap()).unwrap();
    let mut batch = handle.batch(to);
    let (mut pushed, mut arrived, mut refused) = (0, 0, 0);
    while arrived < 500 {
        while pushed < 500 {
            match batch.push(&message(pushed)) {
                Outcome::Full => {
                    refused += 1;
                    break;
                }
                outcome => assert!(outcome.is_accepted(), "{outcome:?}"),
            }
            pushed += 1;
        }
        if pushed == 500 {
            // Full again, or everything is on its way.
            let _ = batch.flush();
        }
        node.poll(Some(common::PATIENCE), |event| match event {
            Event::Message(_, received) => {
                assert!(*received == *message(arrived), "message {arrived}");
                arrived += 1;
            }
            Event::Closed { reason, .. } => panic!("{reason}"),
            _ => {}
        })
        .unwrap();
    }
    assert!(refused > 0, "the queue was never full");
}

#[test]
fn a_flush_says_whether_a_long_message_is_still_queued() {
    for scheme in [
        "tcp+msg",
        "ws",
        #[cfg(feature = "tls")]
        "tls+msg",
    ] {
        let (mut server, mut client) = (Side::new(), Side::new());
        let (_, to, _) = connected(&mut server, &mut client, &format!("{scheme}://127.0.0.1:0"));
        let mut batch = client.handle.batch(to);
        let mut pushed = 1;
        while batch.push(&[7; 100_000]) == Outcome::Sent {
            pushed += 1;
        }
        assert_eq!((batch.len(), batch.flush()), (0, Outcome::Queued), "{scheme}");
        let drained = |seen: &[Seen]| seen.contains(&Seen::Drained(to));
        while !drained(&client.seen) {
            client.step();
            server.step();
        }
        assert_eq!(batch.flush(), Outcome::Sent, "{scheme}");
        let messages = |seen: &[Seen]| seen.iter().filter(|seen| matches!(seen, Seen::Message(..))).count();
        server.step_until("all messages", |seen| messages(seen) == pushed);
    }
}

#[test]
fn a_long_message_to_nobody_is_refused() {
    let (one, other) = (Side::new(), Side::new());
    let foreign = other.handle.listen("tcp+msg://127.0.0.1:0").unwrap();
    assert_eq!(one.handle.batch(foreign).push(&[0; 20_000]), Outcome::ForeignEndpoint);
    let mut server = Side::new();
    let mut client = Side::new();
    let (_, to, _) = connected(&mut server, &mut client, "tcp+msg://127.0.0.1:0");
    let mut batch = client.handle.batch(to);
    client.handle.close(to);
    assert_eq!(batch.push(&[0; 20_000]), Outcome::Closed);
    // From then on nothing is collected.
    assert_eq!(batch.push(b"short"), Outcome::Closed);
    assert!(batch.is_empty());
}
