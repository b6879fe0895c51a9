//! A lane: an index that one end publishes and the other waits for.
//!
//! A ring has two lanes: the tail, from producer to consumer, and the head, from consumer to
//! producer. All memory ordering is in this file, in three handshakes between the publishing and
//! the waiting end. Comments at both sides of a handshake carry its name:
//!
//! - **\[contents\]** an end that sees an index also sees the bytes of the slots below it;
//! - **\[sleep\]** either an end that falls asleep has seen the last index, or the publisher sees
//!   that it sleeps (Dekker's pattern);
//! - **\[close\]** an end that sees the lane closed also sees the last index published on it.

use std::fmt;
use std::sync::atomic::Ordering;

use super::sync::{AtomicU64, Futex, WakeMethod, fence, spin_loop};

/// How an end waits for the other. Both ends of a ring must wait the same way, because each must
/// know whether to wake the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Poll. Within a stream, an end backs off for up to eight pauses between polls. Each end needs
    /// a core of its own.
    Spin,
    /// Sleep on a futex immediately, without spinning first. Publishing costs a full fence, and a
    /// system call only when the other end sleeps.
    Futex,
    /// Like `Futex`, but each end sleeps on an eventfd. Programs that also wait for other
    /// descriptors do this.
    Eventfd,
}

/// The other end of the ring has closed, and no message or free slot is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end of the ring is closed")
    }
}

impl std::error::Error for Closed {}

/// How one end of a ring waits, and how it wakes the other.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    pub(super) wait: Wait,
    /// What this end sleeps on.
    pub(super) mine: WakeMethod,
    /// What the other end sleeps on.
    pub(super) theirs: WakeMethod,
}

/// An index, and the word through which its owner wakes the waiting end. They share a cache line,
/// because the owner writes the index for each message and must then read the word.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Lane {
    /// How many messages or slots its owner has passed on, modulo 2^64. Only the owner writes it.
    index: AtomicU64,
    /// Written by the waiting end when it goes to sleep, and by the owner when it wakes that end or
    /// closes the lane.
    wake_word: WakeWord,
}

