//! The slots in which members record their claims.

use crate::error::Violation;
use crate::sync::{AtomicU64, Ordering};

/// The most claims of a member that are not acknowledged.
pub(super) const MAX_CLAIMS: usize = 2;

/// The slots of each member. After a death, up to two contain what the dead member left, perhaps
/// claimed by others, and the restarted member needs one for a claim of its own.
pub(super) const SLOTS_PER_MEMBER: usize = MAX_CLAIMS + 1;

/// One range of records, and its holder. Its member writes it. There are three exceptions: the next
/// claimant confirms a claim that the member won, the supervisor marks what a dead member left, and
/// any member may claim a returned range.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Slot {
    /// A [`State`].
    state: AtomicU64,
    /// The first byte of the range. The ring's head stays at or below it.
    from: AtomicU64,
    /// The end of the range.
    to: AtomicU64,
    /// Everything before it is done, but not acknowledged.
    current: AtomicU64,
    /// The number of messages that the member has copied and not acknowledged, and how many of them
    /// are done. Used only in a member's first slot, independent of the slot's state.
    pub(super) copies: AtomicU64,
    pub(super) copies_done: AtomicU64,
}

/// The records of a slot. Those before `current` are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) current: u64,
    pub(super) to: u64,
}

/// The state of a slot's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no range.
    Empty,
    /// The holder tries to claim it. The claim is valid if the claim word says so.
    Intent,
    /// The holder owns it.
    Claimed,
    /// The holder died; any member may claim it.
    Returned,
}

/// The word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// The index of a member, or one more than the last for the producer.
    pub(super) holder: usize,
    /// Increases with every intent and every change of the holder. A successful
    /// compare-and-exchange of the word thus proves that the range is still the one that was read.
    /// 54 bits do not wrap around.
    version: u64,
}

impl State {
    const HOLDER_BITS: u32 = 8;
    const PHASE_BITS: u32 = 2;

    fn from_word(word: u64) -> Self {
        let phase = match word & 3 {
            0 => Phase::Empty,
            1 => Phase::Intent,
            2 => Phase::Claimed,
            _ => Phase::Returned,
        };
        let holder = (word >> Self::PHASE_BITS & 0xff) as usize;
        Self { phase, holder, version: word >> (Self::PHASE_BITS + Self::HOLDER_BITS) }
    }

    fn word(self) -> u64 {
        let phase = match self.phase {
            Phase::Empty => 0,
            Phase::Intent => 1,
            Phase::Claimed => 2,
            Phase::Returned => 3,
        };
        phase | (self.holder as u64) << Self::PHASE_BITS | self.version << (Self::PHASE_BITS + Self::HOLDER_BITS)
    }

    /// The same range in another phase.
    pub(super) fn in_phase(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// The state of another range, or of the same range with another holder.
    pub(super) fn next(self, phase: Phase, holder: usize) -> Self {
        Self { phase, holder, version: self.version.wrapping_add(1) }
    }
}

impl Slot {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { state: zero(), from: zero(), to: zero(), current: zero(), copies: zero(), copies_done: zero() }
    }

    /// Acquire: an end that sees a state sees the range it was stored with, or a later one.
    #[inline]
    pub(super) fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn set_state(&self, state: State) {
        self.state.store(state.word(), Ordering::Release);
    }

    /// Changes the state unless another end has changed it.
    pub(super) fn replace(&self, old: State, new: State) -> bool {
        self.state.compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Writes a member's intent to claim a range. Returns the state.
    ///
    /// The slot is empty in between, with the new version, so that nobody takes the new range for
    /// that of the old intent: readers load the words in the reverse order of these stores.
    pub(super) fn intend(&self, old: State, holder: usize, from: u64, to: u64) -> State {
        let empty = old.next(Phase::Empty, holder);
        self.set_state(empty);
        self.from.store(from, Ordering::Release);
        self.to.store(to, Ordering::Release);
        self.current.store(from, Ordering::Release);
        let intent = empty.in_phase(Phase::Intent);
        self.set_state(intent);
        intent
    }

    #[inline]
    pub(super) fn from(&self) -> u64 {
        self.from.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn to(&self) -> u64 {
        self.to.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn set_current(&self, current: u64) {
        self.current.store(current, Ordering::Release);
    }

    /// Cuts off the part of the range before `from`, which is done.
    pub(super) fn cut(&self, from: u64) {
        // In this order: if the holder dies in between, the part still counts as done.
        self.set_current(from);
        self.from.store(from, Ordering::Release);
    }

    /// The whole range, after a check that it lies within the ring's messages.
    pub(super) fn range(&self, head: u64, tail: u64, capacity: u64) -> Result<Range, Violation> {
        let range = Range { from: self.from(), current: self.current(), to: self.to() };
        let Range { from, current, to } = range;
        let ordered = head <= from && from <= current && current <= to && to <= tail;
        match ordered && to - from <= capacity && (from | current | to).is_multiple_of(8) {
            true => Ok(range),
            false => Err(Violation::Claim { from, to }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::{Phase, State};

    proptest! {
        #[test]
        fn any_word_is_a_state(word: u64) {
            prop_assert_eq!(State::from_word(word).word(), word);
        }
    }

    #[test]
    fn a_new_range_has_a_new_version() {
        let empty = State::from_word(0);
        let intent = empty.next(Phase::Intent, 64);
        assert_eq!((intent.phase, intent.holder), (Phase::Intent, 64));
        assert_ne!(intent.next(Phase::Intent, 64), intent);
        assert_eq!(intent.in_phase(Phase::Claimed).in_phase(Phase::Intent), intent);
    }
}
