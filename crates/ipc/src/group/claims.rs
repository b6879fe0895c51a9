//! How members share a ring without a lock, so that any of them may be killed at any time.
//!
//! The claim word contains the position of the next claim, and the slot of the last claim. Every
//! member has [slots](super::slot), which record its claims.
//!
//! **Claiming.** A member reads the claim word, and the headers of the records from that position
//! on. It writes the range into its slot as an *intent*. Then it moves the claim word to the
//! range's end by compare-and-exchange. If the exchange succeeds, the member owns the range, even
//! if it dies at once: as long as the claim word names the slot and the end of its range, the
//! intent is valid. The next claimant therefore first *confirms* the last claim, by marking its
//! slot as claimed, and only then moves the word.
//!
//! Positions do not repeat: the word has 56 bits of multiples of eight bytes, which last two years
//! at 10 GB/s. A slow member that has read overwritten records thus fails to exchange the word. A
//! slot's state has a version, so that a late confirmation fails as well.
//!
//! **Acknowledging.** The member empties its slot. Then it moves the head to the lowest position
//! that is claimed or can still be claimed. That is the position in the claim word, which is read
//! first, or the start of a slot that is not empty. Every claim that succeeded before the word was
//! read is visible in its slot, since the slot is written first. Every later claim begins at that
//! position or after it.
//!
//! **\[release\]** Two members that empty their slots at the same time must not both see the
//! other's slot as full, or neither would move the head. Each empties its slot, executes a full
//! fence, and then looks at the other slots. For the same reason, a member that abandons an intent
//! looks at them too.
//!
//! **Returned ranges** stay in the slot of the member that died, so that no scan of the slots
//! misses a range that moves from slot to slot. Another member claims the slot itself, by
//! exchanging its state. If that member wants only the first records, it cuts them off and returns
//! the rest.

use super::ring::{Limits, MAX_RETRIES, Ring};
use super::slot::{Phase, State};
use crate::bell::Bell;
use crate::error::Violation;
use crate::record::Header;
use crate::sync::{Ordering, fence};

/// The claim word: the position of the next claim in units of eight bytes, modulo 2^56, and the
/// slot of the last claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next(u64);

impl Next {
    const UNITS: u64 = u64::MAX >> 8;

    pub(super) fn new(position: u64, slot: usize) -> Self {
        Self((position / 8) << 8 | (slot as u64 + 1))
    }

    /// The claim word after messages that were copied, for which there is no slot.
    pub(super) fn without_slot(position: u64) -> Self {
        Self((position / 8) << 8)
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// The slot of the last claim. None if there was no claim, or its messages were copied.
    pub(super) fn slot(self) -> Option<usize> {
        (self.0 as u8 as usize).checked_sub(1)
    }

    /// The distance from here to a position, in units of eight bytes.
    #[inline]
    pub(super) fn units_to(self, position: u64) -> u64 {
        (position / 8).wrapping_sub(self.0 >> 8) & Self::UNITS
    }
}

/// A claim: whole records of one slot's range.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimedRange {
    pub(super) slot: usize,
    state: State,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The end of the slot's range. The claim is the first part of that range.
    end: u64,
}

impl Ring {
    /// Claims the next records, if there are any. Writes their headers to `headers`.
    pub(super) fn claim_next(
        &self,
        holder: usize,
        limits: Limits,
        headers: &mut Vec<Header>,
    ) -> Result<Option<ClaimedRange>, Violation> {
        if self.load_next().units_to(self.tail()) == 0 {
            return Ok(None);
        }
        let Some(slot) = self.own_slots(holder).find(|slot| self.slots()[*slot].state().phase == Phase::Empty) else {
            return Ok(None);
        };
        let empty = self.slots()[slot].state();
        let mut state = empty;
        let result = self.try_claims(slot, &mut state, holder, limits, headers);
        if state != empty && !matches!(result, Ok(Some(_))) {
            self.slots()[slot].set_state(state.in_phase(Phase::Empty));
            self.release();
        }
        result
    }

    /// Retries until the claim word is exchanged. Updates `state` to the slot's state.
    fn try_claims(
        &self,
        slot: usize,
        state: &mut State,
        holder: usize,
        limits: Limits,
        headers: &mut Vec<Header>,
    ) -> Result<Option<ClaimedRange>, Violation> {
        for _ in 0..MAX_RETRIES {
            let (next, from, tail) = self.next()?;
            if from == tail {
                return Ok(None);
            }
            let walked = self.walk(from, tail, limits, headers);
            // [copy] Read the headers first, then the claim word; pairs with `head_to_overwrite`.
            fence(Ordering::Acquire);
            let to = match walked {
                Ok(to) => to,
                // Another member claimed the records, and they were overwritten since.
                Err(_) if self.load_next() != next => continue,
                Err(violation) => return Err(violation),
            };
            *state = self.slots()[slot].intend(*state, holder, from, to);
            self.confirm(next, from);
            if self.exchange(next, Next::new(to, slot)) {
                let claimed = state.in_phase(Phase::Claimed);
                // Another member may have confirmed the claim already. An exchange, not a store:
                // later stores to the slot must be ordered after those of that member.
                self.slots()[slot].replace(*state, claimed);
                *state = claimed;
                return Ok(Some(ClaimedRange { slot, state: *state, from, to, end: to }));
            }
        }
        Err(Violation::TooManyChanges)
    }

