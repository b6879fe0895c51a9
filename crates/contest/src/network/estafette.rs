//! This project's own node, by every transport it has: one in each process, driven by the thread that uses it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::{Joins, Loss, Ordering, Wait};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Party, Raw, Rendezvous, Rx, Spec, Tx, Verifier};
use estafette_net::{Batch, Endpoint, Event, Handle, Limits, Message, Node, Options, Outcome};

use super::framed_tuned::{SPIN, together};
use crate::buffer::Buffer;
use crate::own_thread::OwnThread;

/// Bounds of a datagram socket's buffer: the usual default, and 64 MiB.
const LEAST_BUFFER: usize = 212_992;
const MOST_BUFFER: usize = 64 << 20;
/// How long a receiver waits for a message that may have been lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// `network/framed-estafette` and its siblings.
pub(super) struct Estafette {
    name: &'static str,
    stands_on: &'static str,
    /// The scheme of its addresses.
    scheme: &'static str,
}

pub(super) const FRAMED: Estafette = Estafette {
    name: "network/framed-estafette",
    stands_on: "estafette-net: tcp+msg:// on 127.0.0.1, a batch for a stream",
    scheme: "tcp+msg",
};

pub(super) const UNIX: Estafette = Estafette {
    name: "network/unix-framed-estafette",
    stands_on: "estafette-net: unix+msg://, a batch for a stream",
    scheme: "unix+msg",
};

pub(super) const WS: Estafette = Estafette {
    name: "network/ws-estafette",
    stands_on: "estafette-net: ws:// on 127.0.0.1, masked by the client, a batch for a stream",
    scheme: "ws",
};

pub(super) const UDP: Estafette =
    Estafette { name: "network/udp-estafette", stands_on: "estafette-net: udp:// on 127.0.0.1", scheme: "udp" };

impl Estafette {
    fn is_lossy(&self) -> bool {
        self.scheme == "udp"
    }
}

impl Mechanism for Estafette {
    fn spec(&self) -> Spec {
        let spec = Spec::new(self.name)
            .version(env!("LOCKED_ESTAFETTE_NET"))
            .stands_on(self.stands_on)
            .waits(&[Wait::Block, Wait::Adaptive])
            .joins(Joins::Standard);
        if self.is_lossy() { spec.max_message(65_507).ordering(Ordering::Unordered).loss(Loss::Counted) } else { spec }
    }
}

impl Carries<Raw> for Estafette {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let mut limits = Limits::default();
        limits.message = limits.message.max(case.payload.len());
        let mut node = Node::with_limits(limits)?;
        if case.wait == Wait::Adaptive {
            node = node.spin(SPIN);
        }
        let handle = node.handle();
        let state =
            State { peer: None, connected: false, drained: false, inbox: VecDeque::new(), lossy: self.is_lossy() };
        let mut side = Side { node, state };
        if let Role::Consumer(_) = role {
            let place = match self.scheme {
                "unix+msg" => format!("unix+msg://{}", meet.dir().join("socket").display()),
                scheme => format!("{scheme}://127.0.0.1:0"),
            };
            let options = if self.is_lossy() {
                // As many messages as the case lets be under way; the kernel gives what `net.core.rmem_max` allows.
                let wanted = case.capacity.saturating_mul(case.payload.len());
                Options::default().buffer(wanted.clamp(LEAST_BUFFER, MOST_BUFFER))
            } else {
                Options::default()
            };
            let listener = handle.listen_with(place.as_str(), &options)?;
            let address = handle.local_address(listener).context("an address of its own")?;
            meet.offer("address", &address.to_string())?;
        } else {
            let address = meet.want("address")?;
            side.state.peer = Some(handle.connect(address.as_str())?);
        }
        if !self.is_lossy() {
            side.until(|state| state.connected)?;
        }
        let side = Rc::new(RefCell::new(side));
        let tx = Sending {
            side: OwnThread::new(Rc::clone(&side)),
            handle,
            batch: None,
            message: Buffer::new(case.payload.len()),
            together: !self.is_lossy() && together(case),
        };
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(Receiving { side: OwnThread::new(side) }) }]))
    }
}

/// One end of a connection.
struct Side {
    node: Node<()>,
    state: State,
}

