//! zenoh between two peers without a router: over a UNIX socket with the payload in the stream;
//! over a UNIX socket with the payload in zenoh's shared memory and its location in the stream; and
//! over TCP.
//!
//! The ends use the library's blocking calls, which it offers in addition to futures. Threads of
//! its own runtime read and write the sockets. Received messages wait in the library's bounded
//! queue. When that is full, the sender has to wait.
//!
//! A payload in shared memory is lost if its location is in flight for more than 100 ms, for
//! example to a receiver whose queue is full or which gets no processor time. Nobody confirms the
//! payload's use then, and the sender's watchdog reclaims it (zenoh issue 2628). So losses are
//! counted, and messages are sent no faster than they arrive.

use std::io::{self, Read};
use std::mem;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ::zenoh::bytes::ZBytes;
use ::zenoh::handlers::{FifoChannel, FifoChannelHandler};
use ::zenoh::pubsub::{Publisher, Subscriber};
use ::zenoh::qos::{CongestionControl, Reliability};
use ::zenoh::sample::Sample;
use ::zenoh::shm::{BlockOn, GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder};
use ::zenoh::{Config, Session, Wait};
use anyhow::{Result, anyhow, bail};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::slots;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering, Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

use super::share::share;

/// How long a publisher waits for its subscriber.
const MATCH_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a receiver waits for a message that may have been lost.
const LOST_AFTER: Duration = Duration::from_millis(20);
/// The allocator's own use of shared memory in bytes: in total, and per message at most.
const OVERHEAD: [usize; 2] = [64 << 10, 128];

/// `process/zenoh-unix`, `process/zenoh-shm` or `network/zenoh`.
pub(crate) struct Zenoh {
    name: &'static str,
    implementation: &'static str,
    shared: bool,
    lower_transport: LowerTransport,
}

/// The transport below zenoh.
#[derive(Clone, Copy, PartialEq)]
enum LowerTransport {
    Unix,
    Tcp,
}

pub(super) const UNIX: Zenoh = Zenoh {
    name: "process/zenoh-unix",
    implementation: "zenoh between peers over a UNIX socket: put and recv, reliable, congestion control `block`",
    shared: false,
    lower_transport: LowerTransport::Unix,
};

pub(crate) const NETWORK: Zenoh = Zenoh {
    name: "network/zenoh",
    implementation: "zenoh between peers over TCP: put and recv, reliable, congestion control `block`",
    lower_transport: LowerTransport::Tcp,
    ..UNIX
};

pub(super) const SHM: Zenoh = Zenoh {
    name: "process/zenoh-shm",
    implementation: "zenoh between peers, payloads in its shared memory: alloc, put and recv; a sender that finds it full sleeps and looks again",
    shared: true,
    ..UNIX
};

