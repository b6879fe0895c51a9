//! Models of a group's ring: loom runs every order of events, and every value each load may see, for
//! a few messages. A lost wake-up is a deadlock here, since the modelled futex has no time-out.

#![allow(unsafe_code)]

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::claims::{Held, Next};
use super::layout::RingControls;
use super::recovery::Recovery;
use super::ring::{Limits, Ring};
use crate::bell::Bell;
use crate::memory::Memory;
use crate::record::{HEADER, Header, record_len};

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

/// The number of the message that is held, verified.
fn read(ring: &Ring, held: &Held) -> u64 {
    // SAFETY: the ring lives; loom verifies the rest.
    let byte = unsafe { ring.memory().bytes(held.from + HEADER as u64, 1) }[0];
    assert_eq!(u64::from(byte), held.from / RECORD + 1);
    held.from / RECORD
}

/// Claims and acknowledges whatever there is, once.
fn take(ring: &Ring, member: usize) -> Option<u64> {
    let mut headers = Vec::new();
    let returned = ring.claim_returned(member, ONE, &mut headers).unwrap();
    let held = returned.or_else(|| ring.claim_next(member, ONE, &mut headers).unwrap())?;
    let number = read(ring, &held);
    ring.ack(held, &headers);
    Some(number)
}

fn model(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Two members claim and acknowledge at the same time: each message goes to one of them, and the head
/// ends behind both, whoever comes last.
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
fn die(ring: &Ring, member: usize, death: Death) {
    let (next, from, tail) = ring.next().unwrap();
    if from == tail {
        return;
    }
    let slot = ring.own_slots(member).start;
    let state = ring.slots()[slot].state();
    ring.slots()[slot].intend(state, member, from, from + RECORD);
    ring.confirm(next, from);
    if let Death::Exchanged = death {
        let _ = ring.exchange(next, Next::new(from + RECORD, slot));
    }
}

/// A member dies while another claims, and is recovered while the other goes on: no message is lost,
/// none comes twice, and everything is released.
#[test]
fn what_a_dead_member_claimed_comes_back() {
    for death in [Death::Intent, Death::Exchanged] {
        model(2, move || {
            let ring = ring(2);
            (0..2).for_each(|index| publish(&ring, index));
            let (dying, other) = (ring.clone(), ring.clone());
            let living = thread::spawn(move || [take(&other, 1), take(&other, 1)]);
            die(&dying, 0, death);
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
        die(&ring, 0, Death::Exchanged);
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
