//! message-io, by each of its transports, polled by the thread that receives.
//!
//! It hands over all that it finds, until it finds nothing more: from somebody who sends faster than that, it never returns. So a
//! producer has credit for as many messages as the case lets be under way, and is given it back once the library has returned.
//! A producer that finds no room in the socket tries again and again, as the library does.
//!
//! Of several connections each may have as much under way.
//!
//! Three things are the library's in its version 0.19. Of the messages of a WebSocket that arrive together it hands over the first,
//! and the others once more arrives (its pull request 185, not released yet): so there are round trips alone. And it writes a
//! frame's length and its message apart, without `TCP_NODELAY`: a short one waits until the length has been acknowledged, which
//! a system delays for some 40 ms. For the same reason it does not play the pattern `writers`: of two threads that send to
//! one connection, one's length may come between the other's length and message, and the first messages were damaged every time.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ::message_io::network::{self, Endpoint, NetEvent, NetworkController, NetworkProcessor, SendStatus, split};
use anyhow::{Context, Result, ensure};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_measure::case::{Case, Cell, Load, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

use super::multi_connection;
use super::reassembly::Reassembly;
use super::udp::{MAX_DATAGRAM, PATIENCE};

/// The longest message that the library's WebSocket receives: the longest frame of tungstenite, unless told otherwise.
const MAX_FRAME: usize = 16 << 20;

const ALL: &[Pattern] = &[Pattern::PingPong, Pattern::Stream, Pattern::SameThread];

/// `network/message-io-tcp` and its siblings.
pub(super) struct MessageIo {
    name: &'static str,
    implementation: &'static str,
    transport: network::Transport,
}

pub(super) const TCP: MessageIo = MessageIo {
    name: "network/message-io-tcp",
    implementation: "message-io: Tcp on 127.0.0.1, send and process_poll_event; messages put together from what comes",
    transport: network::Transport::Tcp,
};

pub(super) const FRAMED: MessageIo = MessageIo {
    name: "network/message-io-framed",
    implementation: "message-io: FramedTcp on 127.0.0.1, send and process_poll_event",
    transport: network::Transport::FramedTcp,
};

pub(super) const UDP: MessageIo = MessageIo {
    name: "network/message-io-udp",
    implementation: "message-io: Udp on 127.0.0.1, send and process_poll_event",
    transport: network::Transport::Udp,
};

pub(super) const WS: MessageIo = MessageIo {
    name: "network/message-io-ws",
    implementation: "message-io: Ws on 127.0.0.1, send and process_poll_event",
    transport: network::Transport::Ws,
};

impl Mechanism for MessageIo {
    fn spec(&self) -> Spec {
        let spec = Spec::new(self.name)
            .version(env!("LOCKED_MESSAGE_IO"))
            .implementation(self.implementation)
            .tier(Tier::Suite);
        match self.transport {
            network::Transport::Tcp => spec.patterns(ALL),
            network::Transport::FramedTcp => spec
                .patterns(&[ALL, &[Pattern::FanIn, Pattern::Connections]].concat())
                .max_producers(None)
                .ordering(Ordering::PerProducer),
            network::Transport::Udp => {
                spec.patterns(ALL).max_message(MAX_DATAGRAM).ordering(Ordering::Unordered).loss(Loss::BestEffort)
            }
            network::Transport::Ws => spec.max_message(MAX_FRAME).patterns(&[Pattern::PingPong, Pattern::SameThread]),
        }
    }
}

impl Transport<Raw> for MessageIo {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let (controller, mut processor) = split();
        let connections = multi_connection::connections(case, role);
        let peers = self.join(&controller, &mut processor, connections, role, rendezvous)?;
        let lossy = self.is_lossy();
        let credited = credited(case);
        let (mut spend, mut refund) = (None, None);
        if !lossy && !case.pattern.both_ways() {
            match role {
                Role::Consumer(index) => refund = Some(Refund::open(&credited, index, rendezvous)?),
                _ => spend = Some(Spend::open(&credited, rendezvous)?),
            }
        }
        let len = case.payload.len();
        let tx = Sending { controller, peers, message: Buffer::new(len), credit: spend };
        let pieces = (self.transport == network::Transport::Tcp).then(|| Reassembly::new(len));
        let together = case.load == Load::Saturated && !case.pattern.asks();
        let inbox = Inbox { pieces, together, shown: 0, others: VecDeque::new(), left: connections };
        let rx = Receiving { processor, inbox, patience: lossy.then_some(PATIENCE), credit: refund };
        Ok(Ends::both(role, tx, rx))
    }
}

/// The case whose credit is given: of each connection.
fn credited(case: &Case) -> Case {
    let each = if case.pattern == Pattern::Connections { case.producers } else { 1 };
    let cell = Cell { capacity: case.capacity * each, ..case.cell.clone() };
    Case { cell, ..case.clone() }
}

impl MessageIo {
    fn is_lossy(&self) -> bool {
        self.transport == network::Transport::Udp
    }

