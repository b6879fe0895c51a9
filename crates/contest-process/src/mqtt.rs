//! MQTT 3.1.1, through a `mosquitto` of the instance's own on a UNIX socket, with `rumqttc`.
//!
//! At quality of service 0 a message is sent and forgotten, at 1 the server acknowledges it, and the subscriber does to the
//! server; up to 100 may wait for that, the client's default. The server would drop what a slow subscriber has no room for;
//! it is told not to, and credit caps what is under way. A client's event loop runs on its party's own thread: `put` turns
//! it until its message has been written, `get` until one has come.

use std::future::{Future, ready};
use std::io;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::server::{self, CONFIG, Server};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, QoS, SubscribeReasonCode};
use tokio::runtime::{Builder, Runtime};

use super::names::{self, Names};

const SERVER: Server = Server { program: "mosquitto", package: "mosquitto", arguments: &["-c", CONFIG], asked: "-h" };

/// A UNIX socket, nothing on disk, no message dropped. It stays the user it is: who changes that outlives its parent.
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

/// What MQTT's remaining length can say, less the topic and the packet's number.
const MAX_MESSAGE: usize = 268_435_455 - HEADER;
/// More than a packet has besides its message.
const HEADER: usize = 64;
/// A client's room for requests that its event loop has not taken yet: there is one at a time.
const REQUESTS: usize = 1;

/// `process/mqtt-qos0` or `process/mqtt-qos1`.
pub(super) struct Mqtt(QoS);

pub(super) const AT_MOST_ONCE: Mqtt = Mqtt(QoS::AtMostOnce);
pub(super) const AT_LEAST_ONCE: Mqtt = Mqtt(QoS::AtLeastOnce);

impl Mechanism for Mqtt {
    fn spec(&self) -> Spec {
        let quality = self.0 as u8;
        Spec::new(&format!("process/mqtt-qos{quality}"))
            .version(concat!("rumqttc ", env!("LOCKED_RUMQTTC")))
            .implementation(&format!(
                "mosquitto on a UNIX socket, publish and subscribe at QoS {quality}; a client for each end"
            ))
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
            .max_producers(None)
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(slots(case) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        server::roles(case)
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        SERVER.serve(CONFIGURATION, rendezvous, server::listens)
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn check_available(&self) -> Result<(), String> {
        SERVER.check_available()
    }
}

impl Transport<Raw> for Mqtt {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let path = server::socket(rendezvous)?;
        let connect = |end: &str| Connection::open(&path, &format!("{role}-{end}"), case.payload.len());
        let tx = |topics, credit| Ok(Sending { connection: connect("tx")?, topics, quality: self.0, credit });
        let rx = |topic: &str, credit| {
            let mut connection = connect("rx")?;
            connection.subscribe(topic, self.0).with_context(|| format!("subscribing to {topic}"))?;
            Ok(Receiving { connection, credit })
        };
        names::open(case, role, rendezvous, tx, rx)
    }
}

/// A client, its event loop and what that runs on.
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
        connection.turn(|event| matches!(event, Event::Incoming(Packet::ConnAck(_))).then_some(()))?;
        Ok(connection)
    }

    /// Turns the event loop until something happens that `sought` finds something in.
    #[inline(always)]
    fn turn<T>(&mut self, mut sought: impl FnMut(Event) -> Option<T>) -> io::Result<T> {
        let Connection { runtime, events, .. } = self;
        runtime.block_on(async {
            loop {
                // It would connect again after an error; but what was under way is lost, and the instance has failed.
                let event = events.poll().await.map_err(io::Error::other)?;
                if let Some(found) = sought(event) {
                    return Ok(found);
                }
            }
        })
    }

    fn subscribe(&mut self, topic: &str, quality: QoS) -> Result<()> {
        self.client.try_subscribe(topic, quality)?;
        let answer = self.turn(|event| match event {
            Event::Incoming(Packet::SubAck(answer)) => Some(answer),
            _ => None,
        })?;
        let granted = answer.return_codes == [SubscribeReasonCode::Success(quality)];
        ensure!(granted, "mosquitto answered {:?}", answer.return_codes);
        Ok(())
    }
}

/// The sending end.
pub(super) struct Sending {
    connection: Connection,
    topics: Names<String>,
    quality: QoS,
    credit: Option<Spend>,
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        let Sending { connection, topics, quality, .. } = self;
        let topic = topics.of(source);
        let message = Vec::<u8>::make(source);
        connection.client.try_publish(topic, *quality, false, message).map_err(io::Error::other)?;
        connection.turn(|event| matches!(event, Event::Outgoing(Outgoing::Publish(_))).then_some(()))
    }

    /// Waits until everything has been acknowledged, where it is.
    fn acknowledged(&mut self) -> io::Result<()> {
        while self.connection.events.state.inflight() > 0 {
            self.connection.turn(|event| matches!(event, Event::Incoming(Packet::PubAck(_))).then_some(()))?;
        }
        Ok(())
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.acknowledged())
    }
}

/// The receiving end.
pub(super) struct Receiving {
    connection: Connection,
    credit: Option<Refund>,
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = self.connection.turn(|event| match event {
            Event::Incoming(Packet::Publish(message)) => Some(message),
            _ => None,
        })?;
        verifier.bytes(&message.payload);
        self.credit.as_mut().map_or(Ok(()), Refund::give)
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
