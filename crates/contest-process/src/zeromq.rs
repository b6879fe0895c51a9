//! ZeroMQ over a UNIX socket and over TCP: PAIR sockets if messages have replies,
//! otherwise the sockets of a pipeline, PUSH and PULL; and REQ and REP, which alternate.
//!
//! Each context has a thread that reads and writes the sockets. So each message changes threads
//! twice more than with the kernel's own mechanisms.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::{self, slots};
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use zmq::{Context, Message, Socket, SocketType};

/// `process/zeromq-ipc`, `process/zeromq-tcp`, `process/zeromq-req-rep` or `network/zeromq`.
pub(crate) struct Zeromq {
    name: &'static str,
    implementation: &'static str,
    patterns: &'static [Pattern],
    lower_transport: LowerTransport,
    /// The socket types of producer and consumer if messages have replies.
    paired_types: [SocketType; 2],
}

/// The transport below ZeroMQ.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LowerTransport {
    Ipc,
    Tcp,
}

/// The socket types of producer and consumer for one-way messages.
const ONE_WAY: [SocketType; 2] = [zmq::PUSH, zmq::PULL];

const ALL: &[Pattern] = &[Pattern::PingPong, Pattern::Stream, Pattern::FanIn];

pub(super) const IPC: Zeromq = Zeromq {
    name: "process/zeromq-ipc",
    implementation: "ZeroMQ over a UNIX socket: PAIR, or PUSH and PULL; zmq_msg_send and zmq_msg_recv",
    patterns: ALL,
    lower_transport: LowerTransport::Ipc,
    paired_types: [zmq::PAIR, zmq::PAIR],
};

pub(super) const TCP: Zeromq = Zeromq {
    name: "process/zeromq-tcp",
    implementation: "ZeroMQ over TCP on 127.0.0.1: PAIR, or PUSH and PULL; zmq_msg_send and zmq_msg_recv",
    lower_transport: LowerTransport::Tcp,
    ..IPC
};

pub(crate) const NETWORK: Zeromq = Zeromq {
    name: "network/zeromq",
    implementation: "ZeroMQ over TCP: PAIR, or PUSH and PULL; zmq_msg_send and zmq_msg_recv",
    ..TCP
};

pub(super) const REQ_REP: Zeromq = Zeromq {
    name: "process/zeromq-req-rep",
    implementation: "ZeroMQ over a UNIX socket: REQ and REP; zmq_msg_send and zmq_msg_recv",
    patterns: &[Pattern::PingPong, Pattern::RequestReply],
    paired_types: [zmq::REQ, zmq::REP],
    ..IPC
};

/// Returns the version of the C++ library, which determines the results.
pub(super) fn version() -> String {
    let (major, minor, patch) = zmq::version();
    format!("{major}.{minor}.{patch}")
}

/// Limits the messages in flight to the requested capacity, half of it at each side. The limit
/// applies per connection, so several senders share it.
pub(super) fn limit(socket: &Socket, case: &Case) -> Result<()> {
    // Zero would mean no limit.
    let half = (slots(case) / case.streams() / 2).max(1) as i32;
    socket.set_sndhwm(half)?;
    socket.set_rcvhwm(half)?;
    Ok(())
}

/// Connects the party's socket to the others. The party that binds publishes the endpoint.
pub(super) fn join(
    socket: &Socket,
    binds: bool,
    lower_transport: LowerTransport,
    rendezvous: &mut Rendezvous,
) -> Result<()> {
    if !binds {
        let endpoint = rendezvous.request("endpoint")?;
        socket.set_ipv6(endpoint.starts_with("tcp://["))?;
        return socket.connect(&endpoint).with_context(|| format!("connecting to {endpoint}"));
    }
    let endpoint = match lower_transport {
        LowerTransport::Ipc => format!("ipc://{}", rendezvous.dir().join("socket").display()),
        LowerTransport::Tcp => any_port(rendezvous.address()),
    };
    socket.set_ipv6(lower_transport == LowerTransport::Tcp && rendezvous.address().is_ipv6())?;
    rendezvous.publish("endpoint", &bind(socket, &endpoint)?)
}

/// Returns the endpoint to listen at any free port of an address.
fn any_port(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("tcp://{address}:*"),
        IpAddr::V6(address) => format!("tcp://[{address}]:*"),
    }
}

