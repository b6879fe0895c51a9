//! Atomics, futex and eventfd: those of the machine or, under `--cfg loom`, those of the model
//! checker.
//!
//! The idea is from vasi-sync. Besides this file only `memory.rs` differs between the two, because
//! loom's atomics and cells are objects that cannot be in raw memory.

pub(super) use self::imp::{AtomicU64, Eventfd, Futex, fence, spin_loop};

/// How a sleeping end is woken.
#[derive(Debug)]
pub(super) enum WakeMethod {
    /// The futex itself, between threads of one process. The kernel finds it by its virtual address
    /// alone.
    Private,
    /// The futex itself, between processes that map its page. The kernel finds it by that page.
    #[cfg_attr(loom, expect(dead_code, reason = "models have no mappings"))]
    Shared,
    /// An eventfd; the futex is only a word of flags. The end that clears the sleeper flag adds to
    /// the counter, so the counter is not zero when the sleeper reads it, or soon after. The
    /// counter may also stay non-zero for a sleeper that did not sleep after all. Then the next
    /// sleeper wakes without a reason.
    Eventfd(Eventfd),
}

#[cfg(not(loom))]
mod imp {
    use std::sync::atomic::{AtomicU32, Ordering};

    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, fcntl_dupfd_cloexec, read, write};
    use rustix::thread::futex::{self, Flags};

    use super::WakeMethod;

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

        /// Sleeps if the word is `expected`. There is no timeout, because it would cost the
        /// reference ring a sixth more. It may return without a reason, so the caller checks again.
        pub(in super::super) fn wait(&self, expected: u32, method: &WakeMethod) {
            let flags = match method {
                WakeMethod::Private => Flags::PRIVATE,
                WakeMethod::Shared => Flags::empty(),
                WakeMethod::Eventfd(eventfd) => return eventfd.take(),
            };
            let result = futex::wait(&self.0, flags, expected, None);
            debug_assert!(matches!(result, Ok(()) | Err(Errno::AGAIN | Errno::INTR)), "{result:?}");
        }

        /// Wakes the sleeper.
        pub(in super::super) fn wake(&self, method: &WakeMethod) {
            let flags = match method {
                WakeMethod::Private => Flags::PRIVATE,
                WakeMethod::Shared => Flags::empty(),
                WakeMethod::Eventfd(eventfd) => return eventfd.add(),
            };
            let result = futex::wake(&self.0, flags, 1);
            debug_assert!(result.is_ok(), "{result:?}");
        }
    }

    /// A blocking eventfd.
    #[derive(Debug)]
    pub(in super::super) struct Eventfd(pub(in super::super) OwnedFd);

    impl Eventfd {
        /// Creates an eventfd: one handle for the end that sleeps, one for the end that wakes it.
        pub(in super::super) fn pair() -> rustix::io::Result<[WakeMethod; 2]> {
            let ours = eventfd(0, EventfdFlags::CLOEXEC)?;
            let theirs = fcntl_dupfd_cloexec(&ours, 0)?;
            Ok([ours, theirs].map(|eventfd| WakeMethod::Eventfd(Eventfd(eventfd))))
        }

        /// Sleeps until the counter is not zero, and sets it to zero.
        fn take(&self) {
            let result = read(&self.0, &mut [0; 8]);
            debug_assert!(matches!(result, Ok(8) | Err(Errno::INTR)), "{result:?}");
        }

        fn add(&self) {
            let result = write(&self.0, &1u64.to_ne_bytes());
            debug_assert!(result == Ok(8), "{result:?}");
        }
    }
}

#[cfg(loom)]
mod imp {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    use super::WakeMethod;

    pub(in super::super) use loom::hint::spin_loop;
    pub(in super::super) use loom::sync::atomic::{AtomicU64, fence};

    /// A modelled futex. A lost wake-up is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(in super::super) struct Futex {
        word: AtomicU32,
        /// The kernel's lock of the wait queue: a waker sees the comparison and the falling asleep
        /// as one step.
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

        pub(in super::super) fn wait(&self, expected: u32, method: &WakeMethod) {
            if let WakeMethod::Eventfd(eventfd) = method {
                return eventfd.take();
            }
            let queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Acquire) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(in super::super) fn wake(&self, method: &WakeMethod) {
            if let WakeMethod::Eventfd(eventfd) = method {
                return eventfd.add();
            }
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }

    /// An eventfd as a counter that both ends share.
    #[derive(Debug)]
    pub(in super::super) struct Eventfd(Arc<(Mutex<u64>, Condvar)>);

    impl Eventfd {
        pub(in super::super) fn pair() -> [WakeMethod; 2] {
            let counter = Arc::new((Mutex::new(0), Condvar::new()));
            [Arc::clone(&counter), counter].map(|counter| WakeMethod::Eventfd(Eventfd(counter)))
        }

        fn take(&self) {
            let (counter, added) = &*self.0;
            let mut counter = counter.lock().unwrap();
            while *counter == 0 {
                counter = added.wait(counter).unwrap();
            }
            *counter = 0;
        }

        fn add(&self) {
            let (counter, added) = &*self.0;
            *counter.lock().unwrap() += 1;
            added.notify_one();
        }
    }
}