    /// Joins the two parties by so many connections. Returns whom this one sends to.
    fn join(
        &self,
        controller: &NetworkController,
        processor: &mut NetworkProcessor,
        connections: usize,
        role: Role,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<Endpoint>> {
        if role == Role::All {
            return Ok(vec![self.join_itself(controller, processor)?]);
        }
        if let Role::Consumer(_) = role {
            let (listener, address) = controller.listen(self.transport, "127.0.0.1:0").context("listening")?;
            rendezvous.publish("address", &address.to_string())?;
            if self.is_lossy() {
                let theirs: SocketAddr = rendezvous.request("reply")?.parse()?;
                return Ok(vec![Endpoint::from_listener(listener, theirs)]);
            }
            return Ok(joined(processor, connections, |event| match event {
                NetEvent::Accepted(endpoint, _) => Some(endpoint),
                _ => None,
            }));
        }
        let address: SocketAddr = rendezvous.request("address")?.parse()?;
        for _ in 0..connections {
            let (_, ours) = controller.connect(self.transport, address).context("connecting")?;
            if self.is_lossy() {
                // It is bound to any address of the machine; the other end sees it at this one.
                rendezvous.publish("reply", &SocketAddr::new(address.ip(), ours.port()).to_string())?;
            }
        }
        let tried = joined(processor, connections, |event| match event {
            NetEvent::Connected(endpoint, connected) => Some((endpoint, connected)),
            _ => None,
        });
        ensure!(tried.iter().all(|(_, connected)| *connected), "message-io could not connect to {address}");
        Ok(tried.into_iter().map(|(endpoint, _)| endpoint).collect())
    }

    /// Joins a node to itself. Returns the end that sends.
    fn join_itself(&self, controller: &NetworkController, processor: &mut NetworkProcessor) -> Result<Endpoint> {
        let (_, address) = controller.listen(self.transport, "127.0.0.1:0").context("listening")?;
        let (endpoint, _) = controller.connect(self.transport, address).context("connecting")?;
        let ends = if self.is_lossy() { 1 } else { 2 };
        joined(processor, ends, |event| match event {
            NetEvent::Connected(_, true) | NetEvent::Accepted(..) => Some(()),
            _ => None,
        });
        Ok(endpoint)
    }
}

/// Polls until there were so many events that `sought` finds something in.
fn joined<T>(processor: &mut NetworkProcessor, count: usize, sought: impl Fn(NetEvent<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    while found.len() < count {
        processor.process_poll_event(None, |event| found.extend(sought(event)));
    }
    found
}

/// The sending end.
pub(super) struct Sending {
    controller: NetworkController,
    /// One, or that of each connection.
    peers: Vec<Endpoint>,
    message: Buffer,
    credit: Option<Spend>,
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        let peer = self.peers[source.producer().min(self.peers.len() - 1)];
        source.fill(&mut self.message);
        match self.controller.send(peer, &self.message) {
            SendStatus::Sent => Ok(()),
            // Of datagrams, that nobody is there.
            SendStatus::ResourceNotFound => Err(ErrorKind::ConnectionRefused.into()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }
}

/// The receiving end.
pub(super) struct Receiving {
    processor: NetworkProcessor,
    inbox: Inbox,
    /// How long to wait for a message, where it may have been lost.
    patience: Option<Duration>,
    credit: Option<Refund>,
}

impl Receiving {
    /// Looks at the next message, and of a stream at all that come with it.
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.inbox.shown = 0;
        if let Some(message) = self.inbox.others.pop_front() {
            self.inbox.show(&message, verifier);
        }
        let mut waits_since = None;
        while self.inbox.shown == 0 {
            if self.inbox.left == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.processor.process_poll_event(self.patience, |event| self.inbox.note(event, verifier));
            // It returns for events of its own, too.
            if let (Some(patience), 0) = (self.patience, self.inbox.shown)
                && waits_since.get_or_insert_with(Instant::now).elapsed() > patience
            {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        match &mut self.credit {
            Some(credit) => (0..self.inbox.shown).try_for_each(|_| credit.give()),
            None => Ok(()),
        }
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}

/// What the library hands over.
struct Inbox {
    /// Where messages have no bounds.
    pieces: Option<Reassembly>,
    /// Whether all that come are looked at as they do: nobody asks when each came.
    together: bool,
    /// How many have been, since somebody asked for one.
    shown: usize,
    /// Those that wait to be asked for.
    others: VecDeque<Vec<u8>>,
    /// How many peers have not gone.
    left: usize,
}

impl Inbox {
    #[inline(always)]
    fn note(&mut self, event: NetEvent<'_>, verifier: &mut Verifier) {
        match event {
            NetEvent::Message(_, message) => match self.pieces.take() {
                None => self.add(message, verifier),
                Some(mut pieces) => {
                    pieces.whole(message, |message| self.add(message, verifier));
                    self.pieces = Some(pieces);
                }
            },
            NetEvent::Disconnected(_) => self.left = self.left.saturating_sub(1),
            NetEvent::Accepted(..) | NetEvent::Connected(..) => {}
        }
    }

    #[inline(always)]
    fn add(&mut self, message: &[u8], verifier: &mut Verifier) {
        if self.together || self.shown == 0 {
            self.show(message, verifier);
        } else {
            self.others.push_back(message.to_vec());
        }
    }

    #[inline(always)]
    fn show(&mut self, message: &[u8], verifier: &mut Verifier) {
        verifier.bytes(message);
        self.shown += 1;
    }
}
