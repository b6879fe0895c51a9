//! MQTT 3.1.1 with `rumqttc`, through a `mosquitto` for each instance on a UNIX socket.
//!
//! At quality of service 0 a message is sent without acknowledgement. At 1 the server acknowledges
//! each message to the publisher, and the subscriber to the server; up to 100 may be
//! unacknowledged, the client's default. By default the server drops messages for a slow
//! subscriber. Here this is disabled, and credit limits the messages in flight. A client's event
//! loop runs on its party's own thread: `send` polls it until its message is written, `recv` until
//! one has arrived.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use estafette_contest_common::server::{self, CONFIG, Server};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership};
use estafette_measure::usage::Usage;
use estafette_measure::{Generator, Rendezvous, Rx, Spec, Tx, Value, Verifier};
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, QoS, SubscribeReasonCode};
use tokio::runtime::{Builder, Runtime};

use super::broker::{Broker, Brokered, Names};

const SERVER: Server = Server { program: "mosquitto", package: "mosquitto", arguments: &["-c", CONFIG], asked: "-h" };

/// A UNIX socket, nothing on disk, no message dropped. It keeps its user: a process that changes
/// its user would survive its parent.
const CONFIGURATION: &str = "\
listener 0 socket
allow_anonymous true
persistence false
user root
max_queued_messages 0
max_queued_bytes 0
log_dest stderr
log_type error
log_type warning
";

/// The maximum of MQTT's remaining length, minus the topic and the packet identifier.
const MAX_MESSAGE: usize = 268_435_455 - HEADER;
/// An upper bound of a packet's bytes besides its message.
const HEADER: usize = 64;
/// The capacity of the queue between a client and its event loop. There is one request at a time.
const REQUESTS: usize = 1;

/// `process/mqtt-qos0` or `process/mqtt-qos1`.
pub(super) struct Mqtt(QoS);

pub(super) const AT_MOST_ONCE: Brokered<Mqtt> = Brokered(Mqtt(QoS::AtMostOnce));
pub(super) const AT_LEAST_ONCE: Brokered<Mqtt> = Brokered(Mqtt(QoS::AtLeastOnce));

impl Broker for Mqtt {
    type Client = Client;
    type Name = String;
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn spec(&self) -> Spec {
        let quality = self.0 as u8;
        Spec::new(&format!("process/mqtt-qos{quality}"))
            .any_language(true)
            .kernel_copies(4)
            .version(concat!("rumqttc ", env!("LOCKED_RUMQTTC")))
            .implementation(&format!(
                "mosquitto on a UNIX socket, publish and subscribe at QoS {quality}; a client for each end"
            ))
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
    }

    fn server(&self) -> &Server {
        &SERVER
    }

    fn serve(&self, rendezvous: &mut Rendezvous) -> Result<Usage> {
        SERVER.serve(CONFIGURATION, rendezvous, server::listens)
    }

    fn connect(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Client> {
        Ok(Client { path: server::socket(rendezvous)?, role, len: case.payload.len() })
    }

    fn sender(&self, client: &Client, topics: Names<String>) -> Result<SendEnd> {
        Ok(SendEnd { connection: client.open("tx")?, topics, quality: self.0 })
    }

    fn receiver(&self, client: &Client, topic: &str) -> Result<RecvEnd> {
        let mut connection = client.open("rx")?;
        connection.subscribe(topic, self.0).with_context(|| format!("subscribing to {topic}"))?;
        Ok(RecvEnd { connection })
    }
}

/// The parameters of a party's connections. Each end has its own.
pub(super) struct Client {
    path: PathBuf,
    role: Role,
    /// The length of every message in bytes.
    len: usize,
}

impl Client {
    fn open(&self, end: &str) -> Result<Connection> {
        Connection::open(&self.path, &format!("{}-{end}", self.role), self.len)
    }
}

/// A client, its event loop and its runtime.
struct Connection {
    runtime: Runtime,
    client: AsyncClient,
    events: EventLoop,
}

impl Connection {
    fn open(path: &Path, id: &str, len: usize) -> Result<Connection> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let path = path.to_str().context("the temporary directory's name is not UTF-8: set TMPDIR to another")?;
        let mut options = MqttOptions::new(id, path, 0);
        options.set_transport(rumqttc::Transport::unix()).set_max_packet_size(len + HEADER, len + HEADER);
        let (client, events) = AsyncClient::new(options, REQUESTS);
        let mut connection = Connection { runtime, client, events };
        connection.poll_until(|event| matches!(event, Event::Incoming(Packet::ConnAck(_))).then_some(()))?;
        Ok(connection)
    }

    /// Polls the event loop until `select` returns a value for an event.
    #[inline(always)]
    fn poll_until<T>(&mut self, mut select: impl FnMut(Event) -> Option<T>) -> io::Result<T> {
        let Connection { runtime, events, .. } = self;
        runtime.block_on(async {
            loop {
                // The client would reconnect after an error, but messages in flight are lost then,
                // so the instance fails.
                let event = events.poll().await.map_err(io::Error::other)?;
                if let Some(found) = select(event) {
                    return Ok(found);
                }
            }
        })
    }

    fn subscribe(&mut self, topic: &str, quality: QoS) -> Result<()> {
        self.client.try_subscribe(topic, quality)?;
        let reply = self.poll_until(|event| match event {
            Event::Incoming(Packet::SubAck(reply)) => Some(reply),
            _ => None,
        })?;
        let granted = reply.return_codes == [SubscribeReasonCode::Success(quality)];
        ensure!(granted, "mosquitto answered {:?}", reply.return_codes);
        Ok(())
    }
}

/// The sending end.
pub(super) struct SendEnd {
    connection: Connection,
    topics: Names<String>,
    quality: QoS,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let SendEnd { connection, topics, quality } = self;
        let topic = topics.of(source);
        let message = Vec::<u8>::make(source);
        connection.client.try_publish(topic, *quality, false, message).map_err(io::Error::other)?;
        connection.poll_until(|event| matches!(event, Event::Outgoing(Outgoing::Publish(_))).then_some(()))
    }

    /// Waits until all messages of QoS 1 are acknowledged.
    fn flush(&mut self) -> io::Result<()> {
        while self.connection.events.state.inflight() > 0 {
            self.connection.poll_until(|event| matches!(event, Event::Incoming(Packet::PubAck(_))).then_some(()))?;
        }
        Ok(())
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    connection: Connection,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = self.connection.poll_until(|event| match event {
            Event::Incoming(Packet::Publish(message)) => Some(message),
            _ => None,
        })?;
        verifier.bytes(&message.payload);
        Ok(())
    }
}
