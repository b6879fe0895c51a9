//! One end of a connection: a node and the state from its events.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use estafette_contest_common::own_thread::OwnThread;
use estafette_net::{Endpoint, Event, Handle, Node};

/// A node and the state from its events.
pub(crate) struct Side {
    node: Node<()>,
    state: State,
}

/// The state from the node's events, and received messages.
struct State {
    /// The destination of messages: the peer, or for a socket with several peers the sender of the
    /// last message.
    peer: Option<Endpoint>,
    replies_to_last_sender: bool,
    /// The number of established connection ends.
    ends: usize,
    /// The number of peers that may still close before the last one.
    remaining_peers: usize,
    /// Whether nothing waits to be sent.
    drained: bool,
    /// Messages that arrived while this end waited for another event.
    inbox: VecDeque<Vec<u8>>,
    /// How long to wait for a message that may have been lost, if the transport may lose messages.
    recv_timeout: Option<Duration>,
    /// The senders on other threads, if there are any.
    progress: Option<Arc<SendProgress>>,
}

impl State {
    /// Updates the state from an event.
    #[cold]
    fn handle_event(&mut self, event: Event<'_, ()>) -> io::Result<()> {
        match event {
            Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                self.peer.get_or_insert(endpoint);
                self.ends += 1;
            }
            Event::Message(_, message) => self.inbox.push_back(message.take()),
            Event::Drained(_) => {
                self.drained = true;
                if let Some(progress) = &self.progress {
                    progress.drained.fetch_add(1, Ordering::SeqCst);
                }
                self.update_progress(|_| {});
            }
            Event::Closed { .. } if self.remaining_peers > 0 => self.remaining_peers -= 1,
            Event::Closed { reason, .. } => {
                self.update_progress(|state| state.closed = true);
                return Err(io::Error::new(ErrorKind::UnexpectedEof, reason.to_string()));
            }
            Event::AcceptFailed(failure) => {
                self.update_progress(|state| state.closed = true);
                return Err(io::Error::other(failure.to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    fn update_progress(&self, what: impl FnOnce(&mut ProgressState)) {
        if let Some(progress) = &self.progress {
            what(&mut progress.lock());
            progress.changed.notify_all();
        }
    }
}

impl Side {
    /// Creates a side. `recv_timeout` is how long to wait for a message that may have been lost;
    /// `None` if the transport loses none.
    pub(super) fn new(node: Node<()>, recv_timeout: Option<Duration>) -> Side {
        let (inbox, replies_to_last_sender) = (VecDeque::new(), recv_timeout.is_some());
        Side {
            node,
            state: State {
                peer: None,
                replies_to_last_sender,
                ends: 0,
                remaining_peers: 0,
                drained: false,
                inbox,
                recv_timeout,
                progress: None,
            },
        }
    }

    pub(super) fn set_peer(&mut self, peer: Endpoint) {
        self.state.peer = Some(peer);
        self.state.replies_to_last_sender = false;
    }

    /// Waits until `ends` connection ends are established.
    pub(super) fn wait_until_connected(&mut self, ends: usize) -> io::Result<()> {
        self.drive_until(|state| state.ends == ends)
    }

    /// Sets the number of connections, each of which may close at any time.
    pub(super) fn expect_connections(&mut self, count: usize) {
        self.state.remaining_peers = count - 1;
    }

    /// Creates the state on which `senders` senders on other threads wait while this thread drives
    /// the node.
    pub(super) fn share_with_senders(&mut self, senders: usize) -> Arc<SendProgress> {
        let state = Mutex::new(ProgressState { closed: false, senders });
        let progress = Arc::new(SendProgress {
            peer: self.state.peer,
            drained: AtomicU64::new(0),
            state,
            changed: Condvar::new(),
        });
        self.state.progress = Some(Arc::clone(&progress));
        progress
    }

    /// Drives the node until a condition holds. Messages that arrive are stored.
    #[cold]
    fn drive_until(&mut self, holds: impl Fn(&State) -> bool) -> io::Result<()> {
        while !holds(&self.state) {
            self.drive_once()?;
        }
        Ok(())
    }

    /// Passes messages to `look` as they arrive, until it breaks.
    #[inline(always)]
    fn recv_with(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
        while let Some(message) = self.state.inbox.pop_front() {
            if look(&message).is_break() {
                return Ok(());
            }
        }
        let timeout = self.state.recv_timeout;
        let (mut enough, mut noted) = (false, Ok(()));
        while !enough {
            let events = self.node.poll_until(timeout, |event| {
                let goes_on = match event {
                    Event::Message(from, message) => {
                        if self.state.replies_to_last_sender {
                            self.state.peer = Some(from);
                        }
                        let seen = look(&message);
                        enough = seen.is_break();
                        return seen;
                    }
                    event => self.state.handle_event(event),
                };
                noted = goes_on;
                if noted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            mem::replace(&mut noted, Ok(()))?;
            if events == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Drives the node until the senders on other threads have finished, so that their last
    /// messages are sent.
    ///
    /// # Errors
    ///
    /// If the connection closes before.
    pub(super) fn drive(&mut self) -> io::Result<()> {
        let Some(progress) = self.state.progress.clone() else { return Ok(()) };
        let mut driven = Ok(());
        while driven.is_ok() && progress.lock().senders > 0 {
            driven = self.drive_once();
        }
        if driven.is_err() {
            self.state.update_progress(|state| state.closed = true);
        }
        self.state.progress = None;
        driven
    }

    /// Closes the connection after everything queued is sent.
    pub(super) fn close(&mut self) {
        if let Some(peer) = self.state.peer {
            self.node.handle().close(peer);
            while self.drive_once().is_ok() {}
        }
    }

    /// Waits for the node's next event.
    fn drive_once(&mut self) -> io::Result<()> {
        match self.node.next(None)? {
            Some(event) => self.state.handle_event(event),
            None => Ok(()),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.drive();
    }
}

/// The state on which senders wait for the thread that drives the node.
pub(crate) struct SendProgress {
    peer: Option<Endpoint>,
    /// How often the send queue became empty. It is increased before `changed` is notified.
    drained: AtomicU64,
    state: Mutex<ProgressState>,
    changed: Condvar,
}

struct ProgressState {
    closed: bool,
    /// The number of senders that have not finished.
    senders: usize,
}

impl SendProgress {
    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An end's access to a side.
pub(crate) enum SideHandle {
    /// Owned by this end.
    Owned(Box<Side>),
    /// Shared with the party's other end on the same thread.
    Shared(OwnThread<Rc<RefCell<Side>>>),
    /// Driven by another thread: that of the other end, or a separate one. The number is the value
    /// of `drained` before the last send.
    Remote(Arc<SendProgress>, u64),
}

impl SideHandle {
    /// Returns an unlimited number of handles that share the side on this thread.
    pub(super) fn shared(side: Box<Side>) -> impl Iterator<Item = SideHandle> {
        let side = Rc::new(RefCell::new(*side));
        std::iter::repeat_with(move || SideHandle::Shared(OwnThread::new(Rc::clone(&side))))
    }

    /// Returns a sender's handle of a side that another thread drives.
    pub(super) fn remote(progress: &Arc<SendProgress>) -> SideHandle {
        SideHandle::Remote(Arc::clone(progress), 0)
    }

    /// Returns the destination of messages.
    #[inline(always)]
    pub(super) fn peer(&self) -> io::Result<Endpoint> {
        let peer = match self {
            SideHandle::Owned(side) => side.state.peer,
            SideHandle::Shared(side) => side.borrow().state.peer,
            SideHandle::Remote(progress, _) => progress.peer,
        };
        peer.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Must be called before a send: earlier drained events do not count for it.
    #[inline(always)]
    pub(super) fn before_send(&mut self) {
        match self {
            SideHandle::Owned(side) => side.state.drained = false,
            SideHandle::Shared(side) => side.borrow_mut().state.drained = false,
            SideHandle::Remote(progress, before) => *before = progress.drained.load(Ordering::SeqCst),
        }
    }

    /// Waits until nothing waits to be sent.
    #[cold]
    pub(super) fn wait_until_drained(&mut self) -> io::Result<()> {
        match self {
            SideHandle::Owned(side) => side.drive_until(|state| state.drained),
            SideHandle::Shared(side) => side.borrow_mut().drive_until(|state| state.drained),
            SideHandle::Remote(progress, before) => {
                let drained = || progress.drained.load(Ordering::SeqCst) != *before;
                let waits = |state: &mut ProgressState| !drained() && !state.closed;
                drop(progress.changed.wait_while(progress.lock(), waits).unwrap_or_else(PoisonError::into_inner));
                if drained() { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
            }
        }
    }

    /// Passes messages to `look` until it breaks.
    #[inline(always)]
    pub(super) fn recv_with(&mut self, look: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
        match self {
            SideHandle::Owned(side) => side.recv_with(look),
            SideHandle::Shared(side) => side.borrow_mut().recv_with(look),
            SideHandle::Remote(..) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Reports that a sender has finished, so that the driving thread may stop.
    pub(super) fn finished(&self, handle: &Handle) {
        if let SideHandle::Remote(progress, _) = self {
            progress.lock().senders -= 1;
            handle.signal(());
        }
    }
}
