//! Atomics, futex and eventfd: those of the machine or, under `--cfg loom`, those of the model checker.
//!
//! The idea is vasi-sync's. Beside this file only `memory.rs` differs between the two worlds, since loom's atomics and
//! cells are objects that cannot lie in raw memory.

pub(super) use self::world::{AtomicU64, Eventfd, Futex, fence, spin_loop};

/// By what an end that sleeps is woken.
#[derive(Debug)]
pub(super) enum Alarm {
    /// The futex itself, between threads of one process: the kernel looks it up by its address alone.
    Private,
    /// The futex itself, between all processes that map its page, by which the kernel looks it up.
    #[cfg_attr(loom, expect(dead_code, reason = "models have no mappings"))]
    Shared,
    /// An eventfd, to which the futex is but a word. Whoever takes the sleeper's mark off the word adds to the counter, so
    /// that it is not zero when the sleeper comes to take it, or once it has. It may be so for a sleeper that did not sleep
    /// in the end; then the next one wakes for no reason.
    Eventfd(Eventfd),
}

#[cfg(not(loom))]
mod world {
    use std::sync::atomic::{AtomicU32, Ordering};

    use std::os::fd::OwnedFd;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{Errno, fcntl_dupfd_cloexec, read, write};
    use rustix::thread::futex::{self, Flags};

    use super::Alarm;

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
        pub(in super::super) fn wait(&self, expected: u32, alarm: &Alarm) {
            let flags = match alarm {
                Alarm::Private => Flags::PRIVATE,
                Alarm::Shared => Flags::empty(),
                Alarm::Eventfd(eventfd) => return eventfd.take(),
            };
            let result = futex::wait(&self.0, flags, expected, None);
            debug_assert!(matches!(result, Ok(()) | Err(Errno::AGAIN | Errno::INTR)), "{result:?}");
        }

        /// Wakes the sleeper.
        pub(in super::super) fn wake(&self, alarm: &Alarm) {
            let flags = match alarm {
                Alarm::Private => Flags::PRIVATE,
                Alarm::Shared => Flags::empty(),
                Alarm::Eventfd(eventfd) => return eventfd.add(),
            };
            let result = futex::wake(&self.0, flags, 1);
            debug_assert!(result.is_ok(), "{result:?}");
        }
    }

    /// An eventfd that blocks.
    #[derive(Debug)]
    pub(in super::super) struct Eventfd(pub(in super::super) OwnedFd);

    impl Eventfd {
        /// For one end to sleep on, and for the other to wake it.
        pub(in super::super) fn pair() -> rustix::io::Result<[Alarm; 2]> {
            let ours = eventfd(0, EventfdFlags::CLOEXEC)?;
            let theirs = fcntl_dupfd_cloexec(&ours, 0)?;
            Ok([ours, theirs].map(|eventfd| Alarm::Eventfd(Eventfd(eventfd))))
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
mod world {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    use super::Alarm;

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

        pub(in super::super) fn wait(&self, expected: u32, alarm: &Alarm) {
            if let Alarm::Eventfd(eventfd) = alarm {
                return eventfd.take();
            }
            let queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Acquire) == expected {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(in super::super) fn wake(&self, alarm: &Alarm) {
            if let Alarm::Eventfd(eventfd) = alarm {
                return eventfd.add();
            }
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }

    /// An eventfd, as a counter that both ends have a handle of.
    #[derive(Debug)]
    pub(in super::super) struct Eventfd(Arc<(Mutex<u64>, Condvar)>);

    impl Eventfd {
        pub(in super::super) fn pair() -> [Alarm; 2] {
            let counter = Arc::new((Mutex::new(0), Condvar::new()));
            [Arc::clone(&counter), counter].map(|counter| Alarm::Eventfd(Eventfd(counter)))
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