    /// Release: a member that sees the word sees the slot. Acquire: it also sees the slots of all
    /// earlier words.
    pub(super) fn exchange(&self, old: Next, new: Next) -> bool {
        let word = &self.controls().claim.next;
        word.compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks the last claim as claimed, before the claim word is overwritten. `position` is its
    /// end.
    pub(super) fn confirm(&self, next: Next, position: u64) {
        let Some(slot) = next.slot().and_then(|slot| self.slots().get(slot)) else { return };
        let state = slot.state();
        if state.phase == Phase::Intent && slot.to() == position {
            slot.replace(state, state.in_phase(Phase::Claimed));
        }
    }

    /// The number of ranges that were returned. See `checked_returns` in `member.rs`.
    #[inline]
    pub(super) fn returns(&self) -> u64 {
        self.controls().news.returns.load(Ordering::Acquire)
    }

    /// Claims records that a dead member left, if there are any.
    pub(super) fn claim_returned(
        &self,
        holder: usize,
        limits: Limits,
        headers: &mut Vec<Header>,
    ) -> Result<Option<ClaimedRange>, Violation> {
        for (index, slot) in self.slots().iter().enumerate() {
            let returned = slot.state();
            let claimed = returned.next(Phase::Claimed, holder);
            if returned.phase != Phase::Returned || !slot.replace(returned, claimed) {
                continue;
            }
            let range = slot.range(self.head(), self.tail(), self.capacity());
            let part = range.and_then(|range| Ok((range, self.walk(range.current, range.to, limits, headers)?)));
            match part {
                Ok((range, to)) if range.current < to => {
                    return Ok(Some(ClaimedRange {
                        slot: index,
                        state: claimed,
                        from: range.current,
                        to,
                        end: range.to,
                    }));
                }
                part => {
                    slot.set_state(claimed.in_phase(Phase::Empty));
                    self.release();
                    part?;
                }
            }
        }
        Ok(None)
    }

    /// Records that the claimed messages before `position` are done, in case the holder dies.
    #[inline]
    pub(super) fn progress(&self, range: &ClaimedRange, position: u64) {
        self.slots()[range.slot].set_current(position.clamp(range.from, range.to));
    }

    /// Acknowledges a claim. True if a rest of the range is now claimable.
    pub(super) fn ack(&self, range: ClaimedRange, headers: &[Header]) -> bool {
        self.count_acked(headers);
        self.release_claim(range)
    }

    /// Releases a claim as [`ack`](Self::ack) does, without counting.
    pub(super) fn release_claim(&self, range: ClaimedRange) -> bool {
        let slot = &self.slots()[range.slot];
        let rest = range.to < range.end;
        if rest {
            slot.cut(range.to);
            slot.set_state(range.state.next(Phase::Returned, range.state.holder));
            self.controls().news.returns.fetch_add(1, Ordering::Release);
        } else {
            slot.set_state(range.state.in_phase(Phase::Empty));
        }
        self.release();
        rest
    }

    pub(super) fn count_acked(&self, headers: &[Header]) {
        let counters = &self.controls().counters;
        let bytes: u64 = headers.iter().map(|header| u64::from(header.len)).sum();
        counters.acked.fetch_add(headers.len() as u64, Ordering::Relaxed);
        counters.acked_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Raises the head to the first record that is still needed, and wakes the producer if it waits
    /// for that. Members call it after they emptied or cut a slot, or moved the claim word past
    /// records that they copied. The producer calls it too, since a member may have stopped before
    /// it did.
    pub(super) fn release(&self) {
        // [release] Write this member's slot first, then read the claim word and the other slots.
        fence(Ordering::SeqCst);
        let Ok((_, mut lowest, _)) = self.next() else { return };
        for slot in self.slots() {
            if slot.state().phase != Phase::Empty {
                lowest = lowest.min(slot.from());
            }
        }
        if lowest > self.head() {
            self.controls().head.head.fetch_max(lowest, Ordering::AcqRel);
            self.wake_producer();
        }
    }

    /// Whether a member has claimed records that are still in the ring.
    pub(super) fn has_claims(&self) -> bool {
        self.slots().iter().any(|slot| slot.state().phase != Phase::Empty)
    }

    /// Wakes all members if the ring is closed and drained, so that waiting members see it.
    pub(super) fn report_drained(&self, bell: &Bell) {
        if self.is_closed() && self.is_drained() {
            bell.notify_all();
        }
    }

    /// Whether a member can find messages. `checked_returns` is the count of returned ranges when
    /// it last found none in the slots.
    #[inline]
    pub(super) fn has_messages(&self, checked_returns: u64) -> bool {
        self.load_next().units_to(self.tail()) != 0 || self.returns() != checked_returns
    }

    /// Whether such a member would find messages, or the end of the ring.
    #[inline]
    pub(super) fn has_news(&self, checked_returns: u64) -> bool {
        self.has_messages(checked_returns) || self.is_closed() && self.is_drained()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::Next;

    proptest! {
        #[test]
        fn a_position_is_found_again_from_a_later_one(position: u64, ahead in 0u64..1 << 33, slot in 0usize..255) {
            let (position, ahead) = (position / 16 * 8, ahead / 8 * 8);
            let next = Next::new(position, slot);
            prop_assert_eq!(next.units_to(position + ahead) * 8, ahead);
            prop_assert_eq!(next.slot(), Some(slot));
        }
    }

    #[test]
    fn a_new_ring_has_no_last_claim() {
        assert_eq!(Next::from_word(0).slot(), None);
        assert_eq!(Next::from_word(0).units_to(0), 0);
    }
}
