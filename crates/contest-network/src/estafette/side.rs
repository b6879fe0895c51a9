//! One end of a connection: a node, and what it told.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use estafette_contest_common::own_thread::OwnThread;
use estafette_net::{Endpoint, Event, Handle, Node};

use super::super::udp::PATIENCE;

/// A node, and what it told.
pub(crate) struct Side {
    node: Node<()>,
    state: State,
}

/// What the node told, apart from messages.
struct State {
    /// To whom messages go: the peer, or, of a socket that hears several, whoever was heard last.
    peer: Option<Endpoint>,
    follows: bool,
    /// How many ends of a connection are there.
    ends: usize,
    /// How many peers may go before the last one.
    others: usize,
    /// Nothing waits to be sent.
    drained: bool,
    /// Messages that came while there was something else to wait for.
    inbox: VecDeque<Vec<u8>>,
    lossy: bool,
    /// Who else wants to know.
    effective_capacity: Option<Arc<EffectiveCapacity>>,
}

impl State {
    /// Takes note of what is told.
    #[cold]
    fn note(&mut self, event: Event<'_, ()>) -> io::Result<()> {
        match event {
            Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                self.peer.get_or_insert(endpoint);
                self.ends += 1;
            }
            Event::Message(_, message) => self.inbox.push_back(message.take()),
            Event::Drained(_) => {
                self.drained = true;
                if let Some(capacity) = &self.effective_capacity {
                    capacity.drained.fetch_add(1, Ordering::SeqCst);
                }
                self.tell(|_| {});
            }
            Event::Closed { .. } if self.others > 0 => self.others -= 1,
            Event::Closed { reason, .. } => {
                self.tell(|told| told.closed = true);
                return Err(io::Error::new(ErrorKind::UnexpectedEof, reason.to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    fn tell(&self, what: impl FnOnce(&mut Told)) {
        if let Some(capacity) = &self.effective_capacity {
            what(&mut capacity.lock());
            capacity.changed.notify_all();
        }
    }
}

impl Side {
    pub(super) fn new(node: Node<()>, lossy: bool) -> Side {
        let (inbox, follows) = (VecDeque::new(), lossy);
        Side {
            node,
            state: State {
                peer: None,
                follows,
                ends: 0,
                others: 0,
                drained: false,
                inbox,
                lossy,
                effective_capacity: None,
            },
        }
    }

    pub(super) fn goes_to(&mut self, peer: Endpoint) {
        self.state.peer = Some(peer);
        self.state.follows = false;
    }

    /// Waits until so many ends of a connection are there.
    pub(super) fn until_connected(&mut self, ends: usize) -> io::Result<()> {
        self.until(|state| state.ends == ends)
    }

    /// There are so many connections, of which one after the other may end.
    pub(super) fn has_connections(&mut self, count: usize) {
        self.state.others = count - 1;
    }

    /// What so many senders on other threads wait at, while this one drives the node.
    pub(super) fn tells_elsewhere(&mut self, senders: usize) -> Arc<EffectiveCapacity> {
        let told = Mutex::new(Told { closed: false, senders });
        let capacity = Arc::new(EffectiveCapacity {
            peer: self.state.peer,
            drained: AtomicU64::new(0),
            told,
            changed: Condvar::new(),
        });
        self.state.effective_capacity = Some(Arc::clone(&capacity));
        capacity
    }

    /// Drives the node until something holds. Messages that come are kept.
    #[cold]
    fn until(&mut self, holds: impl Fn(&State) -> bool) -> io::Result<()> {
        while !holds(&self.state) {
            self.once()?;
        }
        Ok(())
    }

    /// Lets somebody look at messages, as the node tells them, until they have seen enough.
    #[inline(always)]
    fn look_at(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
        while let Some(message) = self.state.inbox.pop_front() {
            if look(&message).is_break() {
                return Ok(());
            }
        }
        let timeout = self.state.lossy.then_some(PATIENCE);
        let (mut enough, mut noted) = (false, Ok(()));
        while !enough {
            let told = self.node.poll_until(timeout, |event| {
                let goes_on = match event {
                    Event::Message(from, message) => {
                        if self.state.follows {
                            self.state.peer = Some(from);
                        }
                        let seen = look(&message);
                        enough = seen.is_break();
                        return seen;
                    }
                    event => self.state.note(event),
                };
                noted = goes_on;
                if noted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            mem::replace(&mut noted, Ok(()))?;
            if told == 0 {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Drives the node until the senders on other threads have sent all: what they sent last has to leave.
    ///
    /// # Errors
    /// Where the connection has ended before.
    pub(super) fn drive(&mut self) -> io::Result<()> {
        let Some(capacity) = self.state.effective_capacity.clone() else { return Ok(()) };
        let mut driven = Ok(());
        while driven.is_ok() && capacity.lock().senders > 0 {
            driven = self.once();
        }
        if driven.is_err() {
            self.state.tell(|told| told.closed = true);
        }
        self.state.effective_capacity = None;
        driven
    }

    /// Closes the connection once all that waits has left.
    pub(super) fn close(&mut self) {
        if let Some(peer) = self.state.peer {
            self.node.handle().close(peer);
            while self.once().is_ok() {}
        }
    }

    /// Waits for what the node has to tell.
    fn once(&mut self) -> io::Result<()> {
        match self.node.next(None)? {
            Some(event) => self.state.note(event),
            None => Ok(()),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.drive();
    }
}

/// Where senders wait for what the node tells another thread.
pub(crate) struct EffectiveCapacity {
    peer: Option<Endpoint>,
    /// How often nothing waited to be sent any more; it is raised before `changed` is told.
    drained: AtomicU64,
    told: Mutex<Told>,
    changed: Condvar,
}

struct Told {
    closed: bool,
    /// How many have not sent all.
    senders: usize,
}

impl EffectiveCapacity {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an end has of a side.
pub(crate) enum Held {
    /// All of it.
    Alone(Box<Side>),
    /// The other end of the party has it too, on the same thread.
    Shared(OwnThread<Rc<RefCell<Side>>>),
    /// Another thread has it: of the other end, or one that does nothing else. What had been told of it when something was sent
    /// is behind it.
    Elsewhere(Arc<EffectiveCapacity>, u64),
}

impl Held {
    /// All of it, and the same as often as it is asked for again.
    pub(super) fn shared(side: Box<Side>) -> impl Iterator<Item = Held> {
        let side = Rc::new(RefCell::new(*side));
        std::iter::repeat_with(move || Held::Shared(OwnThread::new(Rc::clone(&side))))
    }

    /// What a sender has of a side that another thread drives.
    pub(super) fn elsewhere(capacity: &Arc<EffectiveCapacity>) -> Held {
        Held::Elsewhere(Arc::clone(capacity), 0)
    }

    /// To whom messages go.
    #[inline(always)]
    pub(super) fn peer(&self) -> io::Result<Endpoint> {
        let peer = match self {
            Held::Alone(side) => side.state.peer,
            Held::Shared(side) => side.borrow().state.peer,
            Held::Elsewhere(capacity, _) => capacity.peer,
        };
        peer.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Something will be sent: what was told before says nothing of it.
    #[inline(always)]
    pub(super) fn sends(&mut self) {
        match self {
            Held::Alone(side) => side.state.drained = false,
            Held::Shared(side) => side.borrow_mut().state.drained = false,
            Held::Elsewhere(capacity, before) => *before = capacity.drained.load(Ordering::SeqCst),
        }
    }

    /// Waits until nothing waits to be sent.
    #[cold]
    pub(super) fn until_drained(&mut self) -> io::Result<()> {
        match self {
            Held::Alone(side) => side.until(|state| state.drained),
            Held::Shared(side) => side.borrow_mut().until(|state| state.drained),
            Held::Elsewhere(capacity, before) => {
                let drained = || capacity.drained.load(Ordering::SeqCst) != *before;
                let waits = |told: &mut Told| !drained() && !told.closed;
                drop(capacity.changed.wait_while(capacity.lock(), waits).unwrap_or_else(PoisonError::into_inner));
                if drained() { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
            }
        }
    }

    /// Lets somebody look at messages until they have seen enough.
    #[inline(always)]
    pub(super) fn look_at(&mut self, look: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
        match self {
            Held::Alone(side) => side.look_at(look),
            Held::Shared(side) => side.borrow_mut().look_at(look),
            Held::Elsewhere(..) => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// All has been sent: who drives the node for that need not go on.
    pub(super) fn finished(&self, handle: &Handle) {
        if let Held::Elsewhere(capacity, _) = self {
            capacity.lock().senders -= 1;
            handle.signal(());
        }
    }
}
