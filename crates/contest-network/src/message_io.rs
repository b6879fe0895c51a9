//! message-io with each of its transports, polled by the receiving thread.
//!
//! The library delivers messages until it finds no more. With a sender that is faster, it never
//! returns. So a producer has credit for the requested capacity, and gets it back when the library
//! has returned. A producer that finds the socket full tries again in a loop, as the library does.
//!
//! With several connections, each has that capacity. The credit is in a pipe, so between two hosts
//! there are only round trips, which need none.
//!
//! Three restrictions come from version 0.19 of the library:
//!
//! - Of WebSocket messages that arrive together, it delivers the first one, and the others only
//!   when more data arrives (its pull request 185, not released yet). So this row only has round
//!   trips.
//! - It writes a frame's length and its message separately, without `TCP_NODELAY`. A short message
//!   waits until the length is acknowledged, which a system delays by about 40 ms.
//! - For the same reason it does not support the pattern `writers`. If two threads send to one
//!   connection, a length may be written between the other thread's length and message. In tests
//!   the first messages were damaged every time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ::message_io::adapters::udp::UdpConnectConfig;
use ::message_io::network::{
    self, Endpoint, NetEvent, NetworkController, NetworkProcessor, SendStatus, TransportConnect, split,
};
use anyhow::{Context, Result, ensure};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_measure::case::{Case, Cell, Load, Pattern, Place, Role};
use estafette_measure::spec::{Loss, Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

use super::multi_connection;
use super::reassembly::Reassembly;
use super::udp::{MAX_DATAGRAM, recv_timeout};

/// The longest message in bytes that the library's WebSocket receives: tungstenite's default
/// maximum of a frame.
const MAX_FRAME: usize = 16 << 20;

const ALL: &[Pattern] = &[Pattern::PingPong, Pattern::Stream, Pattern::SameThread];

/// `network/message-io-tcp`, `-framed`, `-udp` or `-ws`.
pub(super) struct MessageIo {
    name: &'static str,
    implementation: &'static str,
    transport: network::Transport,
}

pub(super) const TCP: MessageIo = MessageIo {
    name: "network/message-io-tcp",
    implementation: "message-io: Tcp, send and process_poll_event; messages reassembled",
    transport: network::Transport::Tcp,
};

pub(super) const FRAMED: MessageIo = MessageIo {
    name: "network/message-io-framed",
    implementation: "message-io: FramedTcp, send and process_poll_event",
    transport: network::Transport::FramedTcp,
};

pub(super) const UDP: MessageIo = MessageIo {
    name: "network/message-io-udp",
    implementation: "message-io: Udp, send and process_poll_event",
    transport: network::Transport::Udp,
};

pub(super) const WS: MessageIo = MessageIo {
    name: "network/message-io-ws",
    implementation: "message-io: Ws, send and process_poll_event",
    transport: network::Transport::Ws,
};

impl Mechanism for MessageIo {
    fn spec(&self) -> Spec {
        let spec = Spec::new(self.name)
            .version(env!("LOCKED_MESSAGE_IO"))
            .implementation(self.implementation)
            .between_hosts(true)
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

    fn supports(&self, case: &Case) -> Result<(), String> {
        if case.place == Place::OtherHost && !case.pattern.is_bidirectional() && !self.is_lossy() {
            return Err(String::from("its senders need credit, which comes through a pipe of one host"));
        }
        Ok(())
    }
}

impl Transport<Raw> for MessageIo {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let (controller, mut processor) = split();
        let connections = multi_connection::connections(case, role);
        let peers = self.connect(&controller, &mut processor, connections, role, rendezvous)?;
        let lossy = self.is_lossy();
        let credited = credited(case);
        let (mut spend, mut refund) = (None, None);
        if !lossy && !case.pattern.is_bidirectional() {
            match role {
                Role::Consumer(index) => refund = Some(Refund::open(&credited, index, rendezvous)?),
                _ => spend = Some(Spend::open(&credited, rendezvous)?),
            }
        }
        let len = case.payload.len();
        let tx = SendEnd { controller, peers, message: Buffer::new(len), credit: spend };
        let reassembly = (self.transport == network::Transport::Tcp).then(|| Reassembly::new(len));
        let batched = case.load == Load::Saturated && !case.pattern.is_round_trip();
        let inbox = Inbox { reassembly, batched, verified: 0, queued: VecDeque::new(), open_connections: connections };
        let rx = RecvEnd { processor, inbox, timeout: lossy.then(|| recv_timeout(case)), credit: refund };
        Ok(Ends::both(role, tx, rx))
    }
}

/// Returns the case with the capacity of all connections, for the credit.
fn credited(case: &Case) -> Case {
    let each = if case.pattern == Pattern::Connections { case.producers } else { 1 };
    let cell = Cell { capacity: case.capacity * each, ..case.cell.clone() };
    Case { cell, ..case.clone() }
}

impl MessageIo {
    fn is_lossy(&self) -> bool {
        self.transport == network::Transport::Udp
    }

    /// Connects the two parties with `connections` connections. Returns the endpoints that this
    /// party sends to.
    fn connect(
        &self,
        controller: &NetworkController,
        processor: &mut NetworkProcessor,
        connections: usize,
        role: Role,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<Endpoint>> {
        if role == Role::All {
            return Ok(vec![self.connect_to_itself(controller, processor)?]);
        }
        if let Role::Consumer(_) = role {
            let (listener, address) =
                controller.listen(self.transport, (rendezvous.address(), 0)).context("listening")?;
            rendezvous.publish("address", &address.to_string())?;
            if self.is_lossy() {
                let theirs: SocketAddr = rendezvous.request("reply")?.parse()?;
                return Ok(vec![Endpoint::from_listener(listener, theirs)]);
            }
            return Ok(collect_events(processor, connections, |event| match event {
                NetEvent::Accepted(endpoint, _) => Some(endpoint),
                _ => None,
            }));
        }
        let address: SocketAddr = rendezvous.request("address")?.parse()?;
        for _ in 0..connections {
            let (_, ours) = match self.is_lossy() {
                true => controller.connect_with(bound_to(rendezvous.address()), address),
                false => controller.connect(self.transport, address),
            }
            .context("connecting")?;
            if self.is_lossy() {
                rendezvous.publish("reply", &ours.to_string())?;
            }
        }
        let connections = collect_events(processor, connections, |event| match event {
            NetEvent::Connected(endpoint, connected) => Some((endpoint, connected)),
            _ => None,
        });
        ensure!(connections.iter().all(|(_, connected)| *connected), "message-io could not connect to {address}");
        Ok(connections.into_iter().map(|(endpoint, _)| endpoint).collect())
    }

    /// Connects a node to itself. Returns the endpoint to send to.
    fn connect_to_itself(&self, controller: &NetworkController, processor: &mut NetworkProcessor) -> Result<Endpoint> {
        let (_, address) = controller.listen(self.transport, "127.0.0.1:0").context("listening")?;
        let (endpoint, _) = controller.connect(self.transport, address).context("connecting")?;
        let ends = if self.is_lossy() { 1 } else { 2 };
        collect_events(processor, ends, |event| match event {
            NetEvent::Connected(_, true) | NetEvent::Accepted(..) => Some(()),
            _ => None,
        });
        Ok(endpoint)
    }
}

/// The configuration of a datagram socket that replies reach at this address.
fn bound_to(address: IpAddr) -> TransportConnect {
    TransportConnect::Udp(UdpConnectConfig::default().with_source_address(SocketAddr::new(address, 0)))
}

/// Polls until `select` has returned a value for `count` events.
fn collect_events<T>(
    processor: &mut NetworkProcessor,
    count: usize,
    select: impl Fn(NetEvent<'_>) -> Option<T>,
) -> Vec<T> {
    let mut found = Vec::new();
    while found.len() < count {
        processor.process_poll_event(None, |event| found.extend(select(event)));
    }
    found
}

/// The sending end.
pub(super) struct SendEnd {
    controller: NetworkController,
    /// One endpoint, or one for each connection.
    peers: Vec<Endpoint>,
    message: Buffer,
    credit: Option<Spend>,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        let peer = self.peers[source.producer().min(self.peers.len() - 1)];
        source.fill(&mut self.message);
        match self.controller.send(peer, &self.message) {
            SendStatus::Sent => Ok(()),
            // For datagrams: nobody listens at the address.
            SendStatus::ResourceNotFound => Err(ErrorKind::ConnectionRefused.into()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    processor: NetworkProcessor,
    inbox: Inbox,
    /// How long to wait for a message that may have been lost.
    timeout: Option<Duration>,
    credit: Option<Refund>,
}

impl Rx for RecvEnd {
    /// Verifies the next message. In a stream it verifies all messages that arrive with it.
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.inbox.verified = 0;
        if let Some(message) = self.inbox.queued.pop_front() {
            self.inbox.verify(&message, verifier);
        }
        let mut waiting_since = None;
        while self.inbox.verified == 0 {
            if self.inbox.open_connections == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.processor.process_poll_event(self.timeout, |event| self.inbox.handle_event(event, verifier));
            // The library also returns for internal events.
            if let (Some(timeout), 0) = (self.timeout, self.inbox.verified)
                && waiting_since.get_or_insert_with(Instant::now).elapsed() > timeout
            {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        match &mut self.credit {
            Some(credit) => (0..self.inbox.verified).try_for_each(|_| credit.give()),
            None => Ok(()),
        }
    }
}

/// The messages that the library delivers.
struct Inbox {
    /// Reassembles messages on a transport without message boundaries.
    reassembly: Option<Reassembly>,
    /// Whether all messages that arrive are verified immediately. False if the time of each receive
    /// matters.
    batched: bool,
    /// The number of messages verified in the current receive.
    verified: usize,
    /// Messages that were received but not requested yet.
    queued: VecDeque<Vec<u8>>,
    /// The number of peers that have not disconnected.
    open_connections: usize,
}

impl Inbox {
    #[inline(always)]
    fn handle_event(&mut self, event: NetEvent<'_>, verifier: &mut Verifier) {
        match event {
            NetEvent::Message(_, message) => match self.reassembly.take() {
                None => self.add(message, verifier),
                Some(mut reassembly) => {
                    reassembly.push(message, |message| self.add(message, verifier));
                    self.reassembly = Some(reassembly);
                }
            },
            NetEvent::Disconnected(_) => self.open_connections = self.open_connections.saturating_sub(1),
            NetEvent::Accepted(..) | NetEvent::Connected(..) => {}
        }
    }

    #[inline(always)]
    fn add(&mut self, message: &[u8], verifier: &mut Verifier) {
        if self.batched || self.verified == 0 {
            self.verify(message, verifier);
        } else {
            self.queued.push_back(message.to_vec());
        }
    }

    #[inline(always)]
    fn verify(&mut self, message: &[u8], verifier: &mut Verifier) {
        verifier.bytes(message);
        self.verified += 1;
    }
}
