//! How a member copies messages out of a ring, so that what it works on keeps no space there.
//!
//! A claim of records in the ring keeps their space until it is acknowledged. The head stays before
//! it, and with it everything that lies behind, claimed or not: a producer that drops old messages for
//! new ones gains nothing by that. Where the producer drops the oldest, members copy.
//!
//! **Copying** is what the reader of a seqlock does. The member reads the claim word, copies the
//! records from there on, and then moves the claim word behind them by compare-and-exchange. The
//! publisher moves the claim word past records before it overwrites them. So if the exchange succeeds,
//! nothing was overwritten during the copy. The member needs no slot, as it keeps nothing in the ring,
//! and the head follows the claim word at once. A member that stops at any point blocks nobody.
//!
//! **\[copy\]** The copy is read before the claim word is exchanged, and the claim word was moved
//! before the records are overwritten: a fence at either end keeps these orders.
//!
//! **Falling behind.** A producer that never pauses may overtake a member each time. Each further
//! try copies half as much. After the last one the member claims by its slot, copies, and gives the
//! claim back: for as long as that takes, the head stays.
//!
//! **Deaths.** How many messages a member has copied and not acknowledged is counted in its slot, so
//! that whoever recovers it knows how many are lost.

use super::claims::{ClaimedRange, Next};
use super::layout::RingControls;
use super::ring::{Limits, Ring};
use crate::error::Violation;
use crate::memory::Memory;
use crate::record::{HEADER, Header};
use crate::sync::{Ordering, fence};

/// How often a member tries to copy before it claims the records first. The models try once.
const MAX_COPY_ATTEMPTS: usize = if cfg!(loom) { 1 } else { 4 };

/// Records that were copied out of a ring, back to back. It keeps its memory for the next ones.
#[derive(Debug, Default)]
pub(super) struct Copied {
    buffer: Vec<u8>,
    len: usize,
}

impl Copied {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Copies the records between two positions, which are no farther apart than the capacity.
    fn fill(&mut self, memory: &Memory<RingControls>, from: u64, to: u64) {
        self.len = (to - from) as usize;
        if self.buffer.len() < self.len {
            self.buffer.resize(self.len, 0);
        }
        memory.copy(from, &mut self.buffer[..self.len]);
    }
}

impl Ring {
    /// Copies the next records, if there are any, and takes them out of the ring. Their headers go to
    /// `headers`.
    pub(super) fn take_next(
        &self,
        holder: usize,
        mut limits: Limits,
        headers: &mut Vec<Header>,
        copied: &mut Copied,
    ) -> Result<bool, Violation> {
        for _ in 0..MAX_COPY_ATTEMPTS {
            let (next, from, tail) = self.next()?;
            if from == tail {
                return Ok(false);
            }
            let walked = self.walk(from, tail, limits, headers);
            if let Ok(to) = walked {
                copied.fill(self.memory(), from, to);
            }
            // [copy] First the records, then the claim word; pairs with `head_to_overwrite`.
            fence(Ordering::Acquire);
            match walked {
                Ok(to) if self.try_take(holder, next, from, to, headers.len()) => return Ok(true),
                // Others were quicker. Less is copied sooner.
                Ok(to) => limits.bytes = ((to - from) / 2) as usize,
                Err(_) if self.load_next() != next => {}
                Err(violation) => return Err(violation),
            }
        }
        let Some(range) = self.claim_next(holder, limits, headers)? else { return Ok(false) };
        self.copy_claimed(holder, range, headers, copied);
        Ok(true)
    }

    /// Moves the claim word behind records that were copied, unless it was moved meanwhile.
    fn try_take(&self, holder: usize, next: Next, from: u64, to: u64, messages: usize) -> bool {
        // First how many, then the exchange: what is gone from the ring has been counted.
        self.count_copied(holder, messages);
        self.confirm(next, from);
        let is_taken = self.exchange(next, Next::without_slot(to));
        if is_taken {
            self.release();
        } else {
            self.count_copied(holder, 0);
        }
        is_taken
    }

    /// Copies claimed records out of the ring, and gives the claim back.
    pub(super) fn copy_claimed(&self, holder: usize, range: ClaimedRange, headers: &[Header], copied: &mut Copied) {
        copied.fill(self.memory(), range.from, range.to);
        self.count_copied(holder, headers.len());
        self.give_back(range);
    }

    /// Says how many messages a member has copied and not acknowledged.
    pub(super) fn count_copied(&self, holder: usize, messages: usize) {
        let slot = &self.slots()[self.own_slots(holder).start];
        slot.copies_done.store(0, Ordering::Relaxed);
        slot.copies.store(messages as u64, Ordering::Release);
    }

    /// Says how many of the copied messages are done, for the case that the holder dies.
    #[inline]
    pub(super) fn count_copies_done(&self, holder: usize, messages: usize) {
        self.slots()[self.own_slots(holder).start].copies_done.store(messages as u64, Ordering::Relaxed);
    }

    /// Says that the copied messages are done.
    pub(super) fn ack_copies(&self, holder: usize, headers: &[Header]) {
        self.count_acked(headers);
        self.count_copied(holder, 0);
    }

    /// Whether a member has copied messages and not acknowledged them.
    pub(super) fn has_copies(&self, holder: usize) -> bool {
        self.slots()[self.own_slots(holder).start].copies.load(Ordering::Acquire) != 0
    }

    /// Counts what a dead member had copied: what was done as acknowledged, and what was not as lost.
    /// Returns how many messages are lost.
    pub(super) fn recover_copies(&self, holder: usize) -> u64 {
        let slot = &self.slots()[self.own_slots(holder).start];
        // No more than fit: a member may have written nonsense.
        let copies = slot.copies.swap(0, Ordering::AcqRel).min(self.capacity() / HEADER as u64);
        let done = slot.copies_done.swap(0, Ordering::Relaxed).min(copies);
        self.controls().counters.acked.fetch_add(done, Ordering::Relaxed);
        copies - done
    }
}
