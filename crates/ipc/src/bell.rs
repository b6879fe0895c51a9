//! The bell of a group: members sleep on it while there is nothing to claim, whoever publishes
//! rings.
//!
//! An eventcount. Each member has a futex of its own, and one bit in a mask that says that it
//! sleeps. Publishing costs one look at the mask; a system call is made only if somebody sleeps,
//! and wakes one. A member that claims only part of what is there wakes the next (see `member.rs`),
//! so that a batch wakes as many as it needs.
//!
//! **\[sleep\]** The handshake is Dekker's: the member sets its bit, then looks for messages, with
//! a full fence between; the publisher publishes, then looks for bits, with a full fence between.
//! One of the two sees what the other wrote.
//!
//! Whoever takes a bit off the mask owes its member a ring. A process that dies in between leaves a
//! member asleep without a bit; one that dies asleep leaves a bit without a member. Therefore the
//! supervisor rings every bell after a death ([`Bell::ring_all`], [`Bell::forget`]).

use crate::sync::{AtomicU64, Doorbell, Ordering, fence};

/// The most members: a bit each.
pub const MAX_MEMBERS: usize = 64;

/// The control words of a bell.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Bell {
    /// The members that sleep or are about to, a bit each.
    sleepers: AtomicU64,
    doors: Doors,
}

#[cfg(not(loom))]
type Doors = [Doorbell; MAX_MEMBERS];
#[cfg(loom)]
type Doors = Vec<Doorbell>;

impl Bell {
    #[cfg(loom)]
    pub(crate) fn new(members: usize) -> Self {
        Self { sleepers: AtomicU64::new(0), doors: (0..members).map(|_| Doorbell::new()).collect() }
    }

    /// Wakes one member if one sleeps. For whoever has just made something claimable.
    #[inline]
    pub(crate) fn notify_one(&self) {
        // [sleep] First what was published, then the mask; pairs with `sleep`.
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        if sleepers != 0 {
            self.wake_one(sleepers);
        }
    }

    /// Not inlined, to keep the loops of those who publish short.
    #[inline(never)]
    fn wake_one(&self, mut sleepers: u64) {
        while sleepers != 0 {
            // The lowest: of several idle members the same ones work, whose caches are warm.
            let bit = 1 << sleepers.trailing_zeros();
            let before = self.sleepers.fetch_and(!bit, Ordering::AcqRel);
            if before & bit != 0 {
                // The mask may have bits beyond what a model has members.
                return self.ring(sleepers.trailing_zeros() as usize);
            }
            sleepers = before;
        }
    }

    /// Wakes every member that says it sleeps.
    pub(crate) fn notify_all(&self) {
        fence(Ordering::SeqCst);
        let mut sleepers = self.sleepers.swap(0, Ordering::AcqRel);
        while sleepers != 0 {
            self.ring(sleepers.trailing_zeros() as usize);
            sleepers &= sleepers - 1;
        }
    }

    /// Wakes every member, whatever the mask says: a process that died may have left it wrong.
    pub(crate) fn ring_all(&self) {
        for member in 0..self.doors.len() {
            self.ring(member);
        }
    }

    /// Forgets that a member sleeps. For the supervisor, once the member is dead.
    pub(crate) fn forget(&self, member: usize) {
        self.sleepers.fetch_and(!(1 << member), Ordering::AcqRel);
    }

    /// Wakes a member, whether it sleeps or is about to. It finds out what for.
    pub(crate) fn ring(&self, member: usize) {
        if let Some(door) = self.doors.get(member) {
            door.ring();
        }
    }

    /// Sleeps until somebody rings, unless there is a reason not to, or for no reason at all.
    pub(crate) fn sleep(&self, member: usize, is_ready: impl FnOnce() -> bool) {
        let bit = 1 << member;
        let announce = || {
            self.sleepers.fetch_or(bit, Ordering::AcqRel);
            // [sleep] First the mask, then what was published; pairs with `notify_one`.
            fence(Ordering::SeqCst);
        };
        crate::wait::sleep(&self.doors[member], None, announce, is_ready);
        self.sleepers.fetch_and(!bit, Ordering::AcqRel);
    }
}

#[cfg(not(loom))]
// SAFETY: atomics alone; `group::file` says how many bytes they take.
#[allow(unsafe_code)]
unsafe impl crate::memory::Controls for Bell {}
