//! The control words of a group's ring in shared memory. All zero is an empty ring.

use super::slot::{SLOTS_PER_MEMBER, Slot};
use crate::bell::MAX_MEMBERS;
use crate::sync::{AtomicU32, AtomicU64, Doorbell};

/// The slots of the maximum number of members, and one for the producer, which uses it to discard.
#[cfg_attr(loom, allow(dead_code))]
pub(super) const MAX_SLOTS: usize = MAX_MEMBERS * SLOTS_PER_MEMBER + 1;
// The claim word has eight bits for a slot or none.
const _: () = assert!(MAX_SLOTS <= u8::MAX as usize);

/// Each part has two cache lines of its own, since processors prefetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct RingControls {
    pub(super) producer: ProducerWords,
    pub(super) head: HeadWord,
    pub(super) claim: ClaimWord,
    pub(super) news: NewsWords,
    pub(super) space: SpaceWords,
    pub(super) counters: CounterWords,
    pub(super) slots: Slots,
}

#[cfg(not(loom))]
type Slots = [Slot; MAX_SLOTS];
#[cfg(loom)]
type Slots = Vec<Slot>;

/// Written by the producer only.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ProducerWords {
    /// The position of the next record. Everything before it is published.
    pub(super) tail: AtomicU64,
    /// The number of published messages, and the bytes of their payloads.
    pub(super) published: AtomicU64,
    pub(super) published_bytes: AtomicU64,
}

/// Raised by members that acknowledge.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct HeadWord {
    /// The producer may overwrite everything before this position.
    pub(super) head: AtomicU64,
}

/// Exchanged by members that claim.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ClaimWord {
    /// The position of the next claim: a [`Next`](super::claims::Next).
    pub(super) next: AtomicU64,
}

/// Words that are seldom written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct NewsWords {
    /// How often a range became claimable other than by the tail. A member that found nothing in
    /// the slots at one count need not look again until the count changes.
    pub(super) returns: AtomicU64,
    /// Not zero if the ring is closed: no more messages will be published.
    pub(super) closed: AtomicU32,
}

/// The producer waits for space with these.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct SpaceWords {
    /// The head that the sleeping producer waits for; zero if it does not sleep.
    pub(super) wanted: AtomicU64,
    pub(super) bell: Doorbell,
}

/// Counts of messages. Written by members, the producer and the supervisor.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct CounterWords {
    pub(super) acked: AtomicU64,
    pub(super) acked_bytes: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) dropped_new: AtomicU64,
    pub(super) discarded: AtomicU64,
}

#[cfg(loom)]
impl RingControls {
    pub(super) fn new(members: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            producer: ProducerWords { tail: zero(), published: zero(), published_bytes: zero() },
            head: HeadWord { head: zero() },
            claim: ClaimWord { next: zero() },
            news: NewsWords { returns: zero(), closed: AtomicU32::new(0) },
            space: SpaceWords { wanted: zero(), bell: Doorbell::new() },
            counters: CounterWords {
                acked: zero(),
                acked_bytes: zero(),
                dropped: zero(),
                dropped_new: zero(),
                discarded: zero(),
            },
            slots: (0..members * SLOTS_PER_MEMBER + 1).map(|_| Slot::new()).collect(),
        }
    }
}

#[cfg(not(loom))]
// SAFETY: atomics alone; `files.rs` gets their size from here.
#[allow(unsafe_code)]
unsafe impl crate::memory::Controls for RingControls {}
