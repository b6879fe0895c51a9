//! The supervisor's end of a ring.

use super::files::{BellFile, RingFile};
use super::recovery::{Recovered, Recovery};
use super::ring::Ring;
use crate::bell::Bell;
use crate::error::OpenError;
use crate::memory::Memory;
use crate::sync::{AtomicU64, Ordering};

/// The end of whoever watches over the others: it recovers what a dead member had claimed, closes, and
/// counts. There may be several, but only one process may recover.
#[derive(Debug)]
pub struct RingControl {
    ring: Ring,
    bell: Memory<Bell>,
}

/// What was published and not acknowledged, dropped or discarded. Messages that members have copied
/// count in `messages`, and not in `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Messages.
    pub messages: u64,
    /// Bytes of records, with headers and padding.
    pub bytes: u64,
}

/// What became of a ring's messages, since it was made.
///
/// The numbers are read one after the other, so that they need not fit together while messages are
/// on their way; and they may be off by what an end was doing when it was killed.
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
    /// Messages that the publisher dropped for newer ones.
    pub dropped: u64,
    /// Messages that the publisher dropped instead of publishing them, as the ring was full.
    pub dropped_new: u64,
    /// Messages that were discarded when a member died.
    pub discarded: u64,
}

impl RingControl {
    /// Opens the ring. `bell` is that of its group.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped.
    pub fn open(ring: &RingFile, bell: &BellFile) -> Result<Self, OpenError> {
        Ok(Self { ring: ring.map()?, bell: bell.map()? })
    }

    /// Takes from a dead member what it had claimed, and wakes whoever may wait for that. To be called
    /// once the member's process or thread has ended, and before another of its number opens the
    /// ring; also if it seems to have claimed nothing, since it may have died before it woke somebody.
    pub fn recover(&self, member: usize, recovery: Recovery) -> Recovered {
        if member >= self.ring.producer() {
            return Recovered::default();
        }
        let recovered = self.ring.recover(member, recovery);
        self.bell.controls().forget(member);
        self.wake_all();
        recovered
    }

    /// What was published and not acknowledged, dropped or discarded.
    #[must_use]
    pub fn depth(&self) -> Depth {
        let head = self.ring.head();
        let counters = self.counters();
        let gone = counters.acked.wrapping_add(counters.dropped).wrapping_add(counters.discarded);
        let bytes = self.ring.tail().saturating_sub(head).min(self.ring.capacity());
        Depth { messages: counters.published.saturating_sub(gone), bytes }
    }

    /// What became of the ring's messages.
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

    /// Whether the ring was closed: no message follows.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Whether no message is left in the ring. Members that [copy](super::Member::with_copies) may still
    /// work on some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_drained()
    }

    /// Whether everything that was published was acknowledged, dropped or discarded.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        // In this order: what has left the ring has been counted.
        self.ring.is_drained() && !(0..self.ring.producer()).any(|member| self.ring.has_copies(member))
    }

    /// Closes the ring, as its publisher would: that one then gets `Closed`, and members get what
    /// is in the ring before they do.
    pub fn close(&self) {
        self.ring.close();
        self.wake_all();
    }

    /// Wakes all who wait; they look what for. To be called when a publisher has died, too: it may
    /// have died before it woke somebody.
    pub fn wake_all(&self) {
        self.bell.controls().ring_all();
        self.ring.ring_producer();
    }
}
