//! Models of a group's ring: loom runs every order of events, and every value each load may see,
//! for a few messages. A lost wake-up is a deadlock here, since the modelled futex has no time-out.

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

/// Publishes a message of one byte as number `index`, for which there is space.
fn publish(ring: &Ring, index: u64) {
    let at = index * RECORD;
    // SAFETY: the ring lives; loom verifies the rest.
    let mut bytes = unsafe { ring.memory().bytes_mut(at + HEADER as u64, 1) };
    bytes[0] = index as u8 + 1;
    drop(bytes);
    ring.set_header(at, Header::new(1));
    ring.publish(at + RECORD, 1, 1);
}

/// The number of the message that was claimed, verified.
fn read(ring: &Ring, range: &ClaimedRange) -> u64 {
    // SAFETY: the ring lives; loom verifies the rest.
    let byte = unsafe { ring.memory().bytes(range.from + HEADER as u64, 1) }[0];
    assert_eq!(u64::from(byte), range.from / RECORD + 1);
    range.from / RECORD
}

/// Claims and acknowledges whatever there is, once.
fn take(ring: &Ring, member: usize) -> Option<u64> {
    let mut headers = Vec::new();
    let returned = ring.claim_returned(member, ONE, &mut headers).unwrap();
    let range = returned.or_else(|| ring.claim_next(member, ONE, &mut headers).unwrap())?;
    let number = read(ring, &range);
    ring.ack(range, &headers);
    Some(number)
}

/// A record that is copied while it may be written: its payload is two words.
const LONG: u64 = record_len(16) as u64;

/// Publishes the message number `index`, for which there is space, in words of that number.
fn publish_words(ring: &Ring, index: u64) {
    let at = index * LONG;
    ring.set_header(at, Header::new(16));
    for word in [8, 16] {
        ring.memory().word(at + word).store(index + 1, Ordering::Relaxed);
    }
    ring.publish(at + LONG, 1, 16);
}

/// Publishes the message number `index`, in place of the oldest if there is no space. False if what a
/// member claims is in the way.
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

/// Claims and acknowledges the next message, once, and returns its number.
fn claim_words(ring: &Ring, member: usize) -> Option<u64> {
    let mut headers = Vec::new();
    let range = ring.claim_next(member, ONE, &mut headers).unwrap()?;
    ring.ack(range, &headers);
    Some(range.from / LONG)
}

/// Copies the next message, once, and returns its number.
fn copy(ring: &Ring, member: usize) -> Option<u64> {
    let (mut headers, mut copied) = (Vec::new(), Copied::default());
    if !ring.take_next(member, ONE, &mut headers, &mut copied).unwrap() {
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

/// Two members claim and acknowledge at the same time: each message goes to one of them, and the
/// head ends behind both, whoever comes last.
#[test]
fn each_message_is_claimed_once_and_released() {
    model(3, || {
        let ring = ring(2);
        (0..2).for_each(|index| publish(&ring, index));
        let other = ring.clone();
        let taking = thread::spawn(move || take(&other, 1));
        let ours = take(&ring, 0);
        let theirs = taking.join().unwrap();
        // Who loses the exchange tries again, so both get one.
        let mut taken = [ours.unwrap(), theirs.unwrap()];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        assert_eq!(ring.head(), 2 * RECORD);
    });
}

/// The producer writes again only what was released: loom reports a write to what a member reads.
#[test]
fn space_is_handed_back() {
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

/// A member that sleeps is woken by what is published.
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

/// A member that claims less than there is wakes the next.
#[test]
fn two_sleeping_members_are_woken_by_one_ring() {
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

/// How far a member comes before it dies.
#[derive(Clone, Copy)]
enum Death {
    /// It has said what it wants.
    Intent,
    /// It has moved the claim word, and not marked its slot.
    Exchanged,
}

/// Claims as `claim_next` does, up to a point.
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

/// A member dies while another claims, and is recovered while the other goes on: no message is
/// lost, none comes twice, and everything is released.
#[test]
fn what_a_dead_member_claimed_comes_back() {
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

/// Two members go for what a dead one left: one gets it.
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

/// The producer overtakes a member that copies: the member gets each message whole and in order, or the
/// producer drops it, and the newest is there in the end.
#[test]
fn what_is_overwritten_while_it_is_copied_is_not_taken() {
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

/// Two members copy: each message goes to one of them, and the head ends behind both.
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

/// A member dies in the middle of a claim that counts. Whoever claims or copies next confirms the claim,
/// before the claim word forgets it.
#[test]
fn a_dead_member_s_claim_is_confirmed_before_it_is_forgotten() {
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
