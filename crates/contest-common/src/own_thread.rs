//! A value that only the thread that created it may access, inside an end that is `Send`.
//!
//! An example is a library's socket that is not thread-safe and that both ends of a party share. In
//! process cases each party runs in a child, on the thread that opens its ends.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// The next unused thread number.
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's number; 0 until [`here`] is first called.
    static HERE: Cell<u64> = const { Cell::new(0) };
}

/// Returns this thread's number, which no other thread ever has. [`std::thread::current`] would
/// clone a reference count, which costs some nanoseconds per message.
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

/// A value that panics when another thread accesses it.
pub struct OwnThread<T> {
    value: ManuallyDrop<T>,
    thread: u64,
}

// SAFETY: every access to the value, including its drop, first compares the current thread with the
// one that created it.
#[allow(unsafe_code)]
unsafe impl<T> Send for OwnThread<T> {}

impl<T> OwnThread<T> {
    /// Wraps a value for the current thread.
    pub fn new(value: T) -> OwnThread<T> {
        OwnThread { value: ManuallyDrop::new(value), thread: here() }
    }

    #[inline(always)]
    fn check_thread(&self) {
        assert!(
            self.thread == here(),
            "an end of this mechanism was used on another thread than the one that opened it"
        );
    }
}

impl<T> Deref for OwnThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.check_thread();
        &self.value
    }
}

impl<T> DerefMut for OwnThread<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.check_thread();
        &mut self.value
    }
}

impl<T> Drop for OwnThread<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // On another thread the value is leaked.
        if self.thread == here() {
            // SAFETY: `drop` runs once, so the value is dropped once, on the thread that created
            // it.
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
    fn is_accessed_and_dropped_only_on_its_own_thread() {
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
