//! Whether the node's thread sleeps, so that who gives it something to do wakes it if it does, and only then: a system call
//! for each message would be most of what a message costs.
//!
//! The thread says that it will sleep, and then looks once more whether there is something to do. The other puts something
//! there, and then asks whether the thread sleeps. Between the two steps of either is a fence, and fences come one after the
//! other for all threads: at least one of the two sees what the other did. `models/` has every order of it tried.
//!
//! All changes are swaps: between the two halves of one comes no other change, which loom knows of swaps alone.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Set by the node's thread before it goes to sleep, cleared by it or by whoever wakes it.
#[derive(Debug)]
pub(crate) struct Asleep(AtomicBool);

impl Asleep {
    pub(crate) fn new() -> Asleep {
        Asleep(AtomicBool::new(false))
    }

    /// The thread will sleep, unless it finds something to do when it looks after this.
    pub(crate) fn prepare(&self) {
        self.0.swap(true, Ordering::Relaxed);
        // Pairs with that of `must_wake`.
        fence(Ordering::SeqCst);
    }

    /// The thread is awake, and will look again before it sleeps.
    pub(crate) fn awake(&self) {
        self.0.swap(false, Ordering::Relaxed);
    }

    /// Whether the thread has to be woken, by the one who asks and by nobody else. What it is to see was put there before.
    pub(crate) fn must_wake(&self) -> bool {
        // Pairs with that of `prepare`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}
