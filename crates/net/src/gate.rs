//! Who writes, where several threads send by one connection at the same time: the first does, and takes along what the others bring
//! meanwhile. They need not wait for it, and many messages leave by one system call. (Flat combining: Hendler, Incze, Shavit and
//! Tzafrir, SPAA 2010.)
//!
//! Everything that was brought is written before the gate is free again, and while it is not free everything is brought: so the
//! messages of each thread keep their order. Whoever writes for other reasons, or ends the connection, under its lock, first takes what
//! was brought before. `models/` has these orders tried.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};
use std::{mem, sync::PoisonError};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};

/// How many bytes are brought before others wait for their turn.
const MOST: usize = 64 << 10;

/// Nobody writes, and nothing was brought.
const FREE: u8 = 0;
/// Somebody does.
const BUSY: u8 = 1;
/// And something was brought since it was looked last.
const MORE: u8 = 2;

pub(crate) struct Gate {
    state: AtomicU8,
    /// Whether anything may be brought: not while the peer has to read first, which everybody is told for their own message.
    open: AtomicBool,
    /// Whole frames.
    brought: Mutex<Vec<u8>>,
}

/// What becomes of a frame that was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// Whoever writes takes it along.
    TakenAlong,
    /// It was not, as nobody writes any more: who came with it is the first now.
    First,
    /// It was not taken.
    NoRoom,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { state: AtomicU8::new(FREE), open: AtomicBool::new(false), brought: Mutex::new(Vec::new()) }
    }

    /// Whether the one who asks is the first, and writes. It calls [`Gate::leave`] until that gives nothing.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        self.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Brings a frame to whoever writes.
    #[cold]
    pub(crate) fn bring(&self, head: &[u8], rest: &[u8]) -> Brought {
        let mut brought = self.lock();
        if !self.open.load(Ordering::Relaxed) || brought.len() + head.len() + rest.len() > MOST {
            return Brought::NoRoom;
        }
        loop {
            // What is there is taken under the lock: nobody does so before the frame is among it.
            match self.state.compare_exchange(BUSY, MORE, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) | Err(MORE) => break,
                Err(_) if self.enter() => return Brought::First,
                Err(_) => {}
            }
        }
        brought.extend_from_slice(head);
        brought.extend_from_slice(rest);
        Brought::TakenAlong
    }

    /// What was brought since the last look, or nothing: then the gate is free.
    #[inline]
    pub(crate) fn leave(&self) -> Option<Vec<u8>> {
        if self.state.compare_exchange(BUSY, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return None;
        }
        let mut brought = self.lock();
        self.state.store(BUSY, Ordering::Relaxed);
        Some(mem::take(&mut brought))
    }

    /// Whether something was brought: by the thread that asks, or by one that has done something before which it knows of.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.state.load(Ordering::Relaxed) == MORE
    }

    /// What was brought, for somebody who is about to write something else. The one who is to write it will find nothing.
    pub(crate) fn take(&self) -> Vec<u8> {
        mem::take(&mut self.lock())
    }

    /// What was brought up to now. From now on nothing is, unless it is opened again.
    pub(crate) fn shut(&self) -> Vec<u8> {
        let mut brought = self.lock();
        self.set_open(false);
        mem::take(&mut brought)
    }

    /// Says whether anything may be brought; what is being brought at this moment still may.
    #[inline]
    pub(crate) fn set_open(&self, open: bool) {
        if self.open.load(Ordering::Relaxed) != open {
            self.open.store(open, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.brought.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of the first, for as long as it lasts. Should a link panic in it, the others wait for the connection's lock.
pub(crate) struct Turn<'a>(pub(crate) &'a Gate);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_open(false);
        }
    }
}
