//! Loom models of a group's ring. Loom runs every interleaving, and every value that each load may
//! return, for a few messages. A lost wake-up is a deadlock here, since the modelled futex has no
//! timeout.

#![allow(unsafe_code)]

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::claims::{ClaimedRange, Next};
use super::copies::Copied;
use super::layout::RingControls;
use super::recovery::Recovery;
use super::ring::{Limits, Ring};
use crate::bell::Bell;
use crate::memory::Memory;
use crate::record::{HEADER, Header, record_len};
use crate::sync::Ordering;

const RECORD: u64 = record_len(1) as u64;
const ONE: Limits = Limits { bytes: 0, messages: 1 };
const MEMBERS: usize = 2;

fn ring(records: u64) -> Ring {
    Ring::new(Memory::new(RingControls::new(MEMBERS), (records * RECORD) as usize, 0), MEMBERS)
}

/// Publishes a message of one byte as number `index`. The ring must have space for it.
fn publish(ring: &Ring, index: u64) {
    let at = index * RECORD;
    // SAFETY: the ring lives; loom verifies the rest.
    let mut bytes = unsafe { ring.memory().bytes_mut(at + HEADER as u64, 1) };
    bytes[0] = index as u8 + 1;
    drop(bytes);
    ring.set_header(at, Header::new(1));
    ring.publish(at + RECORD, 1, 1);
}

/// Checks the claimed message, and returns its number.
fn read(ring: &Ring, range: &ClaimedRange) -> u64 {
    // SAFETY: the ring lives; loom verifies the rest.
    let byte = unsafe { ring.memory().bytes(range.from + HEADER as u64, 1) }[0];
    assert_eq!(u64::from(byte), range.from / RECORD + 1);
    range.from / RECORD
}

/// Claims and acknowledges the next message, if there is one.
fn take(ring: &Ring, member: usize) -> Option<u64> {
    let mut headers = Vec::new();
    let returned = ring.claim_returned(member, ONE, &mut headers).unwrap();
    let range = returned.or_else(|| ring.claim_next(member, ONE, &mut headers).unwrap())?;
    let number = read(ring, &range);
    ring.ack(range, &headers);
    Some(number)
}

/// The length of a record that is copied while it may be written. Its payload is two words.
const LONG: u64 = record_len(16) as u64;

/// Publishes message number `index`, whose words contain that number. The ring must have space for
/// it.
fn publish_words(ring: &Ring, index: u64) {
    let at = index * LONG;
    ring.set_header(at, Header::new(16));
    for word in [8, 16] {
        ring.memory().word(at + word).store(index + 1, Ordering::Relaxed);
    }
    ring.publish(at + LONG, 1, 16);
}

/// Publishes message number `index`, and drops the oldest if there is no space. False if a member's
/// claim prevents it.
fn publish_dropping_oldest(ring: &Ring, index: u64) -> bool {
    let has_space = || (index + 1) * LONG - ring.head_to_overwrite() <= ring.capacity();
    if !has_space() {
        ring.release();
    }
    if !has_space()
        && let Some(range) = ring.claim_next(ring.producer(), ONE, &mut Vec::new()).unwrap()
    {
        ring.ack(range, &[]);
    }
    let has_space = has_space();
    if has_space {
        publish_words(ring, index);
    }
    has_space
}

/// Claims and acknowledges the next message. Returns its number.
fn claim_words(ring: &Ring, member: usize) -> Option<u64> {
    let mut headers = Vec::new();
    let range = ring.claim_next(member, ONE, &mut headers).unwrap()?;
    ring.ack(range, &headers);
    Some(range.from / LONG)
}

/// Copies the next message. Returns its number.
fn copy(ring: &Ring, member: usize) -> Option<u64> {
    let (mut headers, mut copied) = (Vec::new(), Copied::default());
    if !ring.copy_next(member, ONE, &mut headers, &mut copied).unwrap() {
        return None;
    }
    let words: Vec<u64> = copied.bytes().as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    assert_eq!((words.len(), words[0]), (3, Header::new(16).word()));
    assert_eq!(words[1], words[2], "torn");
    ring.ack_copies(member, &headers);
    Some(words[1] - 1)
}

