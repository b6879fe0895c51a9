//! The ring of one producer and a group of members: positions, records, space.
//!
//! `claims.rs` contains the operations of members, `recovery.rs` those of the supervisor.

use super::claims::Next;
use super::layout::RingControls;
use super::slot::{SLOTS_PER_MEMBER, Slot};
use crate::error::Violation;
use crate::memory::Memory;
use crate::record::Header;
use crate::sync::{Ordering, fence};

/// How often an end retries when another end changed a word in the meantime. A correct peer changes
/// a word only when it makes progress, so this many changes in a row come from a hostile one.
pub(super) const MAX_RETRIES: usize = 100_000;

/// A handle to a ring's memory.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    memory: Memory<RingControls>,
    members: usize,
}

/// The maximum size of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: usize,
    pub(super) messages: usize,
}

impl Ring {
    pub(super) fn new(memory: Memory<RingControls>, members: usize) -> Self {
        Self { memory, members }
    }

    #[inline]
    pub(super) fn memory(&self) -> &Memory<RingControls> {
        &self.memory
    }

    #[inline]
    pub(super) fn controls(&self) -> &RingControls {
        self.memory.controls()
    }

    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// The producer's index as a holder of claims: one more than the last member.
    pub(super) fn producer(&self) -> usize {
        self.members
    }

    /// The slots in use: those of the members, and the producer's.
    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        &self.controls().slots[..self.members * SLOTS_PER_MEMBER + 1]
    }

    /// The indices of a holder's own slots.
    pub(super) fn own_slots(&self, holder: usize) -> std::ops::Range<usize> {
        let first = holder * SLOTS_PER_MEMBER;
        first..(first + SLOTS_PER_MEMBER).min(self.slots().len())
    }

    /// Acquire: an end that sees the tail sees the records before it.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.controls().producer.tail.load(Ordering::Acquire)
    }

    /// Acquire: an end that sees the head may overwrite everything before it.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.controls().head.head.load(Ordering::Acquire)
    }

    /// The head. Called by the producer before it overwrites records.
    pub(super) fn head_to_overwrite(&self) -> u64 {
        let head = self.head();
        // [copy] The claim word was moved first, as the head shows; records are written after that.
        // A member that copies one of those records sees that the claim word has moved.
        fence(Ordering::Release);
        head
    }

    /// The position of the next claim, from the claim word. None if it is impossible with this
    /// tail.
    #[inline]
    pub(super) fn position(&self, next: Next, tail: u64) -> Option<u64> {
        let behind = next.units_to(tail).checked_mul(8)?;
        if behind <= self.capacity() && tail.is_multiple_of(8) { tail.checked_sub(behind) } else { None }
    }

    /// The claim word, the position of the next claim, and the tail.
    ///
    /// # Errors
    ///
    /// If the words are inconsistent, and not because they changed between the loads.
    pub(super) fn next(&self) -> Result<(Next, u64, u64), Violation> {
        for _ in 0..MAX_RETRIES {
            let next = self.load_next();
            let tail = self.tail();
            match self.position(next, tail) {
                Some(position) => return Ok((next, position, tail)),
                None if self.load_next() == next => return Err(Violation::ClaimWord { word: next.word() }),
                None => {}
            }
        }
        Err(Violation::TooManyChanges)
    }

    #[inline]
    pub(super) fn load_next(&self) -> Next {
        Next::from_word(self.controls().claim.next.load(Ordering::Acquire))
    }

    /// The header of the record at a position.
    #[inline]
    pub(super) fn header(&self, position: u64) -> Header {
        Header::from_word(self.memory.word(position).load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set_header(&self, position: u64, header: Header) {
        self.memory.word(position).store(header.word(), Ordering::Relaxed);
    }

    /// Reads the headers of the records between two positions, as many as the limits allow but at
    /// least one. Returns the position of the next record. A record with attempts is claimed alone.
    pub(super) fn walk(&self, from: u64, to: u64, limits: Limits, headers: &mut Vec<Header>) -> Result<u64, Violation> {
        headers.clear();
        let mut position = from;
        while position < to && headers.len() < limits.messages.max(1) {
            let header = self.header(position);
            let len = header.record();
            if len > to - position {
                return Err(Violation::Record { len: header.len.into(), position });
            }
            let fits = position + len - from <= limits.bytes as u64;
            let alone = header.attempts > 0;
            if !headers.is_empty() && (alone || !fits) {
                break;
            }
            headers.push(header);
            position += len;
            if alone || !fits {
                break;
            }
        }
        Ok(position)
    }

    /// Publishes everything before `tail`. Called by the producer.
    #[inline]
    pub(super) fn publish(&self, tail: u64, messages: u64, bytes: u64) {
        let words = &self.controls().producer;
        // Nobody else writes these words. They are stored first, so claimable messages are counted.
        words.published.store(words.published.load(Ordering::Relaxed).wrapping_add(messages), Ordering::Relaxed);
        words
            .published_bytes
            .store(words.published_bytes.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        words.tail.store(tail, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.controls().news.closed.load(Ordering::Acquire) != 0
    }

    pub(super) fn close(&self) {
        self.controls().news.closed.store(1, Ordering::SeqCst);
    }

    /// Whether no message is left in the ring. Stays true if the ring was closed before.
    pub(super) fn is_drained(&self) -> bool {
        let head = self.head();
        head >= self.tail()
    }

    /// Sleeps until the head reaches `wanted` or another end rings. May wake spuriously.
    pub(super) fn sleep_for_space(&self, wanted: u64, is_ready: impl FnOnce() -> bool) {
        let space = &self.controls().space;
        let announce = || {
            space.wanted.store(wanted, Ordering::Relaxed);
            // [space] Store `wanted` first, then load the head; pairs with `wake_producer`.
            fence(Ordering::SeqCst);
        };
        crate::wait::sleep(&space.bell, None, announce, || self.head() >= wanted || is_ready());
        space.wanted.store(0, Ordering::Relaxed);
    }

    /// Wakes the producer if it sleeps and the head has reached what it waits for. Called after the
    /// head was raised.
    pub(super) fn wake_producer(&self) {
        let space = &self.controls().space;
        // [space] Raise the head first, then load `wanted`; pairs with `sleep_for_space`.
        fence(Ordering::SeqCst);
        let wanted = space.wanted.load(Ordering::Relaxed);
        if wanted != 0 && self.head() >= wanted && space.wanted.swap(0, Ordering::AcqRel) != 0 {
            space.bell.ring();
        }
    }

    /// Wakes the producer, whatever it waits for.
    pub(super) fn ring_producer(&self) {
        self.controls().space.bell.ring();
    }
}
