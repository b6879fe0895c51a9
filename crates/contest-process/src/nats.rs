//! NATS, through a `nats-server` of the instance's own on a loopback port: core publish and subscribe, which keeps nothing.
//!
//! A subscriber that is slow loses what its client and the server have no room for; so credit caps what is under way, and
//! both have room for that. `async-nats` writes and reads in a task of its own, which goes on while its user does something
//! else: it has a runtime with one worker, on its party's core, as a program has it under `#[tokio::main]` on one core.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};

use anyhow::{Context, Result};
use async_nats::{Subject, Subscriber};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::nats::{Connection, MAX_MESSAGE, SERVER, serve};
use estafette_contest_common::server;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use futures_util::StreamExt;

use super::names::{self, Names};

pub(super) struct Nats;

impl Mechanism for Nats {
    fn spec(&self) -> Spec {
        Spec::new("process/nats")
            .version(concat!("async-nats ", env!("LOCKED_ASYNC_NATS")))
            .implementation("nats-server on 127.0.0.1, publish and subscribe")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
            .max_producers(None)
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(effective_capacity(case) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        server::roles(case)
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        serve(rendezvous)
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn check_available(&self) -> Result<(), String> {
        SERVER.check_available()
    }
}

/// How many messages a subscriber has room for; what it has none for the client drops. Where each waits for its answer no credit
/// is needed, but every client may have asked at once.
fn effective_capacity(case: &Case) -> usize {
    let asked = if case.pattern.asks() { case.producers } else { 0 };
    slots(case).max(asked)
}

impl Transport<Raw> for Nats {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let connection = Connection::open(rendezvous, effective_capacity(case))?;
        let tx = |subjects, credit| Ok(Sending { connection: connection.clone(), subjects, credit });
        names::open(case, role, rendezvous, tx, |subject, credit| Receiving::open(connection.clone(), subject, credit))
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
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        let subject = self.subjects.of(source).clone();
        let message = Vec::<u8>::make(source).into();
        let Connection { runtime, client } = &self.connection;
        runtime.block_on(client.publish(subject, message)).map_err(io::Error::other)
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
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
    fn open(connection: Connection, subject: &str, credit: Option<Refund>) -> Result<Receiving> {
        let subscriber = connection.runtime.block_on(connection.client.subscribe(subject.to_owned()))?;
        connection.round_trip().with_context(|| format!("subscribing to {subject}"))?;
        Ok(Receiving { connection, subscriber, credit })
    }

    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = self.connection.runtime.block_on(self.subscriber.next()).ok_or(ErrorKind::UnexpectedEof)?;
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
