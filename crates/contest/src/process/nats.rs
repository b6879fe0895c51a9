//! NATS, through a `nats-server` of the instance's own on a loopback port: core publish and subscribe, which keeps nothing.
//!
//! A subscriber that is slow loses what its client and the server have no room for; so credit caps what is under way, and
//! both have room for that. `async-nats` writes and reads in a task of its own, which goes on while its user does something
//! else: it has a runtime with one worker, on its party's core, as a program has it under `#[tokio::main]` on one core.

use std::fs;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use async_nats::{Client, ConnectOptions, Subject, Subscriber};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Joins, Ordering, Ownership};
use estafette_measure::usage::Usage;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Payload, Raw, Rendezvous, Rx, Spec, Tx, Verifier};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

use super::credit::{Refund, Spend};
use super::names::{self, Names};
use super::server::{self, CONFIG, Server};
use super::slots;

pub(crate) const SERVER: Server =
    Server { program: "nats-server", package: "nats-server", arguments: &["-c", CONFIG], asked: "--version" };

/// Any free port, written to a file; the longest message that the server takes without a warning; and room for what may
/// be under way to a subscriber.
const CONFIGURATION: &str = "\
host: 127.0.0.1
port: -1
ports_file_dir: \".\"
max_payload: 8388608
max_pending: 268435456
";

/// `max_payload` above.
const MAX_MESSAGE: usize = 8 << 20;

pub(super) struct Nats;

impl Mechanism for Nats {
    fn spec(&self) -> Spec {
        Spec::new("process/nats")
            .version(concat!("async-nats ", env!("LOCKED_ASYNC_NATS")))
            .stands_on("nats-server on 127.0.0.1, publish and subscribe")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
            .max_producers(None)
            .joins(Joins::Standard)
    }

    fn room(&self, case: &Case) -> Option<u64> {
        Some(room(case) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        server::roles(case)
    }

    fn broker(&self, _: &Case, meet: &mut Rendezvous) -> Result<Usage> {
        serve(meet)
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn present(&self) -> Result<(), String> {
        SERVER.present()
    }
}

/// Plays the broker: a server of the instance's own.
pub(crate) fn serve(meet: &mut Rendezvous) -> Result<Usage> {
    SERVER.serve(CONFIGURATION, meet, listens)
}

/// How many messages a subscriber has room for; what it has none for the client drops. Where each waits for its answer no credit
/// is needed, but every client may have asked at once.
fn room(case: &Case) -> usize {
    let asked = if case.pattern.asks() { case.producers } else { 0 };
    slots(case).max(asked)
}

/// The server's address, once it has written its ports file: `{"nats":["nats://127.0.0.1:PORT"],...}`.
fn listens(dir: &Path) -> Option<String> {
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    let ports = files.find(|path| path.extension().is_some_and(|extension| extension == "ports"))?;
    address(&fs::read_to_string(ports).ok()?)
}

/// The first address in a ports file, which may not be complete yet.
fn address(ports: &str) -> Option<String> {
    let (complete, _) = ports.rsplit_once('"')?;
    complete.split('"').find(|word| word.starts_with("nats://")).map(str::to_owned)
}

impl Carries<Raw> for Nats {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let connection = Connection::open(meet, room(case))?;
        let tx = |subjects, credit| Ok(Sending { connection: connection.clone(), subjects, credit });
        names::open(case, role, meet, tx, |subject, credit| connection.clone().receiving(subject, credit))
    }
}

/// A client and what it runs on: one for both ends of a party.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) client: Client,
}

impl Connection {
    /// Connects to the instance's server. Each subscription buffers up to `capacity` messages.
    pub(crate) fn open(meet: &mut Rendezvous, capacity: usize) -> Result<Connection> {
        let address = server::address(meet)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // A server that has gone does not come back: what was under way is lost, and the instance has failed.
        let options = ConnectOptions::new().subscription_capacity(capacity).max_reconnects(1);
        let client = runtime.block_on(options.connect(address)).context("connecting to nats-server")?;
        Ok(Connection { runtime: Arc::new(runtime), client })
    }

    fn receiving(self, subject: &str, credit: Option<Refund>) -> Result<Receiving> {
        let subscriber = self.runtime.block_on(self.client.subscribe(subject.to_owned()))?;
        self.round_trip().with_context(|| format!("subscribing to {subject}"))?;
        Ok(Receiving { connection: self, subscriber, credit })
    }

    /// Sends itself a message. The server reads what comes on a connection in order: when that arrives, it has read
    /// everything before it.
    pub(crate) fn round_trip(&self) -> Result<()> {
        let Connection { runtime, client } = self;
        let ourselves = Subject::from(client.new_inbox());
        runtime.block_on(async {
            let mut subscriber = client.subscribe(ourselves.clone()).await?;
            client.publish(ourselves, "here".into()).await?;
            subscriber.next().await.map(drop).context("nats-server closed the connection")
        })
    }
}

/// The sending end.
pub(super) struct Sending {
    connection: Connection,
    subjects: Names<Subject>,
    credit: Option<Spend>,
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, next: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        let subject = self.subjects.of(next).clone();
        let message = Vec::<u8>::make(next).into();
        let Connection { runtime, client } = &self.connection;
        runtime.block_on(client.publish(subject, message)).map_err(io::Error::other)
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(next))
    }

    /// Waits until the server has read everything. The client's own `flush` is not enough: where the socket takes no more
    /// it returns with bytes still to be written.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.connection.round_trip().map_err(io::Error::other))
    }
}

/// The receiving end.
pub(super) struct Receiving {
    connection: Connection,
    subscriber: Subscriber,
    credit: Option<Refund>,
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, seen: &mut Verifier) -> io::Result<()> {
        let message = self.connection.runtime.block_on(self.subscriber.next()).ok_or(ErrorKind::UnexpectedEof)?;
        seen.bytes(&message.payload);
        self.credit.as_mut().map_or(Ok(()), Refund::give)
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_a_complete_line_only() {
        let ports = r#"{"nats":["nats://127.0.0.1:40123"],"monitoring":[]}"#;
        assert_eq!(address(ports).as_deref(), Some("nats://127.0.0.1:40123"));
        assert_eq!(address(&ports[..30]), None);
        assert_eq!(address(""), None);
    }
}
