//! Functions in the harness: which messages they send, in which order, and what happens when the
//! host refuses one.

use std::panic::{catch_unwind, AssertUnwindSafe};

use estafette_guest::testing::{sends_of, Harness, Sent};
use estafette_guest::{Outgoing, Outputs, SendError};

fn to_topic_0(messages: &[Vec<u8>]) -> Sent {
    messages.iter().map(|message| (0, message.clone())).collect()
}

/// Messages of lengths around the padding, the copy limit, and the capacity of the arena.
fn messages() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 7, 8, 9, 16 * 1024, 16 * 1024 + 1, 3, 64 * 1024, 100_000, 5];
    let mut all: Vec<_> = lengths.iter().map(|&length| vec![b'a'; length]).collect();
    all.extend((0..5_000_u32).map(|number| number.to_le_bytes().to_vec()));
    all
}

#[test]
fn forwarded_messages_arrive_unchanged_and_in_order() {
    let mut harness = Harness::new(|message, outputs| outputs.send(0, message));
    harness.batch(&messages());
    assert_eq!(harness.take_sent(), to_topic_0(&messages()));
}

#[test]
fn new_and_forwarded_messages_arrive_in_order() {
    let mut harness = Harness::new(|message: &[u8], outputs: &mut Outputs| {
        outputs.send(0, message);
        outputs.send(1, &message.to_ascii_uppercase());
    })
    .topics(2);
    harness.batch(&messages());
    let expected: Sent =
        messages().iter().flat_map(|message| [(0, message.clone()), (1, message.to_ascii_uppercase())]).collect();
    assert_eq!(harness.take_sent(), expected);
}

#[test]
fn state_is_kept_between_batches() {
    let mut count = 0_u8;
    let mut harness = Harness::new(move |_, outputs| {
        count += 1;
        outputs.send(0, &[count]);
    });
    harness.batch(&[b"a", b"b"]);
    harness.message(b"c");
    assert_eq!(harness.take_sent(), to_topic_0(&[vec![1], vec![2], vec![3]]));
    assert_eq!(harness.take_sent(), []);
}

#[test]
fn try_send_returns_the_hosts_error_and_keeps_the_order() {
    let mut harness = Harness::new(|message, outputs| {
        outputs.send(0, b"before");
        assert_eq!(outputs.try_send(1, message), Err(SendError::NoSuchTopic));
        assert_eq!(outputs.try_send(0, b"12345678901"), Err(SendError::TooLong));
        assert_eq!(outputs.try_send(0, message), Ok(()));
    })
    .max_message(10);
    harness.message(b"message");
    assert_eq!(harness.take_sent(), to_topic_0(&[b"before".to_vec(), b"message".to_vec()]));
}

#[test]
fn a_refused_send_panics_with_the_reason() {
    let mut harness = Harness::new(|message, outputs| outputs.send(7, message));
    let panic = catch_unwind(AssertUnwindSafe(|| harness.message(b"x"))).expect_err("the topic does not exist");
    let text = panic.downcast_ref::<String>().expect("the panic has a text");
    assert!(text.contains("no output topic has this index"), "{text}");
}

#[test]
fn replies_go_to_the_stream() {
    let mut harness = Harness::new(|message, outputs| outputs.reply(message));
    harness.message(b"pong");
    assert_eq!(harness.take_replies(), [b"pong".to_vec()]);
    assert_eq!(harness.take_sent(), []);

    let mut harness = Harness::new(|message, _| assert_eq!(estafette_guest::reply(message), Err(SendError::NoStream)));
    harness = harness.without_stream();
    harness.message(b"pong");
}

#[test]
fn a_list_with_a_wrong_topic_is_not_sent_at_all() {
    let sent = sends_of(|| {
        let list = [Outgoing::new(0, b"right"), Outgoing::new(1, b"wrong")];
        assert_eq!(estafette_guest::send_all(&list), Err(SendError::NoSuchTopic));
        assert_eq!(estafette_guest::send_all(&list[..1]), Ok(()));
    });
    assert_eq!(sent, to_topic_0(&[b"right".to_vec()]));
}
