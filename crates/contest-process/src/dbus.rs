//! D-Bus with `zbus`, from peer to peer over a pair of sockets, and through a `dbus-daemon` of the instance's own.
//!
//! A message is a method call whose argument is an array of bytes, `ay`. In a ping-pong it is answered by its reply, which
//! carries as many; one way it is a call that wants no reply, and to several subscribers a signal. Peers hold each other back by their sockets. The daemon takes whatever comes; so credit caps what is under way.
//!
//! A connection reads in a task of its own. It runs on the party's own thread, on a runtime of tokio: on the library's own a
//! second thread takes over whenever the first is not inside, which makes 16 context switches of a round trip, not 4.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::slots;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::fd_passing;
use estafette_contest_common::server::{self, CONFIG, Server};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use futures_util::StreamExt;
use serde_bytes::Bytes;
use tokio::runtime::{self, Runtime};
use zbus::connection::Builder;
use zbus::message::{Flags, Message, Type};
use zbus::names::OwnedUniqueName;
use zbus::{Connection, Guid, MatchRule, MessageStream};

use super::slot::Slot;

const SERVER: Server = Server {
    program: "dbus-daemon",
    package: "dbus-daemon",
    arguments: &["--nofork", "--nopidfile", "--nosyslog", "--config-file", CONFIG],
    asked: "--version",
};

/// The limits of a session's daemon, and everybody may send to everybody.
const CONFIGURATION: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
  <limit name="max_incoming_bytes">1000000000</limit>
  <limit name="max_outgoing_bytes">1000000000</limit>
  <limit name="max_message_size">1000000000</limit>
</busconfig>
"#;

/// The longest array that the specification allows.
const MAX_MESSAGE: usize = 1 << 26;

const PATH: &str = "/estafette";
const INTERFACE: &str = "estafette.Measure";
const METHOD: &str = "Pass";

/// `process/dbus-peer` or `process/dbus-daemon`.
pub(super) struct Dbus {
    name: &'static str,
    implementation: &'static str,
    /// Whether a daemon stands between the ends.
    daemon: bool,
}

pub(super) const PEER: Dbus =
    Dbus { name: "dbus-peer", implementation: "method calls over a socketpair", daemon: false };
pub(super) const DAEMON: Dbus =
    Dbus { name: "dbus-daemon", implementation: "method calls through dbus-daemon on a UNIX socket", daemon: true };