fn model(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Two members claim and acknowledge at the same time. Each message goes to one of them, and the
/// head ends after both.
#[test]
fn each_message_is_claimed_once_and_released() {
    model(3, || {
        let ring = ring(2);
        (0..2).for_each(|index| publish(&ring, index));
        let other = ring.clone();
        let taking = thread::spawn(move || take(&other, 1));
        let ours = take(&ring, 0);
        let theirs = taking.join().unwrap();
        // The member that loses the exchange tries again, so both get one.
        let mut taken = [ours.unwrap(), theirs.unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert_eq!(ring.head(), 2 * RECORD);
    });
}

/// The producer overwrites only released space: loom reports a write to bytes that a member reads.
#[test]
fn only_released_space_is_overwritten() {
    model(2, || {
        let ring = ring(1);
        publish(&ring, 0);
        let member = ring.clone();
        let taking = thread::spawn(move || {
            assert_eq!(take(&member, 0), Some(0));
            while take(&member, 0).is_none() {
                thread::yield_now();
            }
        });
        while ring.head() < RECORD {
            ring.sleep_for_space(RECORD, || false);
        }
        publish(&ring, 1);
        taking.join().unwrap();
        assert_eq!(ring.head(), 2 * RECORD);
    });
}

/// A member acknowledges its first claim while it has a second. The space of the second is not
/// overwritten.
#[test]
fn the_space_of_a_second_claim_is_not_overwritten() {
    model(2, || {
        let ring = ring(2);
        (0..2).for_each(|index| publish(&ring, index));
        let member = ring.clone();
        let taking = thread::spawn(move || {
            let mut claim = || {
                let mut headers = Vec::new();
                let range = member.claim_next(0, ONE, &mut headers).unwrap().unwrap();
                (range, headers)
            };
            let (first, second) = (claim(), claim());
            assert_eq!(read(&member, &first.0), 0);
            member.ack(first.0, &first.1);
            assert_eq!(read(&member, &second.0), 1);
            member.ack(second.0, &second.1);
        });
        for index in 0..2 {
            while ring.head() < (index + 1) * RECORD {
                ring.sleep_for_space((index + 1) * RECORD, || false);
            }
            publish(&ring, index + 2);
        }
        taking.join().unwrap();
        assert_eq!(ring.head(), 2 * RECORD);
    });
}

/// A member that sleeps is woken by a published message.
#[test]
fn a_sleeping_member_is_woken() {
    model(3, || {
        let (ring, bell) = (ring(1), Arc::new(Bell::new(MEMBERS)));
        let (member, their_bell) = (ring.clone(), bell.clone());
        let taking = thread::spawn(move || {
            while take(&member, 0).is_none() {
                their_bell.sleep(0, || member.has_news(member.returns()));
            }
        });
        publish(&ring, 0);
        bell.notify_one();
        taking.join().unwrap();
    });
}

/// A member that claims only part of the messages wakes the next.
#[test]
fn a_member_that_leaves_messages_wakes_the_next() {
    model(2, || {
        let (ring, bell) = (ring(2), Arc::new(Bell::new(MEMBERS)));
        let members: Vec<_> = (0..MEMBERS)
            .map(|index| {
                let (ring, bell) = (ring.clone(), bell.clone());
                thread::spawn(move || {
                    let mut headers = Vec::new();
                    while ring.claim_next(index, ONE, &mut headers).unwrap().is_none() {
                        bell.sleep(index, || ring.has_messages(0));
                    }
                    if ring.has_messages(0) {
                        bell.notify_one();
                    }
                })
            })
            .collect();
        (0..2).for_each(|index| publish(&ring, index));
        bell.notify_one();
        members.into_iter().for_each(|member| member.join().unwrap());
    });
}

/// The point at which a member dies.
#[derive(Clone, Copy)]
enum Death {
    /// After it has written its intent.
    Intent,
    /// After it has moved the claim word, before it marks its slot.
    Exchanged,
}

/// Claims as `claim_next` does, up to the given point.
fn die(ring: &Ring, member: usize, record: u64, death: Death) {
    let (next, from, tail) = ring.next().unwrap();
    if from == tail {
        return;
    }
    let slot = ring.own_slots(member).start;
    let state = ring.slots()[slot].state();
    ring.slots()[slot].intend(state, member, from, from + record);
    ring.confirm(next, from);
    if let Death::Exchanged = death {
        let _ = ring.exchange(next, Next::new(from + record, slot));
    }
}

/// A member dies and is recovered while another claims. No message is lost, none is delivered
/// twice, and all space is released.
#[test]
fn messages_of_a_dead_member_are_delivered_again() {
    for death in [Death::Intent, Death::Exchanged] {
        model(2, move || {
            let ring = ring(2);
            (0..2).for_each(|index| publish(&ring, index));
            let (dying, other) = (ring.clone(), ring.clone());
            let living = thread::spawn(move || [take(&other, 1), take(&other, 1)]);
            die(&dying, 0, RECORD, death);
            let recovered = ring.recover(0, Recovery::Return);
            let mut taken: Vec<u64> = living.join().unwrap().into_iter().flatten().collect();
            assert!(recovered.returned <= 1 && recovered.discarded == 0 && recovered.violations == 0);
            while let Some(number) = take(&ring, 0) {
                taken.push(number);
            }
            taken.sort_unstable();
            assert_eq!(taken, [0, 1]);
            assert_eq!(ring.head(), 2 * RECORD);
        });
    }
}

/// Two members compete for a returned message: one gets it.
#[test]
fn a_returned_message_is_claimed_once() {
    model(3, || {
        let ring = ring(1);
        publish(&ring, 0);
        die(&ring, 0, RECORD, Death::Exchanged);
        assert_eq!(ring.recover(0, Recovery::Return).returned, 1);
        let other = ring.clone();
        let taking = thread::spawn(move || take(&other, 1));
        let ours = take(&ring, 0);
        let theirs = taking.join().unwrap();
        assert_eq!(ours.or(theirs), Some(0));
        assert!(ours.is_none() || theirs.is_none());
        assert_eq!(ring.head(), RECORD);
    });
}

/// The producer overtakes a member that copies. The member gets each message whole and in order, or
/// the producer drops it. The newest message is in the ring at the end.
#[test]
fn a_copy_that_was_overwritten_is_discarded() {
    model(3, || {
        let ring = Ring::new(Memory::new(RingControls::new(MEMBERS), LONG as usize, 0), MEMBERS);
        publish_words(&ring, 0);
        let member = ring.clone();
        let copying = thread::spawn(move || [copy(&member, 0), copy(&member, 0)]);
        let is_sent = publish_dropping_oldest(&ring, 1);
        let mut taken: Vec<u64> = copying.join().unwrap().into_iter().flatten().collect();
        taken.extend(copy(&ring, 0));
        assert!(matches!((&taken[..], is_sent), ([0, 1] | [1], true) | ([0], false)), "{taken:?}, {is_sent}");
        assert!(ring.is_drained());
    });
}

/// Two members copy: each message goes to one of them, and the head ends after both.
#[test]
fn each_message_is_copied_once_and_released() {
    model(3, || {
        let ring = Ring::new(Memory::new(RingControls::new(MEMBERS), 2 * LONG as usize, 0), MEMBERS);
        (0..2).for_each(|index| publish_words(&ring, index));
        let other = ring.clone();
        let copying = thread::spawn(move || copy(&other, 1));
        let mut taken = [copy(&ring, 0).unwrap(), copying.join().unwrap().unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert_eq!(ring.head(), 2 * LONG);
    });
}

/// A member dies after its claim became valid, before it was confirmed. The next end that claims or
/// copies confirms it, before the claim word is overwritten.
#[test]
fn a_dead_members_claim_is_confirmed_before_the_word_moves_on() {
    for next in [claim_words, copy] {
        model(2, move || {
            let ring = Ring::new(Memory::new(RingControls::new(MEMBERS), 2 * LONG as usize, 0), MEMBERS);
            (0..2).for_each(|index| publish_words(&ring, index));
            die(&ring, 0, LONG, Death::Exchanged);
            let other = ring.clone();
            assert_eq!(next(&ring, 1), Some(1));
            let looking = thread::spawn(move || next(&other, 1));
            let recovered = ring.recover(0, Recovery::Discard);
            assert_eq!((recovered.discarded, recovered.violations), (1, 0));
            assert_eq!(looking.join().unwrap(), None);
            assert_eq!(ring.head(), 2 * LONG);
        });
    }
}
