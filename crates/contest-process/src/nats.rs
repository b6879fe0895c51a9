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
use estafette_contest_common::nats::{self, Connection, MAX_MESSAGE, SERVER};
use estafette_contest_common::server::Server;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership};
use estafette_measure::usage::Usage;
use estafette_measure::{Generator, Rendezvous, Rx, Spec, Tx, Value, Verifier};
use futures_util::StreamExt;

use super::broker::{Broker, Brokered, Names};

pub(super) struct Nats;

pub(super) const NATS: Brokered<Nats> = Brokered(Nats);

impl Broker for Nats {
    type Client = Connection;
    type Name = Subject;
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn spec(&self) -> Spec {
        Spec::new("process/nats")
            .any_language(true)
            .kernel_copies(4)
            .version(concat!("async-nats ", env!("LOCKED_ASYNC_NATS")))
            .implementation("nats-server on 127.0.0.1, publish and subscribe")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply, Pattern::PubSub])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
    }

    fn server(&self) -> &Server {
        &SERVER
    }

    fn serve(&self, rendezvous: &mut Rendezvous) -> Result<Usage> {
        nats::serve(rendezvous)
    }

    /// The capacity of a subscriber's buffer; the client drops further messages. Round trips need
    /// no credit, but every client may have a request in flight at the same time.
    fn effective_capacity(&self, case: &Case) -> usize {
        let requests = if case.pattern.is_round_trip() { case.producers } else { 0 };
        slots(case).max(requests)
    }

    fn connect(&self, case: &Case, _: Role, rendezvous: &mut Rendezvous) -> Result<Connection> {
        Connection::open(rendezvous, self.effective_capacity(case))
    }

    fn sender(&self, connection: &Connection, subjects: Names<Subject>) -> Result<SendEnd> {
        Ok(SendEnd { connection: connection.clone(), subjects })
    }

    fn receiver(&self, connection: &Connection, subject: &str) -> Result<RecvEnd> {
        let subscriber = connection.runtime.block_on(connection.client.subscribe(subject.to_owned()))?;
        connection.round_trip().with_context(|| format!("subscribing to {subject}"))?;
        Ok(RecvEnd { connection: connection.clone(), subscriber })
    }
}

/// The sending end.
pub(super) struct SendEnd {
    connection: Connection,
    subjects: Names<Subject>,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let subject = self.subjects.of(source).clone();
        let message = Vec::<u8>::make(source).into();
        let Connection { runtime, client } = &self.connection;
        runtime.block_on(client.publish(subject, message)).map_err(io::Error::other)
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
    pub(super) subscriber: Subscriber,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let message = self.connection.runtime.block_on(self.subscriber.next()).ok_or(ErrorKind::UnexpectedEof)?;
        verifier.bytes(&message.payload);
        Ok(())
    }
}
