//! A lane: an index that one end publishes and the other awaits.
//!
//! The ring has two, the tail from producer to consumer and the head from consumer to producer. All ordering of memory is
//! here, in three handshakes between the end that publishes and the end that awaits. Both sides of each carry its name:
//!
//! - **\[contents\]** who sees an index sees the bytes of the slots it hands over;
//! - **\[sleep\]** who falls asleep has missed no index, or else who published it sees the sleeper (Dekker's pattern);
//! - **\[close\]** who sees the lane closed sees the last index published on it.

use std::fmt;
use std::sync::atomic::Ordering;

use super::sync::{Alarm, AtomicU64, Futex, fence, spin_loop};

/// How an end waits for the other. Both ends of a ring wait the same way, as each must know whether to wake the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// By looking again and again, within a stream at intervals of up to eight pauses. Each end needs a core of its own.
    Spin,
    /// By sleeping at once, without looking twice. Publishing costs a full fence, and a system call only when the other
    /// end sleeps.
    Futex,
    /// As with `Futex`, with an eventfd for each end to sleep on: what one does who waits for other descriptors, too.
    Eventfd,
}

/// The other end of the ring is gone, and it has left nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end of the ring is closed")
    }
}

impl std::error::Error for Closed {}

/// How one end of a ring waits, and wakes the other.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) wait: Wait,
    /// What this end sleeps on.
    pub(super) mine: Alarm,
    /// What the other end sleeps on.
    pub(super) theirs: Alarm,
}

/// An index and the bell by which its owner wakes the one who awaits it. They share a line, as the owner, who writes the
/// one for each message, must then look at the other.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Lane {
    /// How many messages its owner has handed over, modulo 2^64. Only the owner writes it.
    index: AtomicU64,
    /// Written by the awaiting end when it goes to sleep, by the owner when it wakes that end or closes the lane.
    bell: Bell,
}

impl Lane {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { index: AtomicU64::new(0), bell: Bell(Futex::new()) }
    }

    /// Begins at `index`, so that a test need not send 2^64 messages.
    #[cfg(all(test, not(loom)))]
    pub(super) fn begin(&self, index: u64) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// Hands over all messages before `index`. For the owner.
    #[inline]
    pub(super) fn publish(&self, index: u64, manner: &Manner) {
        // [contents] Release: pairs with `look`. What this end did to the slots before `index` happens before whatever the
        // other end does to them.
        self.index.store(index, Ordering::Release);
        if manner.wait != Wait::Spin {
            self.wake_sleeper(&manner.theirs);
        }
    }

    /// Wakes the other end if it sleeps. Not inlined, to keep the loops of those who spin short.
    #[inline(never)]
    fn wake_sleeper(&self, alarm: &Alarm) {
        // [sleep] First the index, then the bell, and a full fence between; pairs with `sleep_once`, which does the
        // reverse. At least one of the two sees what the other wrote.
        fence(Ordering::SeqCst);
        if self.bell.state().sleeper {
            self.bell.ring(alarm);
        }
    }

    /// The index as it is now. For the awaiting end, which owns all slots before it once this has returned.
    #[inline]
    pub(super) fn look(&self) -> u64 {
        // [contents] Acquire: pairs with `publish`.
        self.index.load(Ordering::Acquire)
    }

    /// Looks until the index is no longer `verifier`, and returns it. For the awaiting end.
    ///
    /// # Errors
    ///
    /// If the lane is closed and its last index was `verifier`.
    #[inline]
    pub(super) fn spin(&self, seen: u64) -> Result<u64, Closed> {
        loop {
            // [close] First whether it is closed, then the index: after the last index comes no other.
            let closed = self.is_closed();
            let index = self.look();
            if index != seen {
                return Ok(index);
            }
            if closed {
                return Err(Closed);
            }
            spin_loop();
        }
    }

    /// Sleeps until the index is no longer `verifier`, and returns it. For the awaiting end.
    ///
    /// # Errors
    ///
    /// If the lane is closed and its last index was `verifier`.
    #[cold]
    pub(super) fn sleep(&self, seen: u64, alarm: &Alarm) -> Result<u64, Closed> {
        loop {
            // [close] As in `spin`.
            let closed = self.is_closed();
            let index = self.look();
            if index != seen {
                return Ok(index);
            }
            if closed {
                return Err(Closed);
            }
            self.sleep_once(seen, alarm);
        }
    }

    /// Sleeps until the index is no longer `verifier`, the lane is closed, or for no reason.
    fn sleep_once(&self, seen: u64, alarm: &Alarm) {
        let marked = self.bell.mark_sleeper();
        // [sleep] First the bell, then the index, and a full fence between; pairs with `wake_sleeper`, which does the
        // reverse. If the index is `verifier` here, the owner will see the mark, and it clears the mark before it wakes: either
        // the word is no longer `marked`, and `wait` does not sleep, or it sleeps already, and is woken. (On an eventfd it
        // may sleep even so, but not for long: who cleared the mark adds to the counter.)
        fence(Ordering::SeqCst);
        if !marked.closed && self.look() == seen {
            self.bell.0.wait(marked.into(), alarm);
        }
        self.bell.clear_sleeper();
    }

    /// Says that no index will follow, and wakes whoever awaits one. For the owner.
    pub(super) fn close(&self, alarm: &Alarm) {
        // [close] Release, after the last index; pairs with `is_closed`.
        // [sleep] This and the mark change one word, so one comes first: either the sleeper is seen here, or the mark
        // returns the lane as closed, and nobody sleeps.
        let before = BellState::from(self.bell.0.fetch_or(BellState::CLOSED));
        if before.sleeper {
            self.bell.ring(alarm);
        }
    }

    /// Whether the owner is gone. For the awaiting end.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // [close] Acquire: pairs with `close`.
        self.bell.state().closed
    }
}

/// The futex of a lane, seen as a [`BellState`].
#[derive(Debug)]
#[repr(transparent)]
struct Bell(Futex);

impl Bell {
    #[inline]
    fn state(&self) -> BellState {
        self.0.load().into()
    }

    /// Returns the state with the mark.
    fn mark_sleeper(&self) -> BellState {
        let before = BellState::from(self.0.fetch_or(BellState::SLEEPER));
        BellState { sleeper: true, ..before }
    }

    fn clear_sleeper(&self) -> BellState {
        self.0.fetch_and(!BellState::SLEEPER).into()
    }

    /// Wakes the sleeper unless it has risen meanwhile. The mark goes first, so that the next message wakes nobody anew.
    fn ring(&self, alarm: &Alarm) {
        if self.clear_sleeper().sleeper {
            self.0.wake(alarm);
        }
    }
}

/// What the word of a bell says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BellState {
    /// The awaiting end sleeps or is about to.
    sleeper: bool,
    /// The owner is gone.
    closed: bool,
}

impl BellState {
    const SLEEPER: u32 = 1 << 0;
    const CLOSED: u32 = 1 << 1;
}

impl From<u32> for BellState {
    #[inline]
    fn from(word: u32) -> Self {
        Self { sleeper: word & Self::SLEEPER != 0, closed: word & Self::CLOSED != 0 }
    }
}

impl From<BellState> for u32 {
    fn from(state: BellState) -> Self {
        let sleeper = if state.sleeper { BellState::SLEEPER } else { 0 };
        let closed = if state.closed { BellState::CLOSED } else { 0 };
        sleeper | closed
    }
}
