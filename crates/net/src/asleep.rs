//! Whether the node's thread is asleep, so that other threads wake it only when necessary. A system
//! call for each message would be most of a message's cost.
//!
//! The node's thread sets the flag and then checks once more for work. Another thread queues work
//! and then checks the flag. Each side has a sequentially consistent fence between its two steps.
//! All threads see such fences in one order, so at least one side sees what the other did. The loom
//! models in `models/` try every order.
//!
//! All changes are swaps, because loom guarantees only for read-modify-write operations that no
//! other write comes in between.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Set by the node's thread before it sleeps; cleared by itself or by the thread that wakes it.
#[derive(Debug)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    pub(crate) fn new() -> Asleep {
        Asleep(AtomicBool::new(false))
    }

    /// Announces that the thread will sleep, unless a check for work after this call finds some.
    pub(crate) fn prepare(&self) {
        self.0.swap(true, Ordering::Relaxed);
        // Pairs with the fence in `must_wake`.
        fence(Ordering::SeqCst);
    }

    /// Announces that the thread is awake, and will check for work before it sleeps again.
    pub(crate) fn awake(&self) {
        self.0.swap(false, Ordering::Relaxed);
    }

    /// Returns whether the caller, and nobody else, has to wake the thread. Call it after the work
    /// was queued.
    pub(crate) fn must_wake(&self) -> bool {
        // Pairs with the fence in `prepare`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
