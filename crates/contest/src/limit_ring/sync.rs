//! Atomics and futex: those of the machine or, under `--cfg loom`, those of the model checker.
//!
//! The idea is vasi-sync's. Beside this file only `memory.rs` differs between the two worlds, since loom's atomics and
//! cells are objects that cannot lie in raw memory.

pub(super) use self::world::{AtomicU64, Futex, fence, spin_loop};

/// Who can wait on a futex: the kernel looks a private one up by its address alone, a shared one by its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The threads of this process.
    Process,
    /// Every process that maps the page.
    #[cfg_attr(loom, expect(dead_code, reason = "models have no mappings"))]
    Mapping,
}

#[cfg(not(loom))]
mod world {
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};

    use super::Reach;

    pub(in super::super) use std::hint::spin_loop;
    pub(in super::super) use std::sync::atomic::{AtomicU64, fence};

    /// A word on which one end sleeps until the other wakes it.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(in super::super) struct Futex(AtomicU32);

    impl Futex {
        #[inline]
        pub(in super::super) fn load(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        #[inline]
        pub(in super::super) fn fetch_or(&self, bits: u32) -> u32 {
            self.0.fetch_or(bits, Ordering::AcqRel)
        }

        #[inline]
        pub(in super::super) fn fetch_and(&self, bits: u32) -> u32 {
            self.0.fetch_and(bits, Ordering::AcqRel)
        }

        /// Sleeps if the word is `expected`, without a time-out, which would cost the least that can be written a sixth
        /// more. It may return for no reason at all, so the caller looks again.
        pub(in super::super) fn wait(&self, expected: u32, reach: Reach) {
            let result = futex::wait(&self.0, flags(reach), expected, None);
            debug_assert!(matches!(result, Ok(()) | Err(Errno::AGAIN | Errno::INTR)), "{result:?}");
        }

        /// Wakes the sleeper.
        pub(in super::super) fn wake(&self, reach: Reach) {
            let result = futex::wake(&self.0, flags(reach), 1);
            debug_assert!(result.is_ok(), "{result:?}");
        }
    }

    fn flags(reach: Reach) -> Flags {
        match reach {
            Reach::Process => Flags::PRIVATE,
            Reach::Mapping => Flags::empty(),
        }
    }
}

#[cfg(loom)]
mod world {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    use super::Reach;

    pub(in super::super) use loom::hint::spin_loop;
    pub(in super::super) use loom::sync::atomic::{AtomicU64, fence};

    /// A futex, of which a lost wake-up is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(in super::super) struct Futex {
        word: AtomicU32,
        /// The kernel's lock of the queue: comparing and falling asleep are one step to whoever wakes.
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(in super::super) fn new() -> Self {
            Self { word: AtomicU32::new(0), queue: Mutex::new(()), woken: Condvar::new() }
        }

        pub(in super::super) fn load(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        pub(in super::super) fn fetch_or(&self, bits: u32) -> u32 {
            self.word.fetch_or(bits, Ordering::AcqRel)
        }

        pub(in super::super) fn fetch_and(&self, bits: u32) -> u32 {
            self.word.fetch_and(bits, Ordering::AcqRel)
        }

        pub(in super::super) fn wait(&self, expected: u32, _: Reach) {
            let queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Acquire) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(in super::super) fn wake(&self, _: Reach) {
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }
}
