//! The pipelines of `sandbox/flow` with NATS between the hosts: what estafette-flow is compared with where people
//! would otherwise join processes by a broker.
//!
//! The broker is a `nats-server` of the instance's own, as that of `process/nats` is. The sender's host publishes each message
//! to one subject; receivers subscribe to it in one queue group, so that each message has one of them. Core NATS drops
//! messages that a slow subscriber does not read in time. Credit, which the receivers share, limits the messages under way.
//!
//! The end is a message to a subject of its own, to which each receiver subscribes. The server reads what a client publishes in
//! order, and writes it to a subscriber in that order: when the end has come, all messages before it have.

use std::io;
use std::iter::once;

use anyhow::{Context, Result};
use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::nats::{self, Connection, SERVER};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::usage::Usage;
use estafette_measure::{Mechanism, PipelineEnd, Rendezvous, Spec};
use futures_util::StreamExt;
use futures_util::stream::select;

use super::flow_pipelines::BATCHED;
use super::guest::{Guest, Nowhere, Outlet, Receiver};
use super::{MAX_MESSAGE, PIPELINES};

/// The most bytes under way, as a topic holds them by default.
const CAPACITY: usize = 4 << 20;
/// The most bytes that a receiver takes at once, as a function of `sandbox/flow` does.
const BATCH_BYTES: usize = 128 << 10;
/// The subject of messages, that of the end, and the queue group.
const MESSAGES: &str = "messages";
const END: &str = "end";
const GROUP: &str = "receivers";

/// `sandbox/flow-nats`.
pub(super) struct FlowNats;

impl Mechanism for FlowNats {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/flow-nats")
            .version(concat!("async-nats ", env!("LOCKED_ASYNC_NATS"), ", wasmtime ", env!("LOCKED_WASMTIME")))
            .implementation("the functions of `sandbox/flow`, each in a process, a nats-server on 127.0.0.1 between")
            .patterns(&PIPELINES)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
            .tier(Tier::Suite)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        once(Role::Broker).chain(super::ends(case)).collect()
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        nats::serve(rendezvous)
    }

    fn pipeline(
        &self,
        case: &Case,
        role: Role,
        messages: u64,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<PipelineEnd>> {
        let end = match role {
            Role::Consumer(index) => receive(case, index, rendezvous)?,
            _ => send(case, messages, rendezvous)?,
        };
        Ok(vec![end])
    }

    fn pipeline_slowness(&self, case: &Case) -> u64 {
        // Computing a checksum takes as long as it does elsewhere.
        if case.pattern == Pattern::SendChecksum { 4 } else { 16 }
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn check_available(&self) -> Result<(), String> {
        SERVER.check_available()
    }
}

/// How many messages may be under way.
fn capacity_messages(len: usize) -> usize {
    (CAPACITY / len).max(1)
}

/// How many messages are given to a function at once, at the most.
fn max_batch(len: usize) -> usize {
    (BATCH_BYTES / len).max(1)
}

/// The sender of a pipeline.
fn send(case: &Case, messages: u64, rendezvous: &mut Rendezvous) -> Result<PipelineEnd> {
    let len = case.payload.len();
    let connection = Connection::open(rendezvous, 1)?;
    let credit = Spend::open_shared(capacity_messages(len), case, rendezvous)?;
    let args = [messages.to_string(), len.to_string()];
    let subject = Subject::from_static(MESSAGES);
    let outlet = Publishing { connection: connection.clone(), subject, credit, len };
    let mut sender = Guest::new(BATCHED.send, &args, outlet)?;
    rendezvous.ready()?;
    sender.call("_start")?;
    connection.runtime.block_on(connection.client.publish(END, Bytes::new())).context("publishing the end")?;
    // Until the server has read it.
    connection.round_trip().context("publishing the end")?;
    Ok(PipelineEnd::sender(messages + 1))
}

/// Publishes what a function sends.
struct Publishing {
    connection: Connection,
    subject: Subject,
    credit: Spend,
    len: usize,
}

impl Outlet for Publishing {
    fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let Publishing { connection: Connection { runtime, client }, subject, credit, len } = self;
        let mut left = Bytes::copy_from_slice(messages);
        runtime.block_on(async {
            while !left.is_empty() {
                credit.take()?;
                client.publish(subject.clone(), left.split_to(*len)).await.map_err(io::Error::other)?;
            }
            Ok(())
        })
    }
}

