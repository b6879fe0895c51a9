//! D-Bus with `zbus`: directly between two peers over a pair of sockets, and through a
//! `dbus-daemon` for each instance.
//!
//! A message is a method call whose argument is an array of bytes, `ay`. In a ping-pong its reply
//! carries as many bytes. A one-way message is a call that expects no reply; to several subscribers
//! it is a signal. Between peers the socket limits the messages in flight. The daemon accepts any
//! number, so credit limits them.
//!
//! A connection reads in a background task. It runs on the party's own thread, on a tokio runtime.
//! With the library's own executor, a second thread takes over when the first is outside, which
//! causes 16 context switches per round trip instead of 4.

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

use super::credited::{CreditedRx, CreditedTx};
use super::slot::Slot;

const SERVER: Server = Server {
    program: "dbus-daemon",
    package: "dbus-daemon",
    arguments: &["--nofork", "--nopidfile", "--nosyslog", "--config-file", CONFIG],
    asked: "--version",
};

/// The limits of a session's daemon. Everybody may send to everybody.
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

/// The longest array in bytes that the specification allows.
const MAX_MESSAGE: usize = 1 << 26;

const PATH: &str = "/estafette";
const INTERFACE: &str = "estafette.Measure";
const METHOD: &str = "Pass";

/// `process/dbus-peer` or `process/dbus-daemon`.
pub(super) struct Dbus {
    name: &'static str,
    implementation: &'static str,
    /// Whether a daemon is between the ends.
    daemon: bool,
}

pub(super) const PEER: Dbus =
    Dbus { name: "dbus-peer", implementation: "method calls over a socketpair", daemon: false };
pub(super) const DAEMON: Dbus =
    Dbus { name: "dbus-daemon", implementation: "method calls through dbus-daemon on a UNIX socket", daemon: true };

impl Mechanism for Dbus {
    fn spec(&self) -> Spec {
        let spec = Spec::new(&format!("process/{}", self.name))
            .any_language(true)
            .kernel_copies(if self.daemon { 4 } else { 2 })
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
    type Tx = CreditedTx<SendEnd>;
    type Rx = CreditedRx<RecvEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let consumer = matches!(role, Role::Consumer(_));
        let runtime = Arc::new(runtime::Builder::new_current_thread().enable_all().build()?);
        let connection = if self.daemon {
            connect_to_daemon(rendezvous, &runtime)
        } else {
            connect_to_peer(role, rendezvous, &runtime)
        }?;
        let publishes = case.pattern == Pattern::PubSub;
        // Subscribes before the barrier, so before anything is sent.
        let messages = match publishes && consumer {
            true => runtime.block_on(subscribe(&connection)).context("subscribing")?,
            false => MessageStream::from(&connection),
        };
        let named = self.daemon && !publishes;
        let destination = if named { exchange_consumer_name(consumer, &connection, rendezvous)? } else { None };
        let call = case.pattern.is_bidirectional().then(Slot::<Message>::default);
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
        // Between peers the socket limits the messages in flight. In a ping-pong only one request
        // is in flight.
        let needs_credit = self.daemon && !case.pattern.is_bidirectional();
        let (spend, refund) = match role {
            Role::Consumer(index) if needs_credit => (None, Some(Refund::open(case, index, rendezvous)?)),
            Role::Producer(_) if needs_credit => (Some(Spend::open(case, rendezvous)?), None),
            _ => (None, None),
        };
        let buffer = Buffer::new(case.payload.len());
        let tx = SendEnd { runtime: Arc::clone(&runtime), connection, sends, buffer };
        let rx = RecvEnd { runtime, messages, expects };
        let (tx, rx) = (CreditedTx { tx, credit: spend }, CreditedRx { rx, credit: refund });
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// Connects to the daemon.
fn connect_to_daemon(rendezvous: &mut Rendezvous, runtime: &Runtime) -> Result<Connection> {
    let socket = UnixStream::connect(server::socket(rendezvous)?)?;
    runtime.block_on(Builder::unix_stream(socket).build()).context("connecting to dbus-daemon")
}

/// Connects to the other end. The consumer is the server side.
fn connect_to_peer(role: Role, rendezvous: &mut Rendezvous, runtime: &Runtime) -> Result<Connection> {
    let socket = fd_passing::of_pair(role, rendezvous, UnixStream::pair)?;
    let builder = Builder::unix_stream(socket.into());
    let builder = if let Role::Consumer(_) = role { builder.server(Guid::generate()) } else { builder };
    runtime.block_on(builder.p2p().build()).context("connecting to the peer")
}

/// Subscribes to the signals of [`INTERFACE`].
async fn subscribe(connection: &Connection) -> zbus::Result<MessageStream> {
    let rule = MatchRule::builder().msg_type(Type::Signal).interface(INTERFACE).build()?;
    MessageStream::for_match_rule(rule, connection, None).await
}

/// Shares the consumer's bus name: the consumer publishes it, a producer waits for it and returns
/// it.
fn exchange_consumer_name(
    consumer: bool,
    connection: &Connection,
    rendezvous: &mut Rendezvous,
) -> Result<Option<OwnedUniqueName>> {
    if !consumer {
        return Ok(Some(OwnedUniqueName::try_from(rendezvous.request("consumer")?)?));
    }
    rendezvous.publish("consumer", connection.unique_name().context("dbus-daemon gave no name")?)?;
    Ok(None)
}

/// What an end sends.
enum Sends {
    Calls {
        destination: Option<OwnedUniqueName>,
        flags: Flags,
    },
    /// Replies to the call that was received last.
    Replies(Slot<Message>),
    /// Signals to all subscribers.
    Signals,
}

/// What an end waits for.
enum Expects {
    /// Calls, which may need a reply.
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
pub(super) struct SendEnd {
    runtime: Arc<Runtime>,
    connection: Connection,
    sends: Sends,
    buffer: Buffer,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
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

/// The receiving end.
pub(super) struct RecvEnd {
    runtime: Arc<Runtime>,
    messages: MessageStream,
    expects: Expects,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = loop {
            let message =
                self.runtime.block_on(self.messages.next()).ok_or(ErrorKind::UnexpectedEof)?.map_err(failed)?;
            match (message.message_type(), &self.expects) {
                (Type::MethodCall, Expects::Calls(_))
                | (Type::MethodReturn, Expects::Replies)
                | (Type::Signal, Expects::Signals) => break message,
                (Type::Error, _) => return Err(io::Error::other(message.to_string())),
                // The daemon greets each connection with a signal.
                _ => {}
            }
        };
        verifier.bytes(message.body().deserialize::<&Bytes>().map_err(failed)?);
        if let Expects::Calls(Some(call)) = &self.expects {
            call.send(message);
        }
        Ok(())
    }
}