impl Lane {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { index: AtomicU64::new(0), wake_word: WakeWord(Futex::new()) }
    }

    /// Starts at `index`, so that a test need not send 2^64 messages.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, index: u64) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// Passes all messages before `index` to the other end. Called by the owner.
    #[inline]
    pub(super) fn publish(&self, index: u64, policy: &WaitPolicy) {
        // [contents] Release: pairs with `load`. What this end did to the slots before `index`
        // happens before anything the other end does to them.
        self.index.store(index, Ordering::Release);
        if policy.wait != Wait::Spin {
            self.wake_sleeper(&policy.theirs);
        }
    }

    /// Wakes the other end if it sleeps. Not inlined, to keep the loops of spinning ends short.
    #[inline(never)]
    fn wake_sleeper(&self, wake_method: &WakeMethod) {
        // [sleep] First the index, then the word, with a full fence between; pairs with
        // `sleep_once`, which uses the reverse order. At least one of the two ends sees what the
        // other wrote.
        fence(Ordering::SeqCst);
        if self.wake_word.state().sleeper {
            self.wake_word.wake(wake_method);
        }
    }

    /// Loads the index. Called by the waiting end, which then owns all slots before it.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        // [contents] Acquire: pairs with `publish`.
        self.index.load(Ordering::Acquire)
    }

    /// Polls until the index differs from `seen`, and returns it. Called by the waiting end.
    ///
    /// # Errors
    ///
    /// If the lane is closed and its last index was `seen`.
    #[inline]
    pub(super) fn spin(&self, seen: u64) -> Result<u64, Closed> {
        loop {
            // [close] First load the closed flag, then the index: no index follows the last one.
            let closed = self.is_closed();
            let index = self.load();
            if index != seen {
                return Ok(index);
            }
            if closed {
                return Err(Closed);
            }
            spin_loop();
        }
    }

    /// Sleeps until the index differs from `seen`, and returns it. Called by the waiting end.
    ///
    /// # Errors
    ///
    /// If the lane is closed and its last index was `seen`.
    #[cold]
    pub(super) fn sleep(&self, seen: u64, wake_method: &WakeMethod) -> Result<u64, Closed> {
        loop {
            // [close] As in `spin`.
            let closed = self.is_closed();
            let index = self.load();
            if index != seen {
                return Ok(index);
            }
            if closed {
                return Err(Closed);
            }
            self.sleep_once(seen, wake_method);
        }
    }

    /// Sleeps until the index differs from `seen` or the lane is closed. May return without a
    /// reason.
    fn sleep_once(&self, seen: u64, wake_method: &WakeMethod) {
        let marked = self.wake_word.mark_sleeper();
        // [sleep] First the word, then the index, with a full fence between; pairs with
        // `wake_sleeper`, which uses the reverse order. If the index is still `seen` here, the
        // owner will see the sleeper flag, and it clears the flag before it wakes. Then either the
        // word is no longer `marked` and `wait` does not sleep, or this end already sleeps and is
        // woken. (On an eventfd this end may sleep even so, but not for long: the end that cleared
        // the flag adds to the counter.)
        fence(Ordering::SeqCst);
        if !marked.closed && self.load() == seen {
            self.wake_word.0.wait(marked.into(), wake_method);
        }
        self.wake_word.clear_sleeper();
    }

    /// Declares that no index will follow, and wakes the waiting end. Called by the owner.
    pub(super) fn close(&self, wake_method: &WakeMethod) {
        // [close] Release, after the last index; pairs with `is_closed`. [sleep] This operation and
        // `mark_sleeper` change one word, so one of them is first. Either this operation sees the
        // sleeper, or `mark_sleeper` returns the lane as closed and nobody sleeps.
        let before = WakeState::from(self.wake_word.0.fetch_or(WakeState::CLOSED));
        if before.sleeper {
            self.wake_word.wake(wake_method);
        }
    }

    /// Returns whether the owner has closed the lane. Called by the waiting end.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // [close] Acquire: pairs with `close`.
        self.wake_word.state().closed
    }
}

/// The futex word of a lane, interpreted as a [`WakeState`].
#[derive(Debug)]
#[repr(transparent)]
struct WakeWord(Futex);

impl WakeWord {
    #[inline]
    fn state(&self) -> WakeState {
        self.0.load().into()
    }

    /// Sets the sleeper flag. Returns the resulting state.
    fn mark_sleeper(&self) -> WakeState {
        let before = WakeState::from(self.0.fetch_or(WakeState::SLEEPER));
        WakeState { sleeper: true, ..before }
    }

    fn clear_sleeper(&self) -> WakeState {
        self.0.fetch_and(!WakeState::SLEEPER).into()
    }

    /// Wakes the sleeper unless it has already woken up. Clears the flag first, so that the next
    /// message does not wake again.
    fn wake(&self, wake_method: &WakeMethod) {
        if self.clear_sleeper().sleeper {
            self.0.wake(wake_method);
        }
    }
}

/// The flags in the word of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WakeState {
    /// The waiting end sleeps or is about to.
    sleeper: bool,
    /// The owner has closed the lane.
    closed: bool,
}

impl WakeState {
    const SLEEPER: u32 = 1 << 0;
    const CLOSED: u32 = 1 << 1;
}

impl From<u32> for WakeState {
    #[inline]
    fn from(word: u32) -> Self {
        Self { sleeper: word & Self::SLEEPER != 0, closed: word & Self::CLOSED != 0 }
    }
}

impl From<WakeState> for u32 {
    fn from(state: WakeState) -> Self {
        let sleeper = if state.sleeper { WakeState::SLEEPER } else { 0 };
        let closed = if state.closed { WakeState::CLOSED } else { 0 };
        sleeper | closed
    }
}
