//! The bell of a group: members sleep on it while there is nothing to claim, and publishers wake
//! them.
//!
//! The algorithm is an eventcount. Each member has its own futex, and one bit in a mask that says
//! that it sleeps. A publisher loads the mask once. It makes a system call only if a member sleeps,
//! and then wakes one. A member that claims only part of what is available wakes the next (see
//! `member.rs`), so a batch wakes as many members as it needs.
//!
//! **\[sleep\]** The handshake is Dekker's. The member sets its bit, executes a full fence, then
//! looks for messages. The publisher publishes, executes a full fence, then loads the mask. At
//! least one of the two sees what the other wrote.
//!
//! A process that clears a member's bit must ring that member. A process that dies in between
//! leaves a member asleep without a bit. A member that dies while it sleeps leaves its bit set. The
//! supervisor therefore rings all members after a death ([`Bell::ring_all`], [`Bell::forget`]).

use crate::sync::{AtomicU64, Doorbell, Ordering, fence};

/// The maximum number of members: one bit each.
pub const MAX_MEMBERS: usize = 64;

/// The control words of a bell.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Bell {
    /// The members that sleep or are about to, one bit each.
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

    /// Wakes one member if one sleeps. Called after something has become claimable.
    #[inline]
    pub(crate) fn notify_one(&self) {
        // [sleep] Publish first, then load the mask; pairs with `sleep`.
        fence(Ordering::SeqCst);
        let sleepers = self.sleepers.load(Ordering::Relaxed);
        if sleepers != 0 {
            self.wake_one(sleepers);
        }
    }

    /// Wakes one of the sleepers. Not inlined, to keep the publishers' loops short.
    #[inline(never)]
    fn wake_one(&self, mut sleepers: u64) {
        while sleepers != 0 {
            // The lowest bit: among idle members, the same ones do the work, and their caches are
            // warm.
            let bit = 1 << sleepers.trailing_zeros();
            let before = self.sleepers.fetch_and(!bit, Ordering::AcqRel);
            if before & bit != 0 {
                // The mask may have bits beyond the number of members in a loom model.
                return self.ring(sleepers.trailing_zeros() as usize);
            }
            sleepers = before;
        }
    }

    /// Wakes every member whose bit is set.
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

    /// Clears a member's bit. The supervisor calls it once the member is dead.
    pub(crate) fn forget(&self, member: usize) {
        self.sleepers.fetch_and(!(1 << member), Ordering::AcqRel);
    }

    /// Wakes a member, whether it sleeps or is about to. The member then checks for what.
    pub(crate) fn ring(&self, member: usize) {
        if let Some(door) = self.doors.get(member) {
            door.ring();
        }
    }

    /// Sleeps until another process rings, unless `is_ready` returns true. May wake spuriously.
    pub(crate) fn sleep(&self, member: usize, is_ready: impl FnOnce() -> bool) {
        let bit = 1 << member;
        let announce = || {
            self.sleepers.fetch_or(bit, Ordering::AcqRel);
            // [sleep] Set the bit first, then look for messages; pairs with `notify_one`.
            fence(Ordering::SeqCst);
        };
        crate::wait::sleep(&self.doors[member], None, announce, is_ready);
        self.sleepers.fetch_and(!bit, Ordering::AcqRel);
    }
}

#[cfg(not(loom))]
// SAFETY: atomics alone; `group::files` gets their size from here.
#[allow(unsafe_code)]
unsafe impl crate::memory::Controls for Bell {}