impl Mechanism for Dbus {
    fn spec(&self) -> Spec {
        let spec = Spec::new(&format!("process/{}", self.name))
            .version(concat!("zbus ", env!("LOCKED_ZBUS")))
            .implementation(self.implementation)
            .ownership(Ownership::Borrowed)
            .max_message(MAX_MESSAGE)
            .tier(Tier::Standard);
        match self.daemon {
            true => spec
                .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
                .ordering(Ordering::PerProducer)
                .max_producers(None),
            false => spec,
        }
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.daemon.then(|| slots(case) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        let roles = server::roles(case);
        roles.into_iter().filter(|&role| self.daemon || role != Role::Broker).collect()
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        SERVER.serve(CONFIGURATION, rendezvous, server::listens)
    }

    fn server(&self) -> Option<String> {
        self.daemon.then(|| SERVER.version()).flatten()
    }

    fn check_available(&self) -> Result<(), String> {
        if self.daemon { SERVER.check_available() } else { Ok(()) }
    }
}

impl Transport<Raw> for Dbus {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let consumer = matches!(role, Role::Consumer(_));
        let runtime = Arc::new(runtime::Builder::new_current_thread().enable_all().build()?);
        let connection =
            if self.daemon { through_daemon(rendezvous, &runtime) } else { to_peer(role, rendezvous, &runtime) }?;
        let publishes = case.pattern == Pattern::PubSub;
        // Before the barrier: nothing has been sent by then.
        let messages = match publishes && consumer {
            true => runtime.block_on(subscribe(&connection)).context("subscribing")?,
            false => MessageStream::from(&connection),
        };
        let named = self.daemon && !publishes;
        let destination = if named { meet_consumer(consumer, &connection, rendezvous)? } else { None };
        let call = case.pattern.both_ways().then(Slot::<Message>::default);
        let sends = match &call {
            Some(call) if consumer => Sends::Replies(call.clone()),
            Some(_) => Sends::Calls { destination, flags: Flags::empty() },
            None if publishes => Sends::Signals,
            None => Sends::Calls { destination, flags: Flags::NO_REPLY_EXPECTED },
        };
        let expects = match consumer {
            true if publishes => Expects::Signals,
            true => Expects::Calls(call),
            false => Expects::Replies,
        };
        // Peers hold each other back; and no more than the question is under way where each is answered.
        let capped = self.daemon && !case.pattern.both_ways();
        let (spend, refund) = match role {
            Role::Consumer(index) if capped => (None, Some(Refund::open(case, index, rendezvous)?)),
            Role::Producer(_) if capped => (Some(Spend::open(case, rendezvous)?), None),
            _ => (None, None),
        };
        let buffer = Buffer::new(case.payload.len());
        let tx = Sending { runtime: Arc::clone(&runtime), connection, sends, buffer, credit: spend };
        let rx = Receiving { runtime, messages, expects, credit: refund };
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// Connects to the daemon.
fn through_daemon(rendezvous: &mut Rendezvous, runtime: &Runtime) -> Result<Connection> {
    let socket = UnixStream::connect(server::socket(rendezvous)?)?;
    runtime.block_on(Builder::unix_stream(socket).build()).context("connecting to dbus-daemon")
}

/// Connects to the other end, which the consumer serves.
fn to_peer(role: Role, rendezvous: &mut Rendezvous, runtime: &Runtime) -> Result<Connection> {
    let socket = fd_passing::of_pair(role, rendezvous, UnixStream::pair)?;
    let builder = Builder::unix_stream(socket.into());
    let builder = if let Role::Consumer(_) = role { builder.server(Guid::generate()) } else { builder };
    runtime.block_on(builder.p2p().build()).context("connecting to the peer")
}

/// Asks the daemon for the signals of our kind, which it sends to whoever asks.
async fn subscribe(connection: &Connection) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder().msg_type(Type::Signal).interface(INTERFACE).build()?;
    MessageStream::for_match_rule(rule, connection, None).await
}

/// The consumer's name on the bus: it offers that, the others get it.
fn meet_consumer(consumer: bool, us: &Connection, rendezvous: &mut Rendezvous) -> Result<Option<OwnedUniqueName>> {
    if !consumer {
        return Ok(Some(OwnedUniqueName::try_from(rendezvous.request("consumer")?)?));
    }
    rendezvous.publish("consumer", us.unique_name().context("dbus-daemon gave no name")?)?;
    Ok(None)
}

/// What an end sends.
enum Sends {
    Calls {
        destination: Option<OwnedUniqueName>,
        flags: Flags,
    },
    /// To the call that was received last.
    Replies(Slot<Message>),
    /// To whoever has subscribed.
    Signals,
}

/// What an end waits for.
enum Expects {
    /// To be answered, or not.
    Calls(Option<Slot<Message>>),
    Replies,
    Signals,
}

fn failed(error: zbus::Error) -> io::Error {
    match error {
        zbus::Error::InputOutput(error) => io::Error::new(error.kind(), error),
        error => io::Error::other(error),
    }
}

/// The sending end.
pub(super) struct Sending {
    runtime: Arc<Runtime>,
    connection: Connection,
    sends: Sends,
    buffer: Buffer,
    credit: Option<Spend>,
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        source.fill(&mut self.buffer);
        let body = Bytes::new(&self.buffer);
        let message = match &self.sends {
            Sends::Calls { destination, flags } => {
                let call = Message::method_call(PATH, METHOD).interface(INTERFACE).with_flags(*flags);
                match destination {
                    Some(name) => call.destination(name).build(&body),
                    None => call.build(&body),
                }
            }
            Sends::Signals => Message::signal(PATH, INTERFACE, METHOD).build(&body),
            Sends::Replies(call) => {
                let call = call.take().ok_or(ErrorKind::InvalidInput)?;
                Message::method_return(&call.header()).build(&body)
            }
        };
        self.runtime.block_on(self.connection.send(&message.map_err(failed)?)).map_err(failed)
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
    runtime: Arc<Runtime>,
    messages: MessageStream,
    expects: Expects,
    credit: Option<Refund>,
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = loop {
            let message =
                self.runtime.block_on(self.messages.next()).ok_or(ErrorKind::UnexpectedEof)?.map_err(failed)?;
            match (message.message_type(), &self.expects) {
                (Type::MethodCall, Expects::Calls(_))
                | (Type::MethodReturn, Expects::Replies)
                | (Type::Signal, Expects::Signals) => break message,
                (Type::Error, _) => return Err(io::Error::other(message.to_string())),
                // The daemon greets each with a signal.
                _ => {}
            }
        };
        verifier.bytes(message.body().deserialize::<&Bytes>().map_err(failed)?);
        if let Expects::Calls(Some(call)) = &self.expects {
            call.send(message);
        }
        self.credit.as_mut().map_or(Ok(()), Refund::give)
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
