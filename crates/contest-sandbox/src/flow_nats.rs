//! The pipelines of `sandbox/flow` with NATS between the hosts. It compares estafette-flow with
//! connecting processes through a message broker.
//!
//! The broker is a `nats-server` for each instance, like that of `process/nats`. The sender's host
//! publishes each message to one subject. The receivers subscribe to it in one queue group, so each
//! message goes to one of them. Core NATS drops messages that a slow subscriber does not read in
//! time. Credit, which the receivers share, limits the messages in flight.
//!
//! The end is a message to a separate subject, to which each receiver subscribes. The server reads
//! a client's messages in order, and writes them to a subscriber in that order. So all earlier
//! messages have arrived when the end arrives.

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
use super::guest::{Guest, MessageSink, NoOutput, Receiver};
use super::rows::{self, MAX_MESSAGE, PIPELINES};

/// The highest number of bytes in flight, equal to a topic's default capacity.
const CAPACITY: usize = 4 << 20;
/// The largest batch of a receiver in bytes, equal to that of a function of `sandbox/flow`.
const BATCH_BYTES: usize = 128 << 10;
/// The subject of messages, the subject of the end, and the queue group.
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
        once(Role::Broker).chain(rows::ends(case)).collect()
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
        // Computing a checksum takes the same time as elsewhere.
        if case.pattern == Pattern::SendChecksum { 4 } else { 16 }
    }

    fn server(&self) -> Option<String> {
        SERVER.version()
    }

    fn check_available(&self) -> Result<(), String> {
        SERVER.check_available()
    }
}

/// Returns the highest number of messages in flight.
fn capacity_messages(len: usize) -> usize {
    (CAPACITY / len).max(1)
}

/// Returns the highest number of messages in a function's batch.
fn max_batch(len: usize) -> usize {
    (BATCH_BYTES / len).max(1)
}

/// Runs the sender of a pipeline.
fn send(case: &Case, messages: u64, rendezvous: &mut Rendezvous) -> Result<PipelineEnd> {
    let len = case.payload.len();
    let connection = Connection::open(rendezvous, 1)?;
    let credit = Spend::open_shared(capacity_messages(len), case, rendezvous)?;
    let args = [messages.to_string(), len.to_string()];
    let subject = Subject::from_static(MESSAGES);
    let sink = PublishingSink { connection: connection.clone(), subject, credit, len };
    let mut sender = Guest::new(BATCHED.send, &args, sink)?;
    rendezvous.wait_at_barrier()?;
    sender.call("_start")?;
    connection.runtime.block_on(connection.client.publish(END, Bytes::new())).context("publishing the end")?;
    // Waits until the server has read the end.
    connection.round_trip().context("publishing the end")?;
    Ok(PipelineEnd::sender(messages + 1))
}

/// A sink that publishes a function's messages.
struct PublishingSink {
    connection: Connection,
    subject: Subject,
    credit: Spend,
    len: usize,
}

impl MessageSink for PublishingSink {
    fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let PublishingSink { connection: Connection { runtime, client }, subject, credit, len } = self;
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

/// Runs a receiver of a pipeline.
fn receive(case: &Case, index: usize, rendezvous: &mut Rendezvous) -> Result<PipelineEnd> {
    let len = case.payload.len();
    let connection = Connection::open(rendezvous, capacity_messages(len))?;
    let input = subscribe(&connection).context("subscribing")?;
    let credit = Refund::open_shared(capacity_messages(len), case, index, rendezvous)?;
    let function = Guest::new(BATCHED.receiver(case.pattern), &[], NoOutput)?.receiver(len, max_batch(len))?;
    let mut receiver = CountingReceiver { function, credit, count: 0, is_damaged: false };
    rendezvous.wait_at_barrier()?;
    pass_on(&connection, input, max_batch(len), &mut receiver)?;
    let CountingReceiver { function, count, is_damaged, .. } = receiver;
    let end = PipelineEnd::receiver(index, count, function.last().map(|last| last.time));
    Ok(end.damaged(u64::from(is_damaged)))
}

/// A receiver's subscriptions: its share of the messages, and the end.
struct Input {
    messages: Subscriber,
    end: Subscriber,
}

fn subscribe(connection: &Connection) -> Result<Input> {
    let Connection { runtime, client } = connection;
    let messages = runtime.block_on(client.queue_subscribe(MESSAGES, GROUP.into()))?;
    let end = runtime.block_on(client.subscribe(END))?;
    // Waits until the server has read the subscriptions.
    connection.round_trip()?;
    Ok(Input { messages, end })
}

/// Delivers messages to a function, up to `most` at once, until the end has arrived.
fn pass_on<O: MessageSink>(
    connection: &Connection,
    input: Input,
    most: usize,
    to: &mut CountingReceiver<O>,
) -> Result<()> {
    let Connection { runtime, .. } = connection;
    let mut incoming = select(input.messages, input.end).ready_chunks(most);
    loop {
        let mut batch = runtime.block_on(incoming.next()).context("nats-server closed the connection")?;
        let count = batch.len();
        batch.retain(|message| message.subject.as_str() != END);
        to.deliver(payloads(&batch))?;
        if batch.len() < count {
            break;
        }
    }
    // Messages from before the end may still be buffered. After unsubscribing, the stream contains
    // no others.
    let (mut messages, _) = incoming.into_inner().into_inner();
    runtime.block_on(messages.unsubscribe())?;
    let mut left = messages.ready_chunks(most);
    while let Some(batch) = runtime.block_on(left.next()) {
        to.deliver(payloads(&batch))?;
    }
    Ok(())
}

fn payloads(batch: &[Message]) -> impl ExactSizeIterator<Item = &[u8]> {
    batch.iter().map(|message| &message.payload[..])
}

/// A function with its message count and credit.
struct CountingReceiver<O: 'static> {
    function: Receiver<O>,
    credit: Refund,
    count: u64,
    /// The function found a damaged message and ended. Later messages are counted but not delivered
    /// to it, so that the sender can finish.
    is_damaged: bool,
}

impl<O: MessageSink> CountingReceiver<O> {
    fn deliver<'a>(&mut self, messages: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
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
    fn a_damaged_message_does_not_block_the_sender() {
        for damaged in [false, true] {
            let mut messages = sent(3);
            messages[1_500] ^= u8::from(damaged);
            let (mut theirs, credit) = Refund::filled(4, 1).unwrap();
            let function = Guest::new(BATCHED.checksum, &[], NoOutput).unwrap().receiver(1000, 2).unwrap();
            let mut receiver = CountingReceiver { function, credit, count: 0, is_damaged: false };
            messages.chunks(2000).for_each(|batch| receiver.deliver(batch.chunks_exact(1000)).unwrap());
            assert_eq!((receiver.count, receiver.is_damaged), (4, damaged));
            assert_eq!(receiver.function.last().is_some(), !damaged);
            // The initial credit, and the same amount returned.
            drop(receiver);
            let mut credit = Vec::new();
            theirs.read_to_end(&mut credit).unwrap();
            assert_eq!(credit.len(), 8);
        }
    }
}
