//! NATS through a `nats-server` beside the producer: core publish-subscribe, whose ends may be on
//! two hosts.
//!
//! As in `process/nats`, credit limits the messages in flight, since a slow subscriber loses
//! messages when its client's buffer or the server's is full. A pipe cannot carry it to another
//! host, so the consumer publishes a message for each batch of messages that it has received.

use std::io::{self, ErrorKind};

use anyhow::Result;
use async_nats::{Subject, Subscriber};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::nats::{self, Connection, MAX_MESSAGE, SERVER};
use estafette_contest_common::server;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use futures_util::StreamExt;

use super::broker::{Broker, Names};
use super::nats::{self as process, Nats};

/// The subject of messages to the consumer.
const FORWARD: &str = "forward";
/// The subject of replies.
const REPLY: &str = "reply";
/// The subject of the consumer's credit.
const CREDIT: &str = "credit";
/// The number of batches into which the credit is divided.
const BATCHES: usize = 4;

/// `network/nats`.
pub(crate) struct NatsNetwork;

impl Mechanism for NatsNetwork {
    fn spec(&self) -> Spec {
        Spec::new("network/nats")
            .any_language(true)
            .kernel_copies(4)
            .version(concat!("async-nats ", env!("LOCKED_ASYNC_NATS")))
            .implementation("nats-server beside the producer, publish and subscribe; credit in messages of its own")
            .patterns(&[Pattern::PingPong, Pattern::Stream])
            .ownership(Ownership::Owned)
            .max_message(MAX_MESSAGE)
            .between_hosts(true)
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some((credit_batch(case) * (slots(case) / credit_batch(case))) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        server::roles(case)
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        nats::serve(rendezvous)
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn check_available(&self) -> Result<(), String> {
        SERVER.check_available()
    }
}

impl Transport<Raw> for NatsNetwork {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let connection = Connection::open(rendezvous, slots(case))?;
        let tx = |subject: &str| Nats.sender(&connection, Names::one(Subject::from(subject)));
        let rx = |subject: &str| Nats.receiver(&connection, subject);
        let has_reply = case.pattern.is_bidirectional();
        let batch_len = credit_batch(case);
        match role {
            Role::Consumer(_) if has_reply => {
                let rx = RecvEnd { rx: rx(FORWARD)?, refund: None };
                Ok(Ends::both(role, SendEnd { tx: tx(REPLY)?, credit: None }, rx))
            }
            _ if has_reply => {
                let rx = RecvEnd { rx: rx(REPLY)?, refund: None };
                Ok(Ends::both(role, SendEnd { tx: tx(FORWARD)?, credit: None }, rx))
            }
            Role::Consumer(index) => {
                let refund = Refund { connection: connection.clone(), received: 0, batch_len };
                Ok(Ends::consumer(index, RecvEnd { rx: rx(FORWARD)?, refund: Some(refund) }))
            }
            Role::Producer(index) => {
                let granted = rx(CREDIT)?.subscriber;
                let available = slots(case) / batch_len * batch_len;
                let credit = Credit { connection: connection.clone(), granted, available, batch_len };
                Ok(Ends::producer(index, SendEnd { tx: tx(FORWARD)?, credit: Some(credit) }))
            }
            other => anyhow::bail!("{other} has no end"),
        }
    }
}

/// How many messages the consumer returns credit for at once.
fn credit_batch(case: &Case) -> usize {
    (slots(case) / BATCHES).max(1)
}

/// The producer's credit.
struct Credit {
    connection: Connection,
    /// One message for each batch that the consumer has received.
    granted: Subscriber,
    /// How many messages may be sent before the next grant.
    available: usize,
    batch_len: usize,
}

impl Credit {
    /// Takes credit for one message. Blocks until there is some.
    fn take(&mut self) -> io::Result<()> {
        if self.available == 0 {
            self.connection.runtime.block_on(self.granted.next()).ok_or(ErrorKind::UnexpectedEof)?;
            self.available = self.batch_len;
        }
        self.available -= 1;
        Ok(())
    }
}

/// The credit that the consumer returns.
struct Refund {
    connection: Connection,
    /// Messages of the current batch.
    received: usize,
    batch_len: usize,
}

impl Refund {
    /// Returns the credit of one message, in whole batches.
    fn give(&mut self) -> io::Result<()> {
        self.received += 1;
        if self.received < self.batch_len {
            return Ok(());
        }
        self.received = 0;
        let Connection { runtime, client } = &self.connection;
        runtime.block_on(client.publish(CREDIT, "".into())).map_err(io::Error::other)
    }
}

/// The sending end.
pub(crate) struct SendEnd {
    tx: process::SendEnd,
    credit: Option<Credit>,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.credit.as_mut().map_or(Ok(()), Credit::take)?;
        self.tx.send(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tx.flush()
    }
}

/// The receiving end.
pub(crate) struct RecvEnd {
    rx: process::RecvEnd,
    refund: Option<Refund>,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.rx.recv(verifier)?;
        self.refund.as_mut().map_or(Ok(()), Refund::give)
    }
}
