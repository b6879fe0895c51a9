//! iceoryx2 publish-subscribe. The sender borrows a slot of shared memory, writes the message there
//! and passes on its location. The receiver reads the message in place. A waiting receiver polls,
//! or listens for the library's events.
//!
//! A sender that finds no free capacity waits as the library does: it yields the processor ten
//! thousand times, and then sleeps.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::hint;
use std::io;
use std::mem::MaybeUninit;

use ::iceoryx2::config::Config;
use ::iceoryx2::port::listener::{Listener, ListenerWaitError};
use ::iceoryx2::port::notifier::Notifier;
use ::iceoryx2::port::publisher::Publisher;
use ::iceoryx2::port::subscriber::Subscriber;
use ::iceoryx2::port::update_connections::UpdateConnections;
use ::iceoryx2::prelude::*;
use ::iceoryx2::service::port_factory::{event, publish_subscribe};
use anyhow::{Context, Result, anyhow, ensure};
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

use super::share::share;

type Service = ipc::Service;

/// The longest name that the library gives a socket in the instance's directory: prefix, a number
/// of 128 bits, suffix.
const SOCKET_NAME: usize = 10 + 39 + EVENT_SUFFIX.len();
/// The suffix of socket names. It is shorter than the default, because a socket's path must be
/// short.
const EVENT_SUFFIX: &[u8] = b".e";
/// The length of `sun_path`, including the final zero.
const SUN_PATH: usize = 108;

/// `process/iceoryx2` or `process/iceoryx2-event`.
pub(super) struct Iceoryx2 {
    name: &'static str,
    implementation: &'static str,
    wait: Wait,
}

pub(super) const POLLING: Iceoryx2 = Iceoryx2 {
    name: "process/iceoryx2",
    implementation: "iceoryx2 publish-subscribe: loan_slice_uninit and send, receive over and over; a sender that finds it full polls \
                too",
    wait: Wait::Spin,
};

pub(super) const EVENT: Iceoryx2 = Iceoryx2 {
    name: "process/iceoryx2-event",
    implementation: "iceoryx2 publish-subscribe, and an event a message: send and notify, receive or blocking_wait; a sender that finds it \
                full polls",
    wait: Wait::Block,
};

impl Mechanism for Iceoryx2 {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .any_language(true)
            .kernel_copies(0)
            .version(env!("LOCKED_ICEORYX2"))
            .implementation(self.implementation)
            .waits(&[self.wait])
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::PubSub])
            .ownership(Ownership::Loaned)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some((share(case) * case.streams()) as u64)
    }
}

impl Transport<Raw> for Iceoryx2 {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let has_reply = case.pattern.is_bidirectional();
        let is_consumer = matches!(role, Role::Consumer(_));
        let config = InstanceConfig::of(rendezvous)?;
        let direction = |name| Direction { config: &config, case, name, waits: self.wait == Wait::Block };
        let (forward, reply) = (direction("forward"), direction("reply"));
        let (tx, rx) = match (is_consumer, has_reply) {
            (true, false) => (None, Some(forward.receiving()?)),
            (false, false) => (Some(forward.sending()?), None),
            (true, true) => (Some(reply.sending()?), Some(forward.receiving()?)),
            (false, true) => (Some(forward.sending()?), Some(reply.receiving()?)),
        };
        // A message that is sent before its receiver exists reaches nobody. A receiver that
        // connects after the sender has ended finds nothing.
        let (senders, receivers) = match has_reply {
            true => (1, 1),
            false => (case.streams(), case.consumers()),
        };
        let party = |index| if is_consumer { Role::Producer(index) } else { Role::Consumer(index) };
        if rx.is_some() {
            rendezvous.publish(&format!("receiver:{role}"), "forward")?;
        }
        if let Some(tx) = &tx {
            (0..receivers).try_for_each(|index| rendezvous.request(&format!("receiver:{}", party(index))).map(drop))?;
            tx.ports.publisher.update_connections().context("connecting to the receiver")?;
            rendezvous.publish(&format!("sender:{role}"), "connected")?;
        }
        if let Some(rx) = &rx {
            (0..senders).try_for_each(|index| rendezvous.request(&format!("sender:{}", party(index))).map(drop))?;
            rx.0.subscriber.has_samples().map_err(fault).context("connecting to the sender")?;
        }
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// The library's configuration with files and shared memory for this instance alone.
struct InstanceConfig {
    config: Config,
}

impl InstanceConfig {
    fn of(rendezvous: &Rendezvous) -> Result<InstanceConfig> {
        let dir = rendezvous.dir();
        ensure!(
            dir.as_os_str().len() + 1 + SOCKET_NAME < SUN_PATH,
            "{} is too long a path for iceoryx2's sockets: set TMPDIR to a shorter one",
            dir.display()
        );
        let prefix = prefix(dir);
        rendezvous.shared_memory(&format!("{prefix}*"))?;
        // The library's errors contain its messages.
        set_log_level(LogLevel::Fatal);
        let mut config = Config::default();
        let root = dir.to_str().context("the instance's directory has a name that is not text")?;
        config.global.set_root_path(&Path::new(root.as_bytes()).map_err(fault)?);
        config.global.prefix = FileName::new(prefix.as_bytes()).map_err(fault)?;
        config.global.service.event_connection_suffix = FileName::new(EVENT_SUFFIX).map_err(fault)?;
        // This instance has no other nodes, and a killed party ends the instance.
        config.global.service.cleanup_dead_nodes_on_open = false;
        config.global.node.cleanup_dead_nodes_on_creation = false;
        config.global.node.cleanup_dead_nodes_on_destruction = false;
        Ok(InstanceConfig { config })
    }

