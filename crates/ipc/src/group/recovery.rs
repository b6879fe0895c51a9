//! Recovery of a dead member's claims: they are returned to the group or discarded.
//!
//! Only the supervisor does this, after the process has ended. The dead member then changes nothing
//! more, and each of its claims is in one of the states that `claims.rs` describes.

use super::ring::{Limits, MAX_RETRIES, Ring};
use super::slot::{Phase, Range, Slot, State};
use crate::error::Violation;
use crate::record::Header;
use crate::sync::Ordering;

/// What to do with messages that a dead member had claimed and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Return them to the group: at-least-once delivery. Messages that the member had
    /// [copied](super::Member::with_copies) are lost. Messages that may have killed the member
    /// count one more attempt, and are delivered one at a time from then on. This is the first
    /// message that was not done. If the member had finished none of a claim, it is all messages of
    /// that claim.
    Return,
    /// Discard and count them: at-most-once delivery.
    Discard,
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The number of messages that were returned to the group.
    pub returned: u64,
    /// The number of messages that are lost.
    pub discarded: u64,
    /// The number of claims whose messages cannot be counted, since the member wrote invalid
    /// values.
    pub violations: u64,
}

const ALL: Limits = Limits { bytes: usize::MAX, messages: usize::MAX };

impl Ring {
    /// Recovers the claims of a dead holder, in all slots.
    pub(super) fn recover(&self, holder: usize, recovery: Recovery) -> Recovered {
        let (mut recovered, mut has_claim) = (Recovered::default(), false);
        for (index, slot) in self.slots().iter().enumerate() {
            if let Some(claimed) = self.settle(index, slot, holder) {
                has_claim = true;
                match self.recover_slot(slot, claimed, recovery) {
                    Ok((0, _)) => {}
                    Ok((messages, Recovery::Return)) => recovered.returned += messages,
                    Ok((messages, Recovery::Discard)) => recovered.discarded += messages,
                    Err(_) => {
                        slot.set_state(claimed.in_phase(Phase::Empty));
                        recovered.violations += 1;
                    }
                }
            }
        }
        if has_claim {
            // The member was copying what it had claimed, so both are the same messages.
            self.count_copied(holder, 0);
        } else {
            recovered.discarded += self.recover_copies(holder);
        }
        let counters = &self.controls().counters;
        // The publisher claims messages to drop them.
        let counter = if holder == self.producer() { &counters.dropped } else { &counters.discarded };
        counter.fetch_add(recovered.discarded, Ordering::Relaxed);
        self.release();
        recovered
    }

    /// Decides whether a dead holder's intent is valid. Returns the slot's state if it contains a
    /// claim.
    fn settle(&self, index: usize, slot: &Slot, holder: usize) -> Option<State> {
        for _ in 0..MAX_RETRIES {
            let state = slot.state();
            match state.phase {
                _ if state.holder != holder => return None,
                Phase::Empty | Phase::Returned => return None,
                Phase::Claimed => return Some(state),
                Phase::Intent => {
                    // The state was read before the word. If the word no longer names the claim,
                    // the end that moved it has confirmed the claim before, and `replace` fails.
                    let next = self.load_next();
                    let counts = next.slot() == Some(index) && next.units_to(slot.to()) == 0;
                    slot.replace(state, state.in_phase(if counts { Phase::Claimed } else { Phase::Empty }));
                }
            }
        }
        None
    }

    /// Recovers one slot. Returns the number of its messages, and what was done with them.
    fn recover_slot(&self, slot: &Slot, claimed: State, recovery: Recovery) -> Result<(u64, Recovery), Violation> {
        let Range { from, current, to } = slot.range(self.head(), self.tail(), self.capacity())?;
        let done = self.headers(from, current)?;
        let messages = self.headers(current, to)?.len() as u64;
        self.count_acked(&done);
        if recovery == Recovery::Discard || messages == 0 {
            slot.set_state(claimed.in_phase(Phase::Empty));
            return Ok((messages, Recovery::Discard));
        }
        // A member that recorded no progress may have died of any of its messages.
        self.count_attempts(current, to, current > from);
        slot.cut(current);
        slot.set_state(claimed.next(Phase::Returned, claimed.holder));
        self.controls().news.returns.fetch_add(1, Ordering::Release);
        Ok((messages, Recovery::Return))
    }

    /// Counts one more attempt for the record at `position`. Unless `only_first`, it does the same
    /// for the records up to `to` of the same claim. A record with attempts was claimed alone, and
    /// ends a batch.
    fn count_attempts(&self, mut position: u64, to: u64, only_first: bool) {
        let mut header = self.header(position);
        let came_alone = only_first || header.attempts > 0;
        loop {
            self.set_header(position, Header { attempts: header.attempts.saturating_add(1), ..header });
            position += header.record();
            if came_alone || position >= to {
                return;
            }
            header = self.header(position);
            if header.attempts > 0 {
                return;
            }
        }
    }

    /// The headers of the records between two positions. Both must be record boundaries.
    fn headers(&self, from: u64, to: u64) -> Result<Vec<Header>, Violation> {
        let (mut position, mut headers, mut part) = (from, Vec::new(), Vec::new());
        while position < to {
            position = self.walk(position, to, ALL, &mut part)?;
            headers.append(&mut part);
        }
        Ok(headers)
    }

    /// Whether a holder has no claims that wait for recovery.
    pub(super) fn is_recovered(&self, holder: usize) -> bool {
        let is_claimed = |slot: &Slot| {
            let state = slot.state();
            state.holder == holder && matches!(state.phase, Phase::Intent | Phase::Claimed)
        };
        !self.has_copies(holder) && !self.slots().iter().any(is_claimed)
    }
}
