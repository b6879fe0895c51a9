//! The supervisor's end of a ring.

use super::files::{BellFile, RingFile};
use super::recovery::{Recovered, Recovery};
use super::ring::Ring;
use crate::bell::Bell;
use crate::error::OpenError;
use crate::memory::Memory;
use crate::sync::{AtomicU64, Ordering};

/// The end of the supervisor. It recovers the claims of dead members, closes the ring, and reads
/// the counters. Several processes may open it, but only one may recover.
#[derive(Debug)]
pub struct RingControl {
    ring: Ring,
    bell: Memory<Bell>,
}

/// Messages that are published and not yet acknowledged, dropped or discarded. Messages that
/// members have copied count in `messages`, but not in `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// The number of messages.
    pub messages: u64,
    /// The bytes of their records, with headers and padding.
    pub bytes: u64,
}

/// Positions in the stream of a ring's records, in bytes since its creation. A record has a header
/// of 8 bytes, the message, and padding to a multiple of 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Positions {
    /// All records before it are acknowledged, dropped or discarded, or copied by a member that
    /// [copies](super::Member::with_copies).
    pub head: u64,
    /// The end of the last published record.
    pub tail: u64,
}

/// Counts of a ring's messages since its creation.
///
/// The numbers are read one after the other, so they may be inconsistent while messages are in
/// flight. They may also miss the last operation of an end that was killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that were published.
    pub published: u64,
    /// The bytes of their payloads.
    pub published_bytes: u64,
    /// Messages that were acknowledged.
    pub acked: u64,
    /// The bytes of their payloads.
    pub acked_bytes: u64,
    /// Older messages that the publisher dropped to make space.
    pub dropped: u64,
    /// Messages that the publisher dropped instead of publishing them, because the ring was full.
    pub dropped_new: u64,
    /// Messages that were discarded when a member died.
    pub discarded: u64,
}

impl RingControl {
    /// Opens the ring. `bell` is the bell of its group.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped.
    pub fn open(ring: &RingFile, bell: &BellFile) -> Result<Self, OpenError> {
        Ok(Self { ring: ring.map()?, bell: bell.map()? })
    }

    /// Recovers the claims of a dead member, and wakes all members that may wait for them. Call it
    /// after the member's process or thread has ended, and before another one opens the ring with
    /// the same index. Call it even if the member had claimed nothing: it may have died before it
    /// woke another.
    pub fn recover(&self, member: usize, recovery: Recovery) -> Recovered {
        if member >= self.ring.producer() {
            return Recovered::default();
        }
        let recovered = self.ring.recover(member, recovery);
        self.bell.controls().forget(member);
        self.wake_all();
        recovered
    }

    /// The number of messages that are published and not yet acknowledged, dropped or discarded.
    #[must_use]
    pub fn depth(&self) -> Depth {
        let head = self.ring.head();
        let counters = self.counters();
        let gone = counters.acked.wrapping_add(counters.dropped).wrapping_add(counters.discarded);
        let bytes = self.ring.tail().saturating_sub(head).min(self.ring.capacity());
        Depth { messages: counters.published.saturating_sub(gone), bytes }
    }

    /// How far the ring was published and acknowledged. Messages that were published before a call
    /// are done once a later call has a `head` of at least that call's `tail`.
    #[must_use]
    pub fn positions(&self) -> Positions {
        let head = self.ring.head();
        Positions { head, tail: self.ring.tail() }
    }

    /// The counts of the ring's messages.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let words = self.ring.controls();
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Counters {
            published: load(&words.producer.published),
            published_bytes: load(&words.producer.published_bytes),
            acked: load(&words.counters.acked),
            acked_bytes: load(&words.counters.acked_bytes),
            dropped: load(&words.counters.dropped),
            dropped_new: load(&words.counters.dropped_new),
            discarded: load(&words.counters.discarded),
        }
    }

    /// Whether the ring is closed, so that no message follows.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Whether no message is left in the ring. Members that [copy](super::Member::with_copies) may
    /// still be working on some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_drained()
    }

    /// Whether everything that was published was acknowledged, dropped or discarded.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        // In this order: messages that have left the ring are counted before.
        self.ring.is_drained() && !(0..self.ring.producer()).any(|member| self.ring.has_copies(member))
    }

    /// Closes the ring, as its publisher would. The publisher then gets `Closed`. Members get the
    /// messages in the ring, then `Closed`.
    pub fn close(&self) {
        self.ring.close();
        self.wake_all();
    }

    /// Wakes all ends that wait; each checks whether it can continue. Call it also when a publisher
    /// has died: it may have died before it woke a member.
    pub fn wake_all(&self) {
        self.bell.controls().ring_all();
        self.ring.ring_producer();
    }
}
