//! A group's ring within one process.

use std::thread;
use std::time::Duration;

use estafette_ipc::group::{ClaimError, Interrupt, PublishError, Publisher, Recovery, record_len};
use estafette_ipc::{OpenError, WaitMode};

use self::common::group::{ALL, Group, collect, numbers, take};
use self::common::within_patience;

mod common;

#[test]
fn a_claim_contains_the_sent_messages() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    assert!(member.try_claim(ALL, ALL).unwrap().is_none());
    let sent: Vec<Vec<u8>> = (0..40u8).map(|len| vec![len; len.into()]).collect();
    publisher.send_batch(sent.iter().map(Vec::as_slice)).unwrap();
    let claim = member.claim(ALL, ALL).unwrap();
    assert_eq!((claim.count(), claim.ring()), (40, 0));
    assert_eq!(claim.bytes().len(), sent.iter().map(|message| record_len(message.len())).sum::<usize>());
    assert!(claim.messages().map(|message| message.data).eq(sent.iter()));
    claim.ack();
    assert!(member.try_claim(ALL, ALL).unwrap().is_none());
}

#[test]
fn a_claim_ends_at_its_limits() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    for number in 0..10 {
        publisher.send(&[number; 8]).unwrap();
    }
    assert_eq!(numbers(&take(&mut member, 3).unwrap()), [0, 1, 2]);
    let claim = member.claim(2 * record_len(8) + 15, ALL).unwrap();
    assert_eq!(claim.count(), 2);
    claim.ack();
    let claim = member.claim(0, ALL).unwrap();
    assert_eq!(claim.count(), 1, "at least one");
    claim.ack();
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [6, 7, 8, 9]);
}

#[test]
fn a_dropped_claim_is_claimed_again() {
    let group = Group::new(1, 4096, 2);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send(b"a").unwrap();
    drop(member.claim(ALL, ALL).unwrap());
    publisher.send(b"b").unwrap();
    assert_eq!(numbers(&take(&mut group.member(1), ALL).unwrap()), *b"b");
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), *b"a");
    assert!(group.control(0).is_drained());
}

#[test]
fn records_wrap_around_the_end_of_the_ring() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    for number in 0..200u8 {
        let message = vec![number; 1001 + usize::from(number)];
        publisher.try_send(&message).unwrap();
        assert_eq!(take(&mut member, ALL).unwrap(), [(0, message)]);
    }
}

#[test]
fn the_longest_message_fits_and_a_longer_one_does_not() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    let max = publisher.max_message();
    for _ in 0..3 {
        publisher.send(&vec![7; max]).unwrap();
        assert_eq!(publisher.try_send(b""), Err(PublishError::Full));
        assert_eq!(take(&mut member, ALL).unwrap()[0].1.len(), max);
    }
    assert_eq!(publisher.send(&vec![7; max + 1]), Err(PublishError::TooLong { len: max + 1, max }));
}

#[test]
fn a_loan_that_is_dropped_is_not_sent() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.reserve(8).unwrap().fill(1);
    assert!(take(&mut member, ALL).is_none());
    let mut loan = publisher.reserve(3).unwrap();
    loan.fill(2);
    loan.send();
    assert_eq!(take(&mut member, ALL).unwrap(), [(0, vec![2; 3])]);
}

#[test]
fn space_is_free_once_the_oldest_is_acknowledged() {
    let group = Group::new(1, 4096, 2);
    let mut publisher = group.publisher(0);
    let (mut first, mut second) = (group.member(0), group.member(1));
    for number in 0..4 {
        publisher.try_send(&[number; 1016]).unwrap();
    }
    let claim = first.claim(ALL, 1).unwrap();
    assert_eq!(numbers(&take(&mut second, 2).unwrap()), [1, 2]);
    assert_eq!(publisher.try_send(b"x"), Err(PublishError::Full), "the oldest is not acknowledged");
    claim.ack();
    for _ in 0..3 {
        publisher.try_send(&[9; 1016]).unwrap();
    }
    assert_eq!(publisher.try_send(b"x"), Err(PublishError::Full));
}

#[test]
fn a_batch_is_sent_as_far_as_there_is_space() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    let messages: Vec<_> = (0..6).map(|number| [number; 1000]).collect();
    assert_eq!(publisher.try_send_batch(messages.iter().map(|message| &message[..])), Ok(4));
    assert_eq!(publisher.try_send_batch(messages[4..].iter().map(|message| &message[..])), Ok(0));
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [0, 1, 2, 3]);
    let too_long = [0; 5000];
    assert_eq!(publisher.try_send_batch([&messages[4][..], &too_long]), Ok(1));
    assert!(publisher.try_send_batch([&too_long[..]]).is_err());
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [4]);
    assert_eq!(publisher.try_send_batch([]), Ok(0));
    assert_eq!(publisher.try_send_batch(messages.iter().map(|message| &message[..])), Ok(4));
    group.control(0).close();
    assert_eq!(publisher.try_send_batch([&messages[5][..]]), Err(PublishError::Closed));
}

