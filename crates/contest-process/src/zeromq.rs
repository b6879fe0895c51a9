//! ZeroMQ, over a UNIX socket and over TCP on loopback: a pair of sockets where messages are answered, otherwise those of a
//! pipeline; and the sockets of questions and answers, which take turns.
//!
//! Each context has a thread of its own that reads and writes the sockets: a message changes threads twice more than the
//! kernel's own ways need.

use std::future::{Future, ready};
use std::io;
use std::mem;
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
    /// The endpoint of a consumer; a socket's name in the instance's directory is put after `ipc://`.
    endpoint: &'static str,
    /// The sockets of producer and consumer where messages are answered.
    answered: [SocketType; 2],
}

/// The sockets of producer and consumer where messages go one way.
const ONE_WAY: [SocketType; 2] = [zmq::PUSH, zmq::PULL];

const ALL: &[Pattern] = &[Pattern::PingPong, Pattern::Stream, Pattern::FanIn];

pub(super) const IPC: Zeromq = Zeromq {
    name: "process/zeromq-ipc",
    implementation: "ZeroMQ over a UNIX socket: PAIR, or PUSH and PULL; zmq_msg_send and zmq_msg_recv",
    patterns: ALL,
    endpoint: "ipc://",
    answered: [zmq::PAIR, zmq::PAIR],
};

pub(super) const TCP: Zeromq = Zeromq {
    name: "process/zeromq-tcp",
    implementation: "ZeroMQ over TCP on 127.0.0.1: PAIR, or PUSH and PULL; zmq_msg_send and zmq_msg_recv",
    endpoint: "tcp://127.0.0.1:*",
    ..IPC
};

pub(crate) const NETWORK: Zeromq = Zeromq { name: "network/zeromq", ..TCP };

pub(super) const REQ_REP: Zeromq = Zeromq {
    name: "process/zeromq-req-rep",
    implementation: "ZeroMQ over a UNIX socket: REQ and REP; zmq_msg_send and zmq_msg_recv",
    patterns: &[Pattern::PingPong, Pattern::RequestReply],
    answered: [zmq::REQ, zmq::REP],
    ..IPC
};

/// The version of the C++ library, which is what counts.
pub(super) fn version() -> String {
    let (major, minor, patch) = zmq::version();
    format!("{major}.{minor}.{patch}")
}

/// Limits what may be under way to what the case lets be: half of it at each side. A limit is of each connection, so several
/// senders share.
pub(super) fn limit(socket: &Socket, case: &Case) -> Result<()> {
    // None at all would mean no limit.
    let half = (slots(case) / case.senders() / 2).max(1) as i32;
    socket.set_sndhwm(half)?;
    socket.set_rcvhwm(half)?;
    Ok(())
}

/// Joins the party's socket to those of the others: whoever binds tells where.
pub(super) fn join(socket: &Socket, binds: bool, endpoint: &str, rendezvous: &mut Rendezvous) -> Result<()> {
    if !binds {
        let endpoint = rendezvous.request("endpoint")?;
        return socket.connect(&endpoint).with_context(|| format!("connecting to {endpoint}"));
    }
    let endpoint = match endpoint {
        "ipc://" => format!("ipc://{}", rendezvous.dir().join("socket").display()),
        endpoint => endpoint.to_owned(),
    };
    rendezvous.publish("endpoint", &bind(socket, &endpoint)?)
}

/// Binds a socket. Returns what others connect to.
fn bind(socket: &Socket, endpoint: &str) -> Result<String> {
    socket.bind(endpoint).with_context(|| format!("binding to {endpoint}"))?;
    socket.get_last_endpoint()?.map_err(|_| anyhow!("the endpoint's name is not text"))
}

impl Mechanism for Zeromq {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .version(&version())
            .implementation(self.implementation)
            .patterns(self.patterns)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Standard)
    }

    /// Those in the kernel's buffers between the two limits count, too.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        match self.sockets(case) {
            // A question waits for its answer.
            [zmq::REQ, _] => None,
            sockets => self.tried(sockets, case).ok(),
        }
    }
}

impl Zeromq {
    /// The sockets of producer and consumer.
    fn sockets(&self, case: &Case) -> [SocketType; 2] {
        if case.pattern.both_ways() { self.answered } else { ONE_WAY }
    }

    /// How many messages sockets take, as one sender tries it until it has waited in vain: each of several has as much room.
    fn tried(&self, sockets: [SocketType; 2], case: &Case) -> Result<u64> {
        let context = Context::new();
        let [from, to] = [context.socket(sockets[0])?, context.socket(sockets[1])?];
        for socket in [&from, &to] {
            limit(socket, case)?;
            socket.set_linger(0)?;
        }
        from.set_sndtimeo(capacity::IN_VAIN.as_millis() as i32)?;
        let endpoint = match self.endpoint {
            // Without a file, as there is no directory for it.
            "ipc://" => format!("ipc://@estafette-capacity-{}", std::process::id()),
            endpoint => endpoint.to_owned(),
        };
        from.connect(&bind(&to, &endpoint)?)?;
        let message = Buffer::new(case.payload.len());
        Ok(capacity::times(|| again(|| from.send(&message[..], 0)).is_ok()) * case.senders() as u64)
    }
}

impl Transport<Raw> for Zeromq {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let answered = case.pattern.both_ways();
        let [producer, consumer] = self.sockets(case);
        let consumes = matches!(role, Role::Consumer(_));
        let socket = Context::new().socket(if consumes { consumer } else { producer })?;
        limit(&socket, case)?;
        join(&socket, consumes, self.endpoint, rendezvous)?;
        let socket = stays(socket);
        let buffer = Buffer::new(case.payload.len());
        let tx = (has_reply || !is_consumer).then(|| SendEnd { socket: Shared::new(Rc::clone(&socket)), buffer });
        let rx = (has_reply || is_consumer).then(|| RecvEnd { socket: Shared::new(socket), message: Message::new() });
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// A socket, which both ends of a party may share.
pub(super) type Shared = OwnThread<Rc<Socket>>;

/// A socket that ends with the process, which stays until all has been received. Closed before, it would send all that is
/// under way; but where the receiver has no room just then, and the sockets are UNIX's, the receiver's library sees the hang-up
/// and drops what it has not read yet (libzmq 4.3, `stream_engine_base_t::in_event_internal`).
pub(super) fn stays(socket: Socket) -> Rc<Socket> {
    let socket = Rc::new(socket);
    mem::forget(Rc::clone(&socket));
    socket
}

/// The sending end.
pub(crate) struct Sending {
    pub(super) socket: Shared,
    pub(super) buffer: Buffer,
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.buffer);
        ready(again(|| self.socket.send(&self.buffer[..], 0)))
    }
}

/// The receiving end.
pub(crate) struct Receiving {
    pub(super) socket: Shared,
    pub(super) message: Message,
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(again(|| self.socket.recv(&mut self.message, 0)).map(|()| verifier.bytes(&self.message)))
    }
}

/// Does what a signal may have interrupted.
#[inline(always)]
pub(super) fn again(mut call: impl FnMut() -> zmq::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(zmq::Error::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}
