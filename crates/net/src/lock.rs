//! Locks whose data stays consistent when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic in another thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves the data behind these locks consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
