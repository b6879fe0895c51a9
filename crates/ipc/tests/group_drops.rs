//! A group's ring within one process, whose publisher drops messages, and members that copy them.

use std::thread;

use estafette_ipc::group::{Recovery, record_len};
use estafette_ipc::{OpenError, WaitMode};

use self::common::group::{ALL, Group, collect, numbers, take};
use self::common::within_patience;

mod common;

#[test]
fn the_oldest_is_dropped_for_the_newest() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    let mut older = 0;
    for number in 0..100u8 {
        let dropped = publisher.send_dropping_oldest(&[number; 1000]).unwrap();
        assert!(!dropped.this);
        older += dropped.older;
    }
    assert_eq!(older, 96);
    assert_eq!(group.control(0).counters().dropped, 96);
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [96, 97, 98, 99]);
}

#[test]
fn claimed_messages_are_not_dropped() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send(&[0; 1000]).unwrap();
    let claim = member.claim(ALL, ALL).unwrap();
    let dropped: Vec<bool> =
        (1..=10).map(|number| publisher.send_dropping_oldest(&[number; 1000]).unwrap().this).collect();
    assert_eq!(dropped.iter().filter(|this| **this).count(), 7);
    assert_eq!(claim.messages().next().unwrap().data, [0; 1000]);
    claim.ack();
    let left = numbers(&take(&mut member, ALL).unwrap());
    assert_eq!(left, [2, 3], "the newer half");
}

#[test]
fn a_member_that_copies_gets_the_newest_messages_after_its_claim() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0).with_copies());
    for number in 0..4 {
        publisher.try_send(&[number; 1000]).unwrap();
    }
    let claim = member.claim(ALL, 1).unwrap();
    for number in 4..100 {
        let dropped = publisher.send_dropping_oldest(&[number; 1000]).unwrap();
        assert!(!dropped.this, "{number}");
    }
    assert_eq!((claim.count(), claim.ring()), (1, 0));
    assert_eq!(claim.messages().next().unwrap().data, [0; 1000], "it is not overwritten");
    claim.ack();
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [96, 97, 98, 99]);
    let counters = group.control(0).counters();
    assert_eq!((counters.published, counters.acked, counters.acked_bytes), (100, 5, 5000));
    assert_eq!((counters.dropped, counters.dropped_new), (95, 0));
}

#[test]
fn members_that_copy_do_not_block_each_other() {
    let group = Group::new(1, 4096, 3);
    let mut publisher = group.publisher(0);
    let mut members = [0, 1, 2].map(|index| group.member(index).with_copies());
    for number in 0..4 {
        publisher.try_send(&[number; 1000]).unwrap();
    }
    // They claim in order, and the first one keeps its claim longest.
    members.iter_mut().for_each(|member| drop(member.claim(ALL, 1).unwrap()));
    for number in 4..20 {
        assert!(!publisher.send_dropping_oldest(&[number; 1000]).unwrap().this);
    }
    let copied = members.each_mut().map(|member| take(member, ALL).unwrap());
    assert_eq!(copied.map(|messages| numbers(&messages)), [[0], [1], [2]]);
    assert_eq!(numbers(&take(&mut members[1], ALL).unwrap()), [16, 17, 18, 19]);
    assert!(group.control(0).is_drained());
}

#[test]
fn a_copied_claim_that_is_dropped_is_claimed_again() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0).with_copies());
    publisher.send_batch([&b"a"[..], b"b"]).unwrap();
    drop(member.claim(ALL, ALL).unwrap());
    publisher.send(b"c").unwrap();
    assert!(!group.control(0).is_drained());
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), *b"ab");
    assert_eq!(numbers(&take(&mut member, 1).unwrap()), *b"c");
    assert!(group.control(0).is_drained());
}

#[test]
fn copies_wrap_around_the_end_of_the_ring_and_end_at_their_limits() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0).with_copies());
    for number in 0..200u8 {
        let messages = [vec![number; 701 + usize::from(number)], vec![number; 9], Vec::new()];
        publisher.send_batch(messages.iter().map(Vec::as_slice)).unwrap();
        let claim = member.claim(record_len(messages[0].len()) + 15, ALL).unwrap();
        assert_eq!((claim.count(), claim.bytes().len()), (1, record_len(messages[0].len())));
        assert_eq!(claim.messages().next().unwrap().data, messages[0]);
        claim.ack();
        assert_eq!(take(&mut member, ALL).unwrap(), [(0, messages[1].clone()), (0, Vec::new())]);
    }
}

