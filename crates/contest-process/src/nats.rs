//! NATS, through a `nats-server` of the instance's own on a loopback port: core publish and subscribe, which keeps nothing.
//!
//! A subscriber that is slow loses what its client and the server have no room for; so credit caps what is under way, and
//! both have room for that. `async-nats` writes and reads in a task of its own, which goes on while its user does something
//! else: it has a runtime with one worker, on its party's core, as a program has it under `#[tokio::main]` on one core.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};

use anyhow::{Context, Result};
use async_nats::{Subject, Subscriber};
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::nats::{Connection, MAX_MESSAGE, SERVER, serve};
use estafette_contest_common::room::slots;
use estafette_contest_common::server;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Joins, Ordering, Ownership};
use estafette_measure::usage::Usage;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Payload, Raw, Rendezvous, Rx, Spec, Tx, Verifier};
use futures_util::StreamExt;

use super::names::{self, Names};

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

/// How many messages a subscriber has room for; what it has none for the client drops. Where each waits for its answer no credit
/// is needed, but every client may have asked at once.
fn room(case: &Case) -> usize {
    let asked = if case.pattern.asks() { case.producers } else { 0 };
    slots(case).max(asked)
}

impl Carries<Raw> for Nats {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let connection = Connection::open(meet, room(case))?;
        let tx = |subjects, credit| Ok(Sending { connection: connection.clone(), subjects, credit });
        names::open(case, role, meet, tx, |subject, credit| Receiving::open(connection.clone(), subject, credit))
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
    fn open(connection: Connection, subject: &str, credit: Option<Refund>) -> Result<Receiving> {
        let subscriber = connection.runtime.block_on(connection.client.subscribe(subject.to_owned()))?;
        connection.round_trip().with_context(|| format!("subscribing to {subject}"))?;
        Ok(Receiving { connection, subscriber, credit })
    }

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
