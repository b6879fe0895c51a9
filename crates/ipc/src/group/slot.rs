//! The slots in which members say what they hold.

use crate::error::Violation;
use crate::sync::{AtomicU64, Ordering};

/// The slots of each member. One is enough but after a death: then one may hold what the dead
/// member left, perhaps in the hands of another, while the restarted member needs one for its own
/// claims.
pub(super) const SLOTS_PER_MEMBER: usize = 2;

/// One range of records, and who holds it. Written by its member; but a claim that the member won
/// is confirmed by whoever comes next, what a dead member left is marked by the supervisor, and
/// what is returned is claimed by anybody.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Slot {
    /// A [`State`].
    state: AtomicU64,
    /// The first byte of the range. The ring's head stays at or below it.
    from: AtomicU64,
    /// The end of the range.
    to: AtomicU64,
    /// Everything before it is done, though not acknowledged.
    current: AtomicU64,
    /// How many messages the member has copied out of the ring and not acknowledged, and how many of
    /// them are done. In a member's first slot only, and whatever the slot's state.
    pub(super) copies: AtomicU64,
    pub(super) copies_done: AtomicU64,
}

/// The records of a slot: those up to `current` are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: u64,
    pub(super) current: u64,
    pub(super) to: u64,
}

/// What a slot's range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// None.
    Empty,
    /// The holder tries to claim it. It has if the claim word says so.
    Intent,
    /// The holder has it.
    Claimed,
    /// The holder died; anybody may claim it.
    Returned,
}

/// The word of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// A member, or one more than the last for the producer.
    pub(super) holder: usize,
    /// Grows with every intent and every change of hands, so that who compares and exchanges the
    /// word knows that the range is still the one that was read. 54 bits do not come round.
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

    /// Another range, or the same in other hands.
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

    /// Acquire: who sees a state sees the range it was stored with, or a later one.
    #[inline]
    pub(super) fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn set_state(&self, state: State) {
        self.state.store(state.word(), Ordering::Release);
    }

    /// Changes the state unless somebody else has.
    pub(super) fn replace(&self, old: State, new: State) -> bool {
        self.state.compare_exchange(old.word(), new.word(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Says that a member tries to claim a range. Returns the state.
    ///
    /// The slot is empty in between, with the new version, so that nobody takes the new range for
    /// the old intent: the stores are in order for whoever loads them in the reverse one.
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
        // In this order: a holder that dies in between has done the part all the same.
        self.set_current(from);
        self.from.store(from, Ordering::Release);
    }

    /// The whole range, verified to lie within the ring's messages.
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