    /// Creates a node. Each end has its own, so that two ends share nothing.
    fn node(&self) -> Result<Node<Service>> {
        let builder = NodeBuilder::new().config(&self.config).signal_handling_mode(SignalHandlingMode::Disabled);
        builder.create().map_err(fault).context("making a node")
    }
}

/// Returns the prefix of the instance's shared memory. It is short, because sockets' names begin
/// with it too.
fn prefix(dir: &std::path::Path) -> String {
    let mut hasher = DefaultHasher::new();
    dir.hash(&mut hasher);
    format!("i{:08x}-", hasher.finish() as u32)
}

#[cold]
fn fault(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("{error:?}")
}

/// One direction.
struct Direction<'a> {
    config: &'a InstanceConfig,
    case: &'a Case,
    name: &'static str,
    /// Whether its receiver waits for events.
    waits: bool,
}

impl Direction<'_> {
    fn sending(&self) -> Result<SendEnd> {
        let node = self.config.node()?;
        let publisher = self
            .messages(&node)?
            .publisher_builder()
            .initial_max_slice_len(self.case.payload.len())
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(fault)
            .context("making a publisher")?;
        let notifier = match self.waits {
            true => Some(self.events(&node)?.notifier_builder().create().map_err(fault).context("making a notifier")?),
            false => None,
        };
        Ok(SendEnd { ports: OwnThread::new(Sender { publisher, notifier }), len: self.case.payload.len() })
    }

    fn receiving(&self) -> Result<RecvEnd> {
        let node = self.config.node()?;
        // The listener is created first, so that it misses no event of a message.
        let listener = match self.waits {
            true => Some(self.events(&node)?.listener_builder().create().map_err(fault).context("making a listener")?),
            false => None,
        };
        let builder = self.messages(&node)?;
        let subscriber = builder.subscriber_builder().create().map_err(fault).context("making a subscriber")?;
        Ok(RecvEnd(OwnThread::new(Receiver { subscriber, listener })))
    }

    fn messages(&self, node: &Node<Service>) -> Result<publish_subscribe::PortFactory<Service, [u8], ()>> {
        let name = ServiceName::new(self.name).map_err(fault)?;
        let case = self.case;
        node.service_builder(&name)
            .publish_subscribe::<[u8]>()
            .enable_safe_overflow(false)
            .history_size(0)
            .subscriber_max_buffer_size(share(case))
            .subscriber_max_borrowed_samples(1)
            .max_publishers(case.streams())
            .max_subscribers(case.consumers())
            .max_nodes(case.streams() + case.consumers())
            .open_or_create()
            .map_err(fault)
            .with_context(|| format!("making or opening the service `{}`", self.name))
    }

    fn events(&self, node: &Node<Service>) -> Result<event::PortFactory<Service>> {
        let name = ServiceName::new(&format!("{}-event", self.name)).map_err(fault)?;
        let case = self.case;
        node.service_builder(&name)
            .event()
            .max_notifiers(case.streams())
            .max_listeners(case.consumers())
            .max_nodes(case.streams() + case.consumers())
            .open_or_create()
            .map_err(fault)
            .with_context(|| format!("making or opening the event of the service `{}`", self.name))
    }
}

struct Sender {
    publisher: Publisher<Service, [u8], ()>,
    notifier: Option<Notifier<Service>>,
}

/// The sending end.
pub(super) struct SendEnd {
    ports: OwnThread<Sender>,
    len: usize,
}

/// Writes the next message into a slot.
#[inline(always)]
#[allow(unsafe_code)]
fn fill(slot: &mut [MaybeUninit<u8>], source: &mut Generator) {
    // SAFETY: a slot is in shared memory, which the kernel provides filled with zeros, so every
    // byte is initialised.
    source.fill(unsafe { slot.assume_init_mut() });
}

#[cold]
fn other(error: impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("{error:?}"))
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let Sender { publisher, notifier } = &*self.ports;
        let mut slot = publisher.loan_slice_uninit(self.len).map_err(other)?;
        fill(slot.payload_mut(), source);
        #[allow(unsafe_code)]
        // SAFETY: `fill` has written every byte.
        let slot = unsafe { slot.assume_init() };
        slot.send().map_err(other)?;
        if let Some(notifier) = notifier {
            notifier.notify().map_err(other)?;
        }
        Ok(())
    }
}

struct Receiver {
    subscriber: Subscriber<Service, [u8], ()>,
    listener: Option<Listener<Service>>,
}

/// The receiving end.
pub(super) struct RecvEnd(OwnThread<Receiver>);

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let Receiver { subscriber, listener } = &*self.0;
        loop {
            if let Some(sample) = subscriber.receive().map_err(other)? {
                verifier.bytes(sample.payload());
                return Ok(());
            }
            match listener {
                // Returns immediately if an event arrived before.
                Some(listener) => match listener.blocking_wait(|_| {}) {
                    // A wait also ends this way after the process was stopped.
                    Ok(_) | Err(ListenerWaitError::InterruptSignal) => {}
                    Err(error) => return Err(other(error)),
                },
                None => hint::spin_loop(),
            }
        }
    }
}
