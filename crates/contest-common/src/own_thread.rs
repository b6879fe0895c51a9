//! A value that stays with the thread that made it, in an end that may be sent to another: a socket of a library, say, that one
//! thread at a time may use, and that both ends of a party share. Between processes a child plays one party, on the thread that
//! opens it.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next thread that asks for its own.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The thread's number; 0 until it asks.
    static HERE: Cell<u64> = const { Cell::new(0) };
}

/// This thread's number, which no other thread ever has. The one that [`std::thread::current`] knows comes with a counted
/// reference, which is some nanoseconds a message.
#[inline(always)]
fn here() -> u64 {
    match HERE.get() {
        0 => first_time(),
        number => number,
    }
}

#[cold]
fn first_time() -> u64 {
    HERE.set(NEXT.fetch_add(1, Ordering::Relaxed));
    HERE.get()
}

/// A value that is reached on the thread that made it.
pub struct OwnThread<T> {
    value: ManuallyDrop<T>,
    thread: u64,
}

// SAFETY: every way to the value, its end included, compares the thread with the one that made it.
#[allow(unsafe_code)]
unsafe impl<T> Send for OwnThread<T> {}

impl<T> OwnThread<T> {
    /// Keeps a value for the thread that calls this.
    pub fn new(value: T) -> OwnThread<T> {
        OwnThread { value: ManuallyDrop::new(value), thread: here() }
    }

    #[inline(always)]
    fn stays(&self) {
        assert!(self.thread == here(), "an end of this mechanism stays on the thread that opened it");
    }
}

impl<T> Deref for OwnThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.stays();
        &self.value
    }
}

impl<T> DerefMut for OwnThread<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.stays();
        &mut self.value
    }
}

impl<T> Drop for OwnThread<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // Elsewhere it is left as it is.
        if self.thread == here() {
            // SAFETY: it goes once, here, on its own thread.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::thread;

    use super::*;

    #[test]
    fn it_is_reached_and_dropped_on_its_own_thread_alone() {
        let rc = Rc::new(());
        let (kept, sent) = (OwnThread::new(rc.clone()), OwnThread::new(rc.clone()));
        let ends = thread::spawn(move || {
            let sent = sent;
            let _ = &*sent;
        });
        assert!(ends.join().is_err());
        assert_eq!(Rc::strong_count(&kept), 3, "what went elsewhere is left as it is");
        drop(kept);
        assert_eq!(Rc::strong_count(&rc), 2);
    }
}