#[test]
fn rings_take_turns() {
    let group = Group::new(3, 4096, 1);
    for ring in 0..3 {
        let mut publisher = group.publisher(ring);
        for _ in 0..2 {
            publisher.send(&[ring as u8]).unwrap();
        }
        publisher.close();
    }
    let mut member = group.member(0);
    let order: Vec<u8> = (0..6).flat_map(|_| numbers(&take(&mut member, 1).unwrap())).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    assert_eq!(member.claim(ALL, ALL).unwrap_err(), ClaimError::Closed);
}

#[test]
fn closed_is_reported_once_everything_is_acknowledged() {
    let group = Group::new(1, 4096, 2);
    let mut publisher = group.publisher(0);
    publisher.send(b"a").unwrap();
    publisher.close();
    assert!(matches!(
        Publisher::open(&group.rings[0], &group.bell, WaitMode::Block, Interrupt::new()),
        Err(OpenError::Closed)
    ));
    let (mut first, mut second) = (group.member(0), group.member(1));
    let claim = first.claim(ALL, ALL).unwrap();
    assert!(second.try_claim(ALL, ALL).unwrap().is_none(), "the first may still die");
    within_patience(|| {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| second.claim(ALL, ALL).unwrap_err());
            claim.ack();
            assert_eq!(waiting.join().unwrap(), ClaimError::Closed);
        });
    });
    assert_eq!(first.try_claim(ALL, ALL).unwrap_err(), ClaimError::Closed);
}

#[test]
fn a_ring_closed_by_the_supervisor_accepts_no_messages() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send(&[1; 4000]).unwrap();
    within_patience(|| {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| publisher.send(&[2; 4000]));
            group.control(0).close();
            assert_eq!(waiting.join().unwrap(), Err(PublishError::Closed));
        });
    });
    assert_eq!(take(&mut member, ALL).unwrap().len(), 1);
    assert_eq!(member.try_claim(ALL, ALL).unwrap_err(), ClaimError::Closed);
}

#[test]
fn a_new_publisher_continues() {
    let group = Group::new(1, 4096, 1);
    let mut member = group.member(0);
    for number in 0..100 {
        let mut publisher = group.publisher(0);
        publisher.send(&[number; 500]).unwrap();
        publisher.reserve(100).unwrap().fill(99);
        drop(publisher);
        assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [number]);
    }
}

#[test]
fn the_message_that_may_have_killed_a_member_is_delivered_alone() {
    let group = Group::new(1, 4096, 2);
    let mut publisher = group.publisher(0);
    for number in 0..6 {
        publisher.send(&[number]).unwrap();
    }
    let mut dead = group.member(0);
    dead.claim(ALL, 4).unwrap().progress(1);
    drop(dead);
    assert!(matches!(group.try_member(0), Err(OpenError::NotRecovered { member: 0 })));
    let recovered = group.control(0).recover(0, Recovery::Return);
    assert_eq!((recovered.returned, recovered.discarded), (3, 0));
    assert_eq!(group.control(0).recover(0, Recovery::Return).returned, 0, "only once");

    let mut member = group.member(1);
    assert_eq!(take(&mut member, ALL).unwrap(), [(1, vec![1])], "it may have died of this one");
    assert_eq!(take(&mut member, ALL).unwrap(), [(0, vec![2]), (0, vec![3])]);
    assert_eq!(take(&mut group.member(0), ALL).unwrap(), [(0, vec![4]), (0, vec![5])]);
    assert!(group.control(0).is_drained());
    assert_eq!(group.control(0).depth(), Default::default());
}

#[test]
fn each_message_of_a_batch_that_may_have_killed_a_member_is_delivered_alone() {
    let group = Group::new(1, 4096, 1);
    let mut publisher = group.publisher(0);
    for number in 0..4 {
        publisher.send(&[number]).unwrap();
    }
    let die = |messages| {
        let mut dead = group.member(0);
        let seen: Vec<_> = dead.claim(ALL, messages).unwrap().messages().map(|message| message.attempts).collect();
        drop(dead);
        group.control(0).recover(0, Recovery::Return);
        seen
    };
    assert_eq!(die(3), [0, 0, 0]);
    assert_eq!(die(ALL), [1], "a message with attempts is delivered alone");
    let mut member = group.member(0);
    let rest: Vec<_> = std::iter::from_fn(|| take(&mut member, ALL)).collect();
    assert_eq!(rest, [vec![(2, vec![0])], vec![(1, vec![1])], vec![(1, vec![2])], vec![(0, vec![3])]]);
    assert!(group.control(0).is_drained());
}