/// A receiver of a pipeline.
fn receive(case: &Case, index: usize, rendezvous: &mut Rendezvous) -> Result<PipelineEnd> {
    let len = case.payload.len();
    let connection = Connection::open(rendezvous, capacity_messages(len))?;
    let input = subscribe(&connection).context("subscribing")?;
    let credit = Refund::open_shared(capacity_messages(len), case, index, rendezvous)?;
    let function = Guest::new(BATCHED.receiver(case.pattern), &[], Nowhere)?.receiver(len, max_batch(len))?;
    let mut receiving = Receiving { function, credit, count: 0, is_damaged: false };
    rendezvous.ready()?;
    pass_on(&connection, input, max_batch(len), &mut receiving)?;
    let Receiving { function, count, is_damaged, .. } = receiving;
    let end = PipelineEnd::receiver(index, count, function.last().map(|last| last.time));
    Ok(end.damaged(u64::from(is_damaged)))
}

/// What a receiver subscribes to: its share of the messages, and the end.
struct Input {
    messages: Subscriber,
    end: Subscriber,
}

fn subscribe(connection: &Connection) -> Result<Input> {
    let Connection { runtime, client } = connection;
    let messages = runtime.block_on(client.queue_subscribe(MESSAGES, GROUP.into()))?;
    let end = runtime.block_on(client.subscribe(END))?;
    // Until the server has read it.
    connection.round_trip()?;
    Ok(Input { messages, end })
}

/// Gives a function its messages, up to so many at once, until the end has come.
fn pass_on<O: Outlet>(connection: &Connection, input: Input, most: usize, to: &mut Receiving<O>) -> Result<()> {
    let Connection { runtime, .. } = connection;
    let mut arriving = select(input.messages, input.end).ready_chunks(most);
    loop {
        let mut batch = runtime.block_on(arriving.next()).context("nats-server closed the connection")?;
        let count = batch.len();
        batch.retain(|message| message.subject.as_str() != END);
        to.take(payloads(&batch))?;
        if batch.len() < count {
            break;
        }
    }
    // Messages before the end may still lie here. Those are all, as an unsubscribed stream has no more.
    let (mut messages, _) = arriving.into_inner().into_inner();
    runtime.block_on(messages.unsubscribe())?;
    let mut left = messages.ready_chunks(most);
    while let Some(batch) = runtime.block_on(left.next()) {
        to.take(payloads(&batch))?;
    }
    Ok(())
}

fn payloads(batch: &[Message]) -> impl ExactSizeIterator<Item = &[u8]> {
    batch.iter().map(|message| &message.payload[..])
}

/// A function, and what its messages are counted with.
struct Receiving<O: 'static> {
    function: Receiver<O>,
    credit: Refund,
    count: u64,
    /// It found a message that is not what was sent, and ended. What comes after that is counted and not given to it, so that
    /// its sender comes to an end.
    is_damaged: bool,
}

impl<O: Outlet> Receiving<O> {
    fn take<'a>(&mut self, messages: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
        let count = messages.len();
        if count > 0 && !self.is_damaged {
            match self.function.deliver_each(messages) {
                Err(error) if !self.function.is_damaged() => return Err(error),
                delivered => self.is_damaged = delivered.is_err(),
            }
        }
        self.count += count as u64;
        (0..count).try_for_each(|_| self.credit.give())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::guest::tests::sent;
    use super::*;

    #[test]
    fn a_damaged_message_keeps_nobody_from_the_end() {
        for damaged in [false, true] {
            let mut messages = sent(3);
            messages[1_500] ^= u8::from(damaged);
            let (mut theirs, credit) = Refund::filled(4, 1).unwrap();
            let function = Guest::new(BATCHED.checksum, &[], Nowhere).unwrap().receiver(1000, 2).unwrap();
            let mut receiving = Receiving { function, credit, count: 0, is_damaged: false };
            messages.chunks(2000).for_each(|batch| receiving.take(batch.chunks_exact(1000)).unwrap());
            assert_eq!((receiving.count, receiving.is_damaged), (4, damaged));
            assert_eq!(receiving.function.last().is_some(), !damaged);
            // The credit that there was, and as much given back.
            drop(receiving);
            let mut credit = Vec::new();
            theirs.read_to_end(&mut credit).unwrap();
            assert_eq!(credit.len(), 8);
        }
    }
}
