//! zenoh, two peers and no router, over a UNIX socket: with the payload in the stream, and with the payload in zenoh's shared
//! memory, of which the stream carries the place; and over TCP on loopback.
//!
//! Its ends are driven by the calls that block, as the library offers them beside its futures. Threads of its own runtime read
//! and write the sockets; what arrives waits in the library's own queue of bounded length, whose being full holds the sender
//! up.
//!
//! What lies in the shared memory is lost where its place is on its way for more than 100 ms, as to a receiver that has no room
//! or gets no processor: nobody vouches for it then, and the sender's watchdog takes it back (zenoh's issue 2628). So that
//! losses are counted, and messages sent no faster than they arrive.

use std::future::{Future, ready};
use std::io::{self, Read};
use std::mem;
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

use super::share;

/// How long a publisher waits to hear of its subscriber.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a receiver waits for a message that may have been lost.
const LOST_AFTER: Duration = Duration::from_millis(20);
/// What the allocator of shared memory keeps for itself: in all, and a message at the most.
const OVERHEAD: [usize; 2] = [64 << 10, 128];

/// `process/zenoh-unix`, `process/zenoh-shm` or `network/zenoh`.
pub(crate) struct Zenoh {
    name: &'static str,
    implementation: &'static str,
    shared: bool,
    /// Where a peer listens; a socket's name in the instance's directory is put after `unixsock-stream/`.
    endpoint: &'static str,
}

pub(super) const UNIX: Zenoh = Zenoh {
    name: "process/zenoh-unix",
    implementation: "zenoh between peers over a UNIX socket: put and recv, reliable, congestion control `block`",
    shared: false,
    endpoint: "unixsock-stream/",
};

pub(crate) const NETWORK: Zenoh = Zenoh {
    name: "network/zenoh",
    implementation: "zenoh between peers over TCP on 127.0.0.1: put and recv, reliable, congestion control `block`",
    endpoint: "tcp/127.0.0.1:0",
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
            .version(env!("LOCKED_ZENOH"))
            .implementation(self.implementation)
            .loss(loss)
            .ownership(ownership)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn, Pattern::PubSub])
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Zenoh {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let answered = case.pattern.both_ways();
        let consumes = matches!(role, Role::Consumer(_));
        // The one that all others connect to.
        let listens = consumes != (case.pattern == Pattern::PubSub);
        let session = self.session(listens, rendezvous)?;
        let (hears, says) = if consumes { ("forward", "reply") } else { ("reply", "forward") };
        let rx = match consumes || answered {
            true => Some(self.subscribe(&session, hears, role, case)?),
            false => None,
        };
        let tx = match !consumes || answered {
            true => Some(self.publish(&session, says, case)?),
            false => None,
        };
        // What is under way would go with it: it ends with the process, which stays until all has been received.
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
    /// A peer's session: the consumer's listens, a producer's connects to it, and neither looks for others.
    fn session(&self, listens: bool, rendezvous: &mut Rendezvous) -> Result<Session> {
        // Without payloads in it the library makes some too. Whose, one can see by the locks on them, as the library does that
        // takes away what dead programs left.
        rendezvous.shared_memory("*.zenoh")?;
        let endpoint = match (listens, self.endpoint) {
            (false, _) => rendezvous.request("peer")?,
            (true, "unixsock-stream/") => format!("unixsock-stream/{}", rendezvous.dir().join("socket").display()),
            (true, endpoint) => endpoint.to_owned(),
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
        // What is put into shared memory is put there here.
        set("transport/shared_memory/transport_optimization/enabled", "false")?;
        let session = ::zenoh::open(config).wait().map_err(|error| fault(format!("opening a session: {error}")))?;
        if listens {
            // With the port that it was given.
            let reached = session.info().locators().wait();
            rendezvous.publish("peer", reached.first().ok_or_else(|| fault("it listens nowhere"))?.as_str())?;
        }
        Ok(session)
    }

    fn publish(&self, session: &Session, key: &'static str, case: &Case) -> Result<Sending> {
        let publisher = session
            .declare_publisher(key)
            .congestion_control(CongestionControl::Block)
            .reliability(Reliability::Reliable)
            .wait()
            .map_err(fault)?;
        let subscribers = if case.pattern == Pattern::PubSub { case.consumers() } else { 1 };
        (0..subscribers).try_for_each(|index| wait_for(session, &known_by(key, index)))?;
        let len = case.payload.len();
        let source = match self.shared {
            true => Source::Shared(provider(case)?, len),
            false => Source::Own(Buffer::new(len)),
        };
        Ok(Sending { publisher, source })
    }

    fn subscribe(&self, session: &Session, key: &'static str, role: Role, case: &Case) -> Result<Receiving> {
        let queue = FifoChannel::new(slots(case));
        let messages = session.declare_subscriber(key).with(queue).wait().map_err(fault)?;
        let index = if let Role::Consumer(index) = role { index } else { 0 };
        let known = session.declare_subscriber(known_by(key, index)).with(FifoChannel::new(1)).wait().map_err(fault)?;
        let patience = self.shared.then_some(LOST_AFTER);
        Ok(Receiving { messages, patience, joined: Buffer::new(case.payload.len()), _known: known })
    }
}

/// Shared memory for as many messages as may be under way; each of several producers has a part.
fn provider(case: &Case) -> Result<Provider> {
    let [once, each] = OVERHEAD;
    let size = once + share(case) * (case.payload.len() + each);
    ShmProviderBuilder::default_backend(size)
        .wait()
        .map_err(|error| fault(format!("{size} bytes of shared memory: {error}")))
}

/// What the subscriber of this number to a key subscribes to as well, after it: whoever has heard of this has heard of that. Of
/// the key itself it is not told how many have subscribed.
fn known_by(key: &str, index: usize) -> String {
    format!("{key}-{index}")
}

/// Waits for a subscriber. What is published before it is known of goes nowhere.
fn wait_for(session: &Session, key: &str) -> Result<()> {
    let publisher = session.declare_publisher(key.to_owned()).wait().map_err(fault)?;
    let deadline = Instant::now() + PATIENCE;
    while !publisher.matching_status().wait().map_err(fault)?.matching() {
        if Instant::now() > deadline {
            bail!("a publisher heard of no subscriber to `{key}`");
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
pub(crate) struct Sending {
    publisher: Publisher<'static>,
    source: Source,
}

impl Sending {
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

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }
}

/// The receiving end.
pub(crate) struct Receiving {
    messages: Subscriber<FifoChannelHandler<Sample>>,
    /// How long to wait for one, where it may have been lost.
    patience: Option<Duration>,
    /// Where a message is put together that came in several parts.
    joined: Buffer,
    /// By which the publisher knew of it.
    _known: Subscriber<FifoChannelHandler<Sample>>,
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let sample = match self.patience {
            None => self.messages.recv().map_err(other)?,
            Some(patience) => self.messages.recv_timeout(patience).map_err(other)?.ok_or(io::ErrorKind::TimedOut)?,
        };
        let payload = sample.payload();
        let (len, mut parts) = (payload.len(), payload.slices());
        match parts.next() {
            Some(whole) if whole.len() == len => verifier.bytes(whole),
            // The library would make a new vector for each.
            Some(_) if len == self.joined.len() => {
                payload.reader().read_exact(&mut self.joined)?;
                verifier.bytes(&self.joined);
            }
            _ => verifier.bytes(&payload.to_bytes()),
        }
        Ok(())
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