#[test]
fn attempts_are_counted() {
    let group = Group::new(1, 4096, 1);
    group.publisher(0).send(&[7]).unwrap();
    for attempts in 0..300u32 {
        let mut member = group.member(0);
        let claim = member.claim(ALL, ALL).unwrap();
        assert_eq!(claim.messages().next().unwrap().attempts, attempts.min(255) as u8);
        drop(member);
        assert_eq!(group.control(0).recover(0, Recovery::Return).returned, 1);
    }
}

#[test]
fn discarded_messages_are_counted() {
    let group = Group::new(1, 4096, 1);
    let mut publisher = group.publisher(0);
    publisher.send_batch([&b"a"[..], b"b", b"c"]).unwrap();
    let mut dead = group.member(0);
    dead.claim(ALL, ALL).unwrap().progress(1);
    drop(dead);
    assert_eq!(group.control(0).recover(0, Recovery::Discard).discarded, 2);
    assert_eq!(group.control(0).counters().discarded, 2);
    assert!(group.control(0).is_drained());
    assert!(take(&mut group.member(0), ALL).is_none());
}

#[test]
fn a_member_that_dies_again_and_again_loses_nothing() {
    let group = Group::new(1, 4096, 2);
    let mut publisher = group.publisher(0);
    let mut other = group.member(1);
    for number in 0..20 {
        publisher.send(&[number]).unwrap();
        let mut dead = group.member(0);
        drop(dead.claim(ALL, ALL).unwrap());
        drop(dead);
        group.control(0).recover(0, Recovery::Return);
        if number == 9 {
            // Another member claims what the dead member left, and keeps it.
            drop(other.try_claim(ALL, ALL).unwrap().unwrap());
        }
    }
    let mut member = group.member(0);
    let mut seen: Vec<u8> = std::iter::from_fn(|| take(&mut member, ALL)).flat_map(|taken| numbers(&taken)).collect();
    seen.extend(numbers(&take(&mut other, ALL).unwrap()));
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<u8>>());
    assert!(group.control(0).is_drained());
}

#[test]
fn counters_count_published_and_acknowledged_messages() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send_batch([&[1; 10][..], &[2; 20], &[3; 30]]).unwrap();
    take(&mut member, 2).unwrap();
    let counters = group.control(0).counters();
    assert_eq!((counters.published, counters.published_bytes), (3, 60));
    assert_eq!((counters.acked, counters.acked_bytes), (2, 30));
    let depth = group.control(0).depth();
    assert_eq!((depth.messages, depth.bytes), (1, 40));
}

#[test]
fn the_head_passes_a_tail_once_all_messages_before_it_are_acknowledged() {
    let group = Group::new(1, 4096, 2);
    let (mut publisher, mut first, mut second) = (group.publisher(0), group.member(0), group.member(1));
    publisher.send_batch([&b"a"[..], b"b"]).unwrap();
    let before = group.control(0).positions();
    assert_eq!((before.head, before.tail), (0, 2 * record_len(1) as u64));
    let claim = first.claim(ALL, 1).unwrap();
    take(&mut second, ALL).unwrap();
    publisher.send(b"c").unwrap();
    assert_eq!(group.control(0).positions().head, 0, "the first message is claimed");
    claim.ack();
    let after = group.control(0).positions();
    assert_eq!((after.head, after.tail), (before.tail, 3 * record_len(1) as u64));
}

#[test]
fn an_interrupt_wakes_waiting_ends() {
    for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Block] {
        let group = Group { wait, ..Group::new(1, 4096, 1) };
        let (mut publisher, mut member) = (group.publisher(0), group.member(0));
        within_patience(|| {
            thread::scope(|scope| {
                let claiming = scope.spawn(|| member.claim(ALL, ALL).map(drop));
                thread::sleep(Duration::from_millis(5));
                group.interrupt.set();
                assert_eq!(claiming.join().unwrap(), Err(ClaimError::Interrupted));
                group.interrupt.clear();
                publisher.send(&[0; 4000]).unwrap();
                let sending = scope.spawn(|| publisher.send(&[0; 4000]));
                thread::sleep(Duration::from_millis(5));
                group.interrupt.set();
                assert_eq!(sending.join().unwrap(), Err(PublishError::Interrupted));
            });
        });
        assert!(member.claim(ALL, ALL).is_err());
        assert!(take(&mut member, ALL).is_some(), "try_claim ignores the interrupt");
    }
}

/// Several publishers and members, with rings that are often full and often empty. Each message is
/// delivered once, and each member gets each publisher's messages in order.
#[test]
fn each_message_goes_to_one_member_in_order() {
    for wait in [WaitMode::Adaptive, WaitMode::Block] {
        within_patience(|| compete(&Group { wait, ..Group::new(2, 4096, 3) }, 20_000));
    }
}