#[test]
fn messages_that_a_dead_member_had_copied_are_lost_and_counted() {
    for recovery in [Recovery::Discard, Recovery::Return] {
        let group = Group::new(1, 4096, 1);
        let mut publisher = group.publisher(0);
        publisher.send_batch([&b"a"[..], b"b", b"c", b"d"]).unwrap();
        let mut dead = group.member(0).with_copies();
        dead.claim(ALL, 3).unwrap().progress(1);
        drop(dead);
        assert!(matches!(group.try_member(0), Err(OpenError::NotRecovered { member: 0 })));
        let recovered = group.control(0).recover(0, recovery);
        assert_eq!((recovered.returned, recovered.discarded), (0, 2));
        assert_eq!(group.control(0).recover(0, recovery).discarded, 0, "only once");
        let counters = group.control(0).counters();
        assert_eq!((counters.acked, counters.discarded), (1, 2));
        assert_eq!(group.control(0).depth().messages, 1);
        assert_eq!(numbers(&take(&mut group.member(0), ALL).unwrap()), *b"d");
    }
}

#[test]
fn a_member_that_copies_claims_returned_messages() {
    let group = Group::new(1, 4096, 2);
    let (mut publisher, mut dead) = (group.publisher(0), group.member(0));
    publisher.send_batch([&b"a"[..], b"b", b"c"]).unwrap();
    drop(dead.claim(ALL, 2).unwrap());
    drop(dead);
    group.control(0).recover(0, Recovery::Return);
    let mut member = group.member(1).with_copies();
    let rest: Vec<_> = std::iter::from_fn(|| take(&mut member, ALL)).collect();
    assert_eq!(rest, [vec![(1, b"a".to_vec())], vec![(1, b"b".to_vec())], vec![(0, b"c".to_vec())]]);
    assert!(group.control(0).is_drained());
}

#[test]
fn a_message_that_is_dropped_for_lack_of_space_is_counted() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    let sent: Vec<bool> = (0..6).map(|number| publisher.send_or_drop(&[number; 1000]).unwrap()).collect();
    assert_eq!(sent, [true, true, true, true, false, false]);
    assert_eq!(group.control(0).counters().dropped_new, 2);
    let claim = member.claim(ALL, ALL).unwrap();
    assert!(publisher.send_dropping_oldest(&[6; 1000]).unwrap().this);
    claim.ack();
    let counters = group.control(0).counters();
    assert_eq!((counters.published, counters.dropped, counters.dropped_new), (4, 0, 3));
}

/// A publisher that never pauses overtakes members that copy. Each message is either dropped, or
/// delivered whole, once and in order.
#[test]
fn members_that_are_overtaken_get_no_torn_message() {
    for wait in [WaitMode::Adaptive, WaitMode::Block] {
        within_patience(|| overtake(&Group { wait, ..Group::new(1, 4096, 3) }, 200_000));
    }
}

fn overtake(group: &Group, count: u32) {
    let mut dropped = 0;
    let seen = thread::scope(|scope| {
        let members: Vec<_> = (0..3).map(|index| group.member(index).with_copies()).collect();
        let members: Vec<_> = members.into_iter().map(|member| scope.spawn(|| collect(member))).collect();
        let mut publisher = group.publisher(0);
        for number in 0..count {
            let message = [0, number].map(u32::to_le_bytes).concat().repeat(1 + number as usize % 9);
            let one = publisher.send_dropping_oldest(&message).unwrap();
            dropped += one.older + u64::from(one.this);
        }
        publisher.close();
        members.into_iter().flat_map(|member| member.join().unwrap()).collect::<Vec<_>>()
    });
    let mut numbers: Vec<u32> = seen.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "each is delivered once");
    assert_eq!(numbers.len() as u64 + dropped, u64::from(count));
    let counters = group.control(0).counters();
    assert_eq!(counters.acked, numbers.len() as u64);
    assert_eq!(counters.dropped + counters.dropped_new, dropped);
    assert!(group.control(0).is_drained());
}
