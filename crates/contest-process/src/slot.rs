//! A shared slot for one value between the two ends of a party. One end stores what the other needs
//! next.

use std::sync::{Arc, Mutex, PoisonError};

/// All clones refer to the same slot.
#[derive(Debug)]
pub(super) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(Arc::default())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        Slot(Arc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    #[inline]
    pub(super) fn send(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    #[inline]
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
