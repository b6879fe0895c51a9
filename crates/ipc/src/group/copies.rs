//! Copying of messages out of a ring, so that a member's unfinished work takes no space there.
//!
//! A claim of records in the ring keeps their space until it is acknowledged. The head stays before
//! the claim, so all later records keep their space too, claimed or not. A producer that drops old
//! messages for new ones then gains no space. Where the producer drops the oldest messages, members
//! copy.
//!
//! **Copying** works like the reader of a seqlock. The member reads the claim word, copies the
//! records from that position on, and then moves the claim word past them by compare-and-exchange.
//! The publisher moves the claim word past records before it overwrites them. So if the exchange
//! succeeds, nothing was overwritten during the copy. The member needs no slot, as it keeps nothing
//! in the ring, and the head follows the claim word at once. A member that stops at any point
//! blocks no other.
//!
//! **\[copy\]** The copy is made before the claim word is exchanged, and the claim word is moved
//! before the records are overwritten. A fence at each end keeps these orders.
//!
//! **Falling behind.** A producer that never pauses may overtake a member each time. Each retry
//! copies half as much. After the last retry, the member claims with its slot, copies, and releases
//! the claim. The head stays for as long as that takes.
//!
//! **Deaths.** A member's slot counts the messages that it has copied and not acknowledged.
//! Recovery thus knows how many are lost.

use super::claims::{ClaimedRange, Next};
use super::layout::RingControls;
use super::ring::{Limits, Ring};
use crate::error::Violation;
use crate::memory::Memory;
use crate::record::{HEADER, Header};
use crate::sync::{Ordering, fence};

/// How often a member tries to copy before it claims the records first. The loom models try once.
const MAX_COPY_ATTEMPTS: usize = if cfg!(loom) { 1 } else { 4 };

/// Records that were copied out of a ring, back to back. The buffer is reused.
#[derive(Debug, Default)]
pub(super) struct Copied {
    buffer: Vec<u8>,
    len: usize,
}

impl Copied {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Copies the records between two positions, which are at most the capacity apart.
    fn fill(&mut self, memory: &Memory<RingControls>, from: u64, to: u64) {
        self.len = (to - from) as usize;
        if self.buffer.len() < self.len {
            self.buffer.resize(self.len, 0);
        }
        memory.copy(from, &mut self.buffer[..self.len]);
    }
}

impl Ring {
    /// Copies the next records, if there are any, and removes them from the ring. Writes their
    /// headers to `headers`.
    pub(super) fn copy_next(
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
            // [copy] Read the records first, then the claim word; pairs with `head_to_overwrite`.
            fence(Ordering::Acquire);
            match walked {
                Ok(to) if self.try_move_word(holder, next, from, to, headers.len()) => return Ok(true),
                // Another end was faster. Less is copied sooner.
                Ok(to) => limits.bytes = ((to - from) / 2) as usize,
                Err(_) if self.load_next() != next => {}
                Err(violation) => return Err(violation),
            }
        }
        let Some(range) = self.claim_next(holder, limits, headers)? else { return Ok(false) };
        self.copy_claimed(holder, range, headers, copied);
        Ok(true)
    }

    /// Moves the claim word past records that were copied, unless it was moved in the meantime.
    fn try_move_word(&self, holder: usize, next: Next, from: u64, to: u64, messages: usize) -> bool {
        // Count first, then exchange: messages that have left the ring are counted.
        self.count_copied(holder, messages);
        self.confirm(next, from);
        let is_moved = self.exchange(next, Next::without_slot(to));
        if is_moved {
            self.release();
        } else {
            self.count_copied(holder, 0);
        }
        is_moved
    }

    /// Copies claimed records out of the ring, and releases the claim.
    pub(super) fn copy_claimed(&self, holder: usize, range: ClaimedRange, headers: &[Header], copied: &mut Copied) {
        copied.fill(self.memory(), range.from, range.to);
        self.count_copied(holder, headers.len());
        self.release_claim(range);
    }

    /// Sets how many messages a member has copied and not acknowledged.
    pub(super) fn count_copied(&self, holder: usize, messages: usize) {
        let slot = &self.slots()[self.own_slots(holder).start];
        slot.copies_done.store(0, Ordering::Relaxed);
        slot.copies.store(messages as u64, Ordering::Release);
    }

    /// Sets how many of the copied messages are done, in case the holder dies.
    #[inline]
    pub(super) fn count_copies_done(&self, holder: usize, messages: usize) {
        self.slots()[self.own_slots(holder).start].copies_done.store(messages as u64, Ordering::Relaxed);
    }

    /// Acknowledges the copied messages.
    pub(super) fn ack_copies(&self, holder: usize, headers: &[Header]) {
        self.count_acked(headers);
        self.count_copied(holder, 0);
    }

    /// Whether a member has copied messages and not acknowledged them.
    pub(super) fn has_copies(&self, holder: usize) -> bool {
        self.slots()[self.own_slots(holder).start].copies.load(Ordering::Acquire) != 0
    }

    /// Counts the messages that a dead member had copied: those that were done as acknowledged, the
    /// others as lost. Returns how many are lost.
    pub(super) fn recover_copies(&self, holder: usize) -> u64 {
        let slot = &self.slots()[self.own_slots(holder).start];
        // No more than fit into the ring: the member may have written an invalid number.
        let copies = slot.copies.swap(0, Ordering::AcqRel).min(self.capacity() / HEADER as u64);
        let done = slot.copies_done.swap(0, Ordering::Relaxed).min(copies);
        self.controls().counters.acked.fetch_add(done, Ordering::Relaxed);
        copies - done
    }
}
