//! What a dead member had claimed goes back to its group, or is discarded.
//!
//! Only the supervisor does this, once the process has ended: nothing the dead member began can
//! then go on, and whatever it had begun is in one of the states that `claims.rs` describes.

use super::ring::{Limits, MAX_RETRIES, Ring};
use super::slot::{Phase, Range, Slot, State};
use crate::error::Violation;
use crate::record::Header;
use crate::sync::Ordering;

/// What the supervisor does with messages that a dead member had claimed and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// They go back to the group: at least once, but for those that the member had
    /// [copied](super::Member::with_copies), which are lost. What the member may have died of counts one attempt
    /// more, and comes alone from then on: the first message that was not done; and if the member
    /// was done with none, all that it was given.
    Return,
    /// They are lost, and counted: at most once.
    Discard,
}

/// What became of the claims of a dead member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Messages that went back to the group.
    pub returned: u64,
    /// Messages that are lost.
    pub discarded: u64,
    /// Claims that were lost with messages nobody can count, since the member had written nonsense.
    pub violations: u64,
}

const ALL: Limits = Limits { bytes: usize::MAX, messages: usize::MAX };

impl Ring {
    /// Takes from a dead holder what it had claimed, in all slots.
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
            // It was copying what it had claimed: the same messages.
            self.count_copied(holder, 0);
        } else {
            recovered.discarded += self.recover_copies(holder);
        }
        let counters = &self.controls().counters;
        // What the publisher had claimed, it was dropping.
        let counter = if holder == self.producer() { &counters.dropped } else { &counters.discarded };
        counter.fetch_add(recovered.discarded, Ordering::Relaxed);
        self.release();
        recovered
    }

    /// Decides whether a dead holder's intent counts. The slot's state if it holds a claim.
    fn settle(&self, index: usize, slot: &Slot, holder: usize) -> Option<State> {
        for _ in 0..MAX_RETRIES {
            let state = slot.state();
            match state.phase {
                _ if state.holder != holder => return None,
                Phase::Empty | Phase::Returned => return None,
                Phase::Claimed => return Some(state),
                Phase::Intent => {
                    // The state was read before the word. If the word has forgotten the claim, then
                    // whoever moved it has confirmed the claim before, and `replace` fails.
                    let next = self.load_next();
                    let counts = next.slot() == Some(index) && next.units_to(slot.to()) == 0;
                    slot.replace(state, state.in_phase(if counts { Phase::Claimed } else { Phase::Empty }));
                }
            }
        }
        None
    }

    /// How many messages were claimed by the slot, and what became of them.
    fn recover_slot(&self, slot: &Slot, claimed: State, recovery: Recovery) -> Result<(u64, Recovery), Violation> {
        let Range { from, current, to } = slot.range(self.head(), self.tail(), self.capacity())?;
        let done = self.headers(from, current)?;
        let messages = self.headers(current, to)?.len() as u64;
        self.count_acked(&done);
        if recovery == Recovery::Discard || messages == 0 {
            slot.set_state(claimed.in_phase(Phase::Empty));
            return Ok((messages, Recovery::Discard));
        }
        // Who says of no message that it is done may have died of any of them.
        self.count_attempts(current, to, current > from);
        slot.cut(current);
        slot.set_state(claimed.next(Phase::Returned, claimed.holder));
        self.controls().news.returns.fetch_add(1, Ordering::Release);
        Ok((messages, Recovery::Return))
    }

    /// Counts one attempt more of the record at `position`, and unless `only_first`, of those up to `to`
    /// that it was given out with: one with attempts came alone, and ends a batch.
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

    /// The headers of the records between two positions, which must be where records begin.
    fn headers(&self, from: u64, to: u64) -> Result<Vec<Header>, Violation> {
        let (mut position, mut headers, mut part) = (from, Vec::new(), Vec::new());
        while position < to {
            position = self.walk(position, to, ALL, &mut part)?;
            headers.append(&mut part);
        }
        Ok(headers)
    }

    /// Whether a holder has no claims that nobody has recovered.
    pub(super) fn is_recovered(&self, holder: usize) -> bool {
        let is_claimed = |slot: &Slot| {
            let state = slot.state();
            state.holder == holder && matches!(state.phase, Phase::Intent | Phase::Claimed)
        };
        !self.has_copies(holder) && !self.slots().iter().any(is_claimed)
    }
}
