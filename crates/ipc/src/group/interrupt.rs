//! Interrupts the waiting ends of this process from another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A flag that ends all waiting: `reserve` and `claim` return `Interrupted`.
///
/// Any number of ends may share one. It stays set until it is cleared.
#[derive(Default)]
pub struct Interrupt {
    set: AtomicBool,
    /// Wakes each end that was opened with this flag.
    ends: Mutex<Vec<Weak<dyn Wake>>>,
}

/// Wakes an end of this process, whether it sleeps or is about to.
pub(super) trait Wake: Send + Sync {
    fn wake(&self);
}

impl Interrupt {
    /// An interrupt that is not set.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the flag, and wakes all ends that wait.
    pub fn set(&self) {
        // SeqCst, and a full barrier by the lock and the futex's word. An end that does not see the
        // flag in its last check has read its ticket before it is woken here.
        self.set.store(true, Ordering::SeqCst);
        let ends: Vec<_> = self.ends().iter().filter_map(Weak::upgrade).collect();
        for end in ends {
            end.wake();
        }
    }

    /// Clears the flag: ends wait again.
    pub fn clear(&self) {
        self.set.store(false, Ordering::SeqCst);
    }

    /// Whether the flag is set.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    pub(super) fn register(&self, end: Weak<dyn Wake>) {
        let mut ends = self.ends();
        ends.retain(|end| end.strong_count() > 0);
        ends.push(end);
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn Wake>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupt").field("set", &self.is_set()).finish_non_exhaustive()
    }
}
