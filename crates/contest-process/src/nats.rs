//! NATS through a `nats-server` for each instance on a loopback port: core publish-subscribe, which
//! stores nothing.
//!
//! A slow subscriber loses messages when its client's buffer or the server's is full. So credit
//! limits the messages in flight, and both buffers are large enough for them. `async-nats` reads
//! and writes in a background task, which continues while the program does other work. So it has a
//! runtime with one worker on its party's core, like a program under `#[tokio::main]` on one core.

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

/// Returns the capacity of a subscriber's buffer in messages; the client drops further messages.
/// Round trips need no credit, but every client may have a request in flight at the same time.
fn effective_capacity(case: &Case) -> usize {
    let requests = if case.pattern.is_round_trip() { case.producers } else { 0 };
    slots(case).max(requests)
}

impl Transport<Raw> for Nats {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let connection = Connection::open(rendezvous, effective_capacity(case))?;
        let tx = |subjects, credit| Ok(SendEnd { connection: connection.clone(), subjects, credit });
        names::open(case, role, rendezvous, tx, |subject, credit| RecvEnd::open(connection.clone(), subject, credit))
    }
}

/// The sending end.
pub(super) struct SendEnd {
    connection: Connection,
    subjects: Names<Subject>,
    credit: Option<Spend>,
}

impl SendEnd {
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

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.send(source)
    }

    /// Waits until the server has read everything. The client's own `flush` is not enough: when the
    /// socket is full, it returns with bytes still unwritten.
    fn flush(&mut self) -> io::Result<()> {
        self.connection.round_trip().map_err(io::Error::other)
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    connection: Connection,
    subscriber: Subscriber,
    credit: Option<Refund>,
}

impl RecvEnd {
    fn open(connection: Connection, subject: &str, credit: Option<Refund>) -> Result<RecvEnd> {
        let subscriber = connection.runtime.block_on(connection.client.subscribe(subject.to_owned()))?;
        connection.round_trip().with_context(|| format!("subscribing to {subject}"))?;
        Ok(RecvEnd { connection, subscriber, credit })
    }

    #[inline(always)]
    fn recv_message(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = self.connection.runtime.block_on(self.subscriber.next()).ok_or(ErrorKind::UnexpectedEof)?;
        verifier.bytes(&message.payload);
        self.credit.as_mut().map_or(Ok(()), Refund::give)
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message(verifier)
    }
}