fn compete(group: &Group, count: u32) {
    let seen = thread::scope(|scope| {
        for ring in 0..group.rings.len() {
            let mut publisher = group.publisher(ring);
            scope.spawn(move || {
                for number in 0..count {
                    let message = [ring as u32, number].map(u32::to_le_bytes).concat();
                    publisher.send(&message.repeat(1 + number as usize % 9)).unwrap();
                }
                publisher.close();
            });
        }
        let members: Vec<_> = (0..3).map(|index| group.member(index)).collect();
        let members: Vec<_> = members.into_iter().map(|member| scope.spawn(|| collect(member))).collect();
        members.into_iter().flat_map(|member| member.join().unwrap()).collect::<Vec<_>>()
    });
    let mut seen = seen;
    seen.sort_unstable();
    let all = (0..group.rings.len() as u32).flat_map(|ring| (0..count).map(move |number| (ring, number)));
    assert!(seen.into_iter().eq(all));
}

#[test]
fn a_member_claims_more_before_it_acknowledges() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send_batch([&[1; 1000][..], &[2; 1000], &[3; 1000]]).unwrap();
    for number in 1..=2 {
        let claim = member.try_claim(ALL, 1).unwrap().unwrap();
        assert_eq!(claim.messages().next().unwrap().data, [number; 1000]);
        claim.ack_later();
    }
    assert!(member.try_claim(ALL, 1).unwrap().is_none(), "two are not acknowledged");
    assert_eq!(member.claim(ALL, 1).map(drop), Err(ClaimError::Unacknowledged));
    assert_eq!(group.control(0).counters().acked, 0);
    publisher.try_send(&[4; 1000]).unwrap();
    assert!(matches!(publisher.try_send(&[5; 1000]), Err(PublishError::Full)), "their space is not released");
    assert!(member.ack_oldest());
    assert_eq!(group.control(0).counters().acked_bytes, 1000);
    publisher.try_send(&[5; 1000]).unwrap();
    assert_eq!(numbers(&take(&mut member, ALL).unwrap()), [3, 4, 5]);
    assert!(!group.control(0).is_drained(), "the second claim is not acknowledged");
    assert!(member.ack_oldest());
    assert!(!member.ack_oldest());
    assert!(group.control(0).is_drained());
    assert!(member.try_claim(ALL, 1).unwrap().is_none());
}

#[test]
fn claims_that_a_dead_member_had_not_acknowledged_are_recovered() {
    for (recovery, counts) in [(Recovery::Return, (4, 0)), (Recovery::Discard, (0, 4))] {
        let group = Group::new(1, 4096, 2);
        let (mut publisher, mut dead) = (group.publisher(0), group.member(0));
        publisher.send_batch([&b"a"[..], b"b", b"c", b"d", b"e"]).unwrap();
        for _ in 0..2 {
            dead.try_claim(ALL, 2).unwrap().unwrap().ack_later();
        }
        drop(dead);
        let recovered = group.control(0).recover(0, recovery);
        assert_eq!((recovered.returned, recovered.discarded), counts);
        let (mut member, mut other) = (group.member(0), group.member(1));
        let mut seen = Vec::new();
        while let Some(claim) = other.try_claim(ALL, 1).unwrap() {
            seen.extend(claim.messages().map(|message| message.data[0]));
            claim.ack_later();
        }
        // The restarted member gets the rest, while another one still has parts of what it left.
        seen.extend(take(&mut member, 1).iter().flat_map(|some| numbers(some)));
        while other.ack_oldest() {}
        seen.extend(std::iter::from_fn(|| take(&mut member, 1)).flat_map(|some| numbers(&some)));
        seen.sort_unstable();
        assert_eq!(seen, if recovery == Recovery::Return { &b"abcde"[..] } else { b"e" });
        assert!(group.control(0).is_drained());
    }
}

#[test]
fn a_ring_with_unacknowledged_messages_is_not_closed() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0));
    publisher.send(b"a").unwrap();
    publisher.close();
    member.claim(ALL, ALL).unwrap().ack_later();
    assert!(member.try_claim(ALL, ALL).unwrap().is_none());
    assert!(member.ack_oldest());
    assert!(matches!(member.claim(ALL, ALL), Err(ClaimError::Closed)));
}

#[test]
fn copied_messages_are_acknowledged_at_once() {
    let group = Group::new(1, 4096, 1);
    let (mut publisher, mut member) = (group.publisher(0), group.member(0).with_copies());
    publisher.send(b"a").unwrap();
    member.claim(ALL, ALL).unwrap().ack_later();
    assert_eq!(group.control(0).counters().acked, 1);
    assert!(!member.ack_oldest());
}
