//! Atomics and futexes: the real ones or, under `--cfg loom`, those of the model checker.
//!
//! Besides this file only `memory.rs` differs between the two, since loom's atomics and cells are
//! objects that cannot lie in raw memory.

pub(crate) use self::world::{AtomicU32, AtomicU64, Doorbell, Ordering, Sleeper, fence, spin_loop};

#[cfg(not(loom))]
mod world {
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Timespec};

    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// A futex that counts how often it was rung. Only one thread may sleep on it at a time.
    ///
    /// To sleep, a thread reads the ticket, announces that it is about to sleep, checks its
    /// condition once more, and waits. A ring after the ticket was read ends the wait or prevents
    /// it.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Doorbell(AtomicU32);

    impl Doorbell {
        /// How often it was rung. Call it before the last check of the condition.
        pub(crate) fn ticket(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }

        /// Sleeps unless it was rung since the ticket was read. May wake spuriously.
        pub(crate) fn wait(&self, ticket: u32, timeout: Option<Duration>) {
            let timeout = timeout.map(|timeout| Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            let result = futex::wait(&self.0, Flags::empty(), ticket, timeout.as_ref());
            debug_assert!(matches!(result, Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)), "{result:?}");
        }

        /// Wakes the sleeper.
        pub(crate) fn ring(&self) {
            self.0.fetch_add(1, Ordering::AcqRel);
            wake(&self.0);
        }
    }

    /// A futex with a mark that its only sleeper sleeps or is about to.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct Sleeper(AtomicU32);

    impl Sleeper {
        const ASLEEP: u32 = 1;

        /// Marks the sleeper as about to sleep. A full fence and a last check must follow.
        #[inline]
        pub(crate) fn mark(&self) {
            self.0.store(Self::ASLEEP, Ordering::Relaxed);
        }

        #[inline]
        pub(crate) fn unmark(&self) {
            self.0.store(0, Ordering::Relaxed);
        }

        /// Whether the sleeper must be woken. A full fence must come before.
        #[inline]
        pub(crate) fn is_marked(&self) -> bool {
            self.0.load(Ordering::Relaxed) == Self::ASLEEP
        }

        /// Sleeps unless the mark was cleared. May wake spuriously.
        pub(crate) fn wait(&self, timeout: Option<Duration>) {
            wait(&self.0, Self::ASLEEP, timeout);
        }

        /// Clears the mark, and wakes the sleeper if the mark was set.
        pub(crate) fn wake(&self) {
            if self.0.swap(0, Ordering::AcqRel) == Self::ASLEEP {
                wake(&self.0);
            }
        }

        /// Clears the mark, and wakes the sleeper whatever the mark was: the peer that cleared it
        /// may have died before the wake-up.
        pub(crate) fn wake_anyway(&self) {
            self.0.swap(0, Ordering::AcqRel);
            wake(&self.0);
        }
    }

    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let result = futex::wait(word, Flags::empty(), expected, timeout.as_ref());
        debug_assert!(matches!(result, Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT)), "{result:?}");
    }

    fn wake(word: &AtomicU32) {
        let result = futex::wake(word, Flags::empty(), 1);
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(loom)]
mod world {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// A modelled futex. A lost wake-up is a deadlock, which loom reports.
    #[derive(Debug)]
    pub(crate) struct Doorbell {
        word: AtomicU32,
        /// The kernel's lock of the queue: it makes comparing and falling asleep one step.
        queue: Mutex<()>,
        woken: Condvar,
    }

    impl Doorbell {
        pub(crate) fn new() -> Self {
            Self { word: AtomicU32::new(0), queue: Mutex::new(()), woken: Condvar::new() }
        }

        pub(crate) fn ticket(&self) -> u32 {
            self.word.load(Ordering::Acquire)
        }

        pub(crate) fn wait(&self, ticket: u32, _timeout: Option<Duration>) {
            let queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Acquire) == ticket {
                drop(self.woken.wait(queue).unwrap());
            }
        }

        pub(crate) fn ring(&self) {
            self.word.fetch_add(1, Ordering::AcqRel);
            let _queue = self.queue.lock().unwrap();
            self.woken.notify_one();
        }
    }
    /// The modelled [`Sleeper`], built from a doorbell.
    #[derive(Debug)]
    pub(crate) struct Sleeper(Doorbell);

    impl Sleeper {
        pub(crate) fn new() -> Self {
            Self(Doorbell::new())
        }

        pub(crate) fn mark(&self) {
            self.0.word.store(1, Ordering::Relaxed);
        }

        pub(crate) fn unmark(&self) {
            self.0.word.store(0, Ordering::Relaxed);
        }

        pub(crate) fn is_marked(&self) -> bool {
            self.0.word.load(Ordering::Relaxed) == 1
        }

        pub(crate) fn wait(&self, timeout: Option<Duration>) {
            self.0.wait(1, timeout);
        }

        pub(crate) fn wake(&self) {
            if self.0.word.swap(0, Ordering::AcqRel) == 1 {
                let _queue = self.0.queue.lock().unwrap();
                self.0.woken.notify_one();
            }
        }

        pub(crate) fn wake_anyway(&self) {
            self.0.word.swap(0, Ordering::AcqRel);
            let _queue = self.0.queue.lock().unwrap();
            self.0.woken.notify_one();
        }
    }
}