impl Mechanism for Zenoh {
    fn spec(&self) -> Spec {
        let (ownership, loss) = match self.shared {
            true => (Ownership::Loaned, Loss::BestEffort),
            false => (Ownership::Borrowed, Loss::Never),
        };
        Spec::new(self.name)
            .any_language(true)
            .version(env!("LOCKED_ZENOH"))
            .implementation(self.implementation)
            .kernel_copies(if self.shared { 0 } else { 2 })
            .loss(loss)
            .ownership(ownership)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn, Pattern::PubSub])
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .between_hosts(self.lower_transport == LowerTransport::Tcp)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Zenoh {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let has_reply = case.pattern.is_bidirectional();
        let is_consumer = matches!(role, Role::Consumer(_));
        // All others connect to the party that listens.
        let listens = is_consumer != (case.pattern == Pattern::PubSub);
        let session = self.session(listens, rendezvous)?;
        let (rx_key, tx_key) = if is_consumer { ("forward", "reply") } else { ("reply", "forward") };
        let rx = match is_consumer || has_reply {
            true => Some(self.subscribe(&session, rx_key, role, case)?),
            false => None,
        };
        let tx = match !is_consumer || has_reply {
            true => Some(self.publish(&session, tx_key, case)?),
            false => None,
        };
        // Closing the session would discard messages in flight. It ends with the process, which
        // exits after everything is received.
        mem::forget(session);
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

#[cold]
fn fault(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

#[cold]
fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl Zenoh {
    /// Opens a session. The listening peer publishes its endpoint, the others connect to it, and
    /// none searches for others.
    fn session(&self, listens: bool, rendezvous: &mut Rendezvous) -> Result<Session> {
        // The library creates shared memory even without payloads in it. The coordinator recognises
        // its owner by the locks on it; the library itself removes what dead programs have left.
        rendezvous.shared_memory("*.zenoh")?;
        let endpoint = match (listens, self.lower_transport) {
            (false, _) => rendezvous.request("peer")?,
            (true, LowerTransport::Unix) => {
                format!("unixsock-stream/{}", rendezvous.dir().join("socket").display())
            }
            (true, LowerTransport::Tcp) => format!("tcp/{}", SocketAddr::new(rendezvous.address(), 0)),
        };
        let endpoints = format!("[\"{endpoint}\"]");
        let mut config = Config::default();
        let mut set =
            |key: &str, value: &str| config.insert_json5(key, value).map_err(|error| fault(format!("{key}: {error}")));
        set("mode", "\"peer\"")?;
        set("scouting/multicast/enabled", "false")?;
        set("scouting/gossip/enabled", "false")?;
        set("listen/endpoints", if listens { &endpoints } else { "[]" })?;
        set("connect/endpoints", if listens { "[]" } else { &endpoints })?;
        set("transport/shared_memory/enabled", if self.shared { "true" } else { "false" })?;
        set("transport/shared_memory/mode", "\"init\"")?;
        // This program itself writes payloads to shared memory.
        set("transport/shared_memory/transport_optimization/enabled", "false")?;
        let session = ::zenoh::open(config).wait().map_err(|error| fault(format!("opening a session: {error}")))?;
        if listens {
            // The locator contains the actual port.
            let locators = session.info().locators().wait();
            rendezvous
                .publish("peer", locators.first().ok_or_else(|| fault("the session has no locator"))?.as_str())?;
        }
        Ok(session)
    }

    fn publish(&self, session: &Session, key: &'static str, case: &Case) -> Result<SendEnd> {
        let publisher = session
            .declare_publisher(key)
            .congestion_control(CongestionControl::Block)
            .reliability(Reliability::Reliable)
            .wait()
            .map_err(fault)?;
        let subscribers = if case.pattern == Pattern::PubSub { case.consumers() } else { 1 };
        (0..subscribers).try_for_each(|index| wait_for(session, &marker_key(key, index)))?;
        let len = case.payload.len();
        let source = match self.shared {
            true => Source::Shared(provider(case)?, len),
            false => Source::Own(Buffer::new(len)),
        };
        Ok(SendEnd { publisher, source })
    }

    fn subscribe(&self, session: &Session, key: &'static str, role: Role, case: &Case) -> Result<RecvEnd> {
        let queue = FifoChannel::new(slots(case));
        let messages = session.declare_subscriber(key).with(queue).wait().map_err(fault)?;
        let index = if let Role::Consumer(index) = role { index } else { 0 };
        let marker =
            session.declare_subscriber(marker_key(key, index)).with(FifoChannel::new(1)).wait().map_err(fault)?;
        let timeout = self.shared.then_some(LOST_AFTER);
        Ok(RecvEnd { messages, timeout, joined: Buffer::new(case.payload.len()), _marker: marker })
    }
}

/// Creates shared memory for the case's capacity. Several producers share that capacity.
fn provider(case: &Case) -> Result<Provider> {
    let [once, each] = OVERHEAD;
    let size = once + share(case) * (case.payload.len() + each);
    ShmProviderBuilder::default_backend(size)
        .wait()
        .map_err(|error| fault(format!("{size} bytes of shared memory: {error}")))
}

/// Returns the marker key of a subscriber, to which it subscribes after the key itself. A publisher
/// that sees the marker has also seen the subscription to the key. For the key itself the library
/// does not report the number of subscribers.
fn marker_key(key: &str, index: usize) -> String {
    format!("{key}-{index}")
}

/// Waits for a subscriber. Messages that are published before go nowhere.
fn wait_for(session: &Session, key: &str) -> Result<()> {
    let publisher = session.declare_publisher(key.to_owned()).wait().map_err(fault)?;
    let deadline = Instant::now() + MATCH_TIMEOUT;
    while !publisher.matching_status().wait().map_err(fault)?.matching() {
        if Instant::now() > deadline {
            bail!("a publisher found no subscriber to `{key}` in time");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

type Provider = ShmProvider<PosixShmProviderBackend>;

/// Where a message is written.
enum Source {
    Own(Buffer),
    Shared(Provider, usize),
}

/// The sending end.
pub(crate) struct SendEnd {
    publisher: Publisher<'static>,
    source: Source,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let payload: ZBytes = match &mut self.source {
            Source::Own(buffer) => {
                source.fill(buffer);
                ZBytes::from(&buffer[..])
            }
            Source::Shared(provider, len) => {
                let mut slot = provider.alloc(*len).with_policy::<BlockOn<GarbageCollect>>().wait().map_err(other)?;
                source.fill(&mut slot);
                slot.into()
            }
        };
        self.publisher.put(payload).wait().map_err(other)
    }
}

/// The receiving end.
pub(crate) struct RecvEnd {
    messages: Subscriber<FifoChannelHandler<Sample>>,
    /// How long to wait for a message that may have been lost.
    timeout: Option<Duration>,
    /// Collects a message that arrived in several parts.
    joined: Buffer,
    /// The marker subscription that the publisher waits for.
    _marker: Subscriber<FifoChannelHandler<Sample>>,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let sample = match self.timeout {
            None => self.messages.recv().map_err(other)?,
            Some(timeout) => self.messages.recv_timeout(timeout).map_err(other)?.ok_or(io::ErrorKind::TimedOut)?,
        };
        let payload = sample.payload();
        let (len, mut parts) = (payload.len(), payload.slices());
        match parts.next() {
            Some(whole) if whole.len() == len => verifier.bytes(whole),
            // The library would allocate a new vector for each message.
            Some(_) if len == self.joined.len() => {
                payload.reader().read_exact(&mut self.joined)?;
                verifier.bytes(&self.joined);
            }
            _ => verifier.bytes(&payload.to_bytes()),
        }
        Ok(())
    }
}