/// What the node told, apart from messages.
struct State {
    /// To whom messages go: the peer, or, of a socket that hears several, whoever was heard last.
    peer: Option<Endpoint>,
    connected: bool,
    /// Nothing waits to be sent.
    drained: bool,
    /// Messages that came while there was something else to wait for.
    inbox: VecDeque<Vec<u8>>,
    lossy: bool,
}

impl State {
    /// Takes note of an event. Of a message, if it is one.
    #[inline(always)]
    fn note<'a>(&mut self, event: Event<'a, ()>) -> io::Result<Option<Message<'a>>> {
        match event {
            Event::Message(from, message) => {
                self.peer = Some(from);
                return Ok(Some(message));
            }
            Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                self.peer = Some(endpoint);
                self.connected = true;
            }
            Event::Drained(_) => self.drained = true,
            Event::Closed { reason, .. } => {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, reason.to_string()));
            }
            Event::Signal(()) => {}
        }
        Ok(None)
    }
}

impl Side {
    /// Drives the node until something holds. Messages that come are kept.
    #[cold]
    fn until(&mut self, holds: impl Fn(&State) -> bool) -> io::Result<()> {
        while !holds(&self.state) {
            if let Some(event) = self.node.next(None)?
                && let Some(message) = self.state.note(event)?
            {
                self.state.inbox.push_back(message.take());
            }
        }
        Ok(())
    }

    /// Looks at the next message.
    #[inline(always)]
    fn read_into(&mut self, seen: &mut Verifier) -> io::Result<()> {
        if let Some(message) = self.state.inbox.pop_front() {
            seen.bytes(&message);
            return Ok(());
        }
        let timeout = self.state.lossy.then_some(PATIENCE);
        loop {
            match self.node.next(timeout)? {
                Some(event) => {
                    if let Some(message) = self.state.note(event)? {
                        seen.bytes(&message);
                        return Ok(());
                    }
                }
                None => return Err(ErrorKind::TimedOut.into()),
            }
        }
    }
}

/// What became of something that was to be sent, where it was taken: whether it has left.
fn taken(outcome: Outcome) -> io::Result<bool> {
    match outcome {
        Outcome::Sent => Ok(true),
        Outcome::Queued => Ok(false),
        Outcome::Full => Err(ErrorKind::WouldBlock.into()),
        Outcome::Closed => Err(ErrorKind::BrokenPipe.into()),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

/// The sending end.
pub(super) struct Sending {
    side: OwnThread<Rc<RefCell<Side>>>,
    handle: Handle,
    /// Of a stream.
    batch: Option<Batch>,
    message: Buffer,
    /// Whether messages wait for others.
    together: bool,
}

impl Sending {
    fn peer(&self) -> io::Result<Endpoint> {
        self.side.borrow().state.peer.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Waits until nothing waits to be sent.
    fn drained(&self) -> io::Result<()> {
        self.side.borrow_mut().until(|state| state.drained)
    }

    #[inline(always)]
    fn send(&mut self, next: &mut Generator) -> io::Result<()> {
        next.fill(&mut self.message);
        let peer = self.peer()?;
        loop {
            self.side.borrow_mut().state.drained = false;
            match taken(self.handle.send(peer, &self.message)) {
                Ok(true) => return Ok(()),
                // The peer may wait for the rest of it.
                Ok(false) => return self.drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.drained()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds a message to those that leave together.
    #[inline(always)]
    fn add(&mut self, next: &mut Generator) -> io::Result<()> {
        let peer = self.peer()?;
        let mut batch = self.batch.take().unwrap_or_else(|| self.handle.batch(peer));
        if batch.len() + self.message.len() > batch.most() {
            self.flush_batch(&mut batch)?;
        }
        taken(batch.push_with(self.message.len(), |message| next.fill(message)))?;
        self.batch = Some(batch);
        Ok(())
    }

    fn flush_batch(&mut self, batch: &mut Batch) -> io::Result<()> {
        loop {
            self.side.borrow_mut().state.drained = false;
            match taken(batch.flush()) {
                Ok(true) => return Ok(()),
                Ok(false) => return self.drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.drained()?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(if self.together { self.add(next) } else { self.send(next) })
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self.batch.take() {
            Some(mut batch) => self.flush_batch(&mut batch),
            None => Ok(()),
        })
    }
}

/// The receiving end.
pub(super) struct Receiving {
    side: OwnThread<Rc<RefCell<Side>>>,
}

impl Rx for Receiving {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.side.borrow_mut().read_into(seen))
    }
}