/// Binds a socket. Returns the endpoint that others connect to.
fn bind(socket: &Socket, endpoint: &str) -> Result<String> {
    socket.bind(endpoint).with_context(|| format!("binding to {endpoint}"))?;
    socket.get_last_endpoint()?.map_err(|_| anyhow!("the endpoint's name is not text"))
}

impl Mechanism for Zeromq {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .any_language(true)
            .kernel_copies(2)
            .version(&version())
            .implementation(self.implementation)
            .patterns(self.patterns)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .between_hosts(self.name == NETWORK.name)
            .tier(Tier::Standard)
    }

    /// Messages in the kernel's buffers between the two limits count, too.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        match self.sockets(case) {
            // A request waits for its reply.
            [zmq::REQ, _] => None,
            sockets => self.probe_capacity(sockets, case).ok(),
        }
    }
}

impl Zeromq {
    /// The socket types of producer and consumer.
    fn sockets(&self, case: &Case) -> [SocketType; 2] {
        if case.pattern.is_bidirectional() { self.paired_types } else { ONE_WAY }
    }

    /// Probes the capacity in messages: one sender sends until a send times out. Each of several
    /// senders has the same capacity.
    fn probe_capacity(&self, sockets: [SocketType; 2], case: &Case) -> Result<u64> {
        let context = Context::new();
        let [from, to] = [context.socket(sockets[0])?, context.socket(sockets[1])?];
        for socket in [&from, &to] {
            limit(socket, case)?;
            socket.set_linger(0)?;
        }
        from.set_sndtimeo(capacity::IN_VAIN.as_millis() as i32)?;
        let endpoint = match self.lower_transport {
            // Without a file, because there is no directory for it.
            LowerTransport::Ipc => format!("ipc://@estafette-capacity-{}", std::process::id()),
            LowerTransport::Tcp => any_port(Ipv4Addr::LOCALHOST.into()),
        };
        from.connect(&bind(&to, &endpoint)?)?;
        let message = Buffer::new(case.payload.len());
        Ok(capacity::times(|| retry_on_eintr(|| from.send(&message[..], 0)).is_ok()) * case.streams() as u64)
    }
}

impl Transport<Raw> for Zeromq {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let has_reply = case.pattern.is_bidirectional();
        let [producer, consumer] = self.sockets(case);
        let is_consumer = matches!(role, Role::Consumer(_));
        let socket = Context::new().socket(if is_consumer { consumer } else { producer })?;
        limit(&socket, case)?;
        join(&socket, is_consumer, self.lower_transport, rendezvous)?;
        let socket = keep_open(socket);
        let buffer = Buffer::new(case.payload.len());
        let tx = (has_reply || !is_consumer).then(|| SendEnd { socket: Shared::new(Rc::clone(&socket)), buffer });
        let rx = (has_reply || is_consumer).then(|| RecvEnd { socket: Shared::new(socket), message: Message::new() });
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// A socket that both ends of a party may share.
pub(super) type Shared = OwnThread<Rc<Socket>>;

/// Keeps a socket open until the process ends, which is after everything was received.
///
/// If the socket were closed earlier, it would still send the messages in flight. But if a receiver
/// has no free capacity at that moment and uses a UNIX socket, its library sees the hang-up and
/// drops what it has not read (libzmq 4.3, `stream_engine_base_t::in_event_internal`).
pub(super) fn keep_open(socket: Socket) -> Rc<Socket> {
    let socket = Rc::new(socket);
    mem::forget(Rc::clone(&socket));
    socket
}

/// The sending end.
pub(crate) struct SendEnd {
    pub(super) socket: Shared,
    pub(super) buffer: Buffer,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        retry_on_eintr(|| self.socket.send(&self.buffer[..], 0))
    }
}

/// The receiving end.
pub(crate) struct RecvEnd {
    pub(super) socket: Shared,
    pub(super) message: Message,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        retry_on_eintr(|| self.socket.recv(&mut self.message, 0)).map(|()| verifier.bytes(&self.message))
    }
}

/// Repeats a call that a signal has interrupted.
#[inline(always)]
pub(super) fn retry_on_eintr(mut call: impl FnMut() -> zmq::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(zmq::Error::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}
