//! Detects whether the other end of a channel is alive.
//!
//! The ends are connected by a pair of sockets, which carry only memory for large messages. The
//! system closes a process's sockets however the process ends. One thread per process, started with
//! the first channel, waits for that on all its sockets. It sets a flag, and wakes the end if that
//! end sleeps.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::error::Ended;
use super::ring::{End, Ring};
use crate::error::OpenError;

/// What an end knows about the other end.
#[derive(Debug)]
pub(super) struct Peer {
    state: Arc<State>,
    socket: OwnedFd,
    key: u64,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct State {
    /// The other end's socket is closed: the end was dropped, or its process died.
    hung_up: AtomicBool,
    ring: Ring,
    /// This end, not the other.
    end: End,
}

impl Peer {
    /// Starts to watch the other end of a socket, for one end of a ring.
    pub(super) fn watch(socket: OwnedFd, ring: Ring, end: End) -> Result<Self, OpenError> {
        let watcher = Watcher::of_this_process()?;
        let state = Arc::new(State { hung_up: AtomicBool::new(false), ring, end });
        let key = watcher.add(socket.as_fd(), &state)?;
        Ok(Self { state, socket, key, watcher })
    }

    /// Whether the other end is gone, closed or dead. It may have sent messages before.
    #[inline]
    pub(super) fn has_hung_up(&self) -> bool {
        self.state.hung_up.load(Ordering::Acquire)
    }

    /// How the other end ended, if it did. Call it before the last look at what the other end
    /// published.
    #[inline]
    pub(super) fn ended(&self) -> Option<Ended> {
        // Read the socket's state first: an end closes the channel before it closes the socket.
        let hung_up = self.has_hung_up();
        match self.state.ring.is_closed(self.state.end.other()) {
            true => Some(Ended::Closed),
            false if hung_up => Some(Ended::Died),
            false => None,
        }
    }

    /// The socket to the other end.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.watcher.remove(self.socket.as_fd(), self.key);
    }
}

impl State {
    fn hang_up(&self) {
        self.hung_up.store(true, Ordering::SeqCst);
        // The other end may have died after it cleared the mark and before it woke this end.
        self.ring.sleeper(self.end).wake_anyway();
    }
}

/// The thread that waits for sockets to be closed.
#[derive(Debug)]
struct Watcher {
    process: u32,
    epoll: OwnedFd,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    next_key: u64,
    states: HashMap<u64, Weak<State>>,
}

impl Watcher {
    /// The watcher of this process. A forked child has none of its parent's threads, so it starts a
    /// new one.
    fn of_this_process() -> Result<Arc<Self>, OpenError> {
        static WATCHER: Mutex<Option<Arc<Watcher>>> = Mutex::new(None);
        let mut slot = WATCHER.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(watcher) if watcher.process == std::process::id() => Ok(Arc::clone(watcher)),
            _ => {
                let watcher = Self::start()?;
                *slot = Some(Arc::clone(&watcher));
                Ok(watcher)
            }
        }
    }

    fn start() -> Result<Arc<Self>, OpenError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(OpenError::system("create an epoll descriptor"))?;
        let watcher = Arc::new(Self { process: std::process::id(), epoll, watched: Mutex::default() });
        let run = Arc::clone(&watcher);
        thread::Builder::new()
            .name("estafette-peers".into())
            .spawn(move || run.run())
            .map_err(OpenError::system("start the thread that watches peers"))?;
        Ok(watcher)
    }

    fn add(&self, socket: BorrowedFd<'_>, state: &Arc<State>) -> Result<u64, OpenError> {
        let mut watched = self.watched();
        let key = watched.next_key;
        watched.next_key += 1;
        watched.states.insert(key, Arc::downgrade(state));
        let flags = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ONESHOT;
        epoll::add(&self.epoll, socket, EventData::new_u64(key), flags).map_err(OpenError::system("watch the peer"))?;
        Ok(key)
    }

    fn remove(&self, socket: BorrowedFd<'_>, key: u64) {
        let _ = epoll::delete(&self.epoll, socket);
        self.watched().states.remove(&key);
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                // No remedy, and nothing left to wait for.
                Err(_) => return,
            }
            for event in &events {
                let state = self.watched().states.remove(&{ event.data }.u64());
                if let Some(state) = state.and_then(|state| state.upgrade()) {
                    state.hang_up();
                }
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
