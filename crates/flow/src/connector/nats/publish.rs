//! The sink that publishes a topic to the server.
//!
//! It takes batches from the topic's ring. At least once: a batch is acknowledged to the ring when
//! the stream has stored all of its messages, and until then no further message is taken, so the
//! ring fills and the sender waits. What the server does not acknowledge is published again, under
//! the same number, which the server recognises. At most once: a batch is acknowledged to the ring
//! when it is written to the connection.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::future::join_all;

use super::super::inlet::Inlet;
use super::link::{Link, Signal, delay, reason};
use super::setup;
use crate::config::{Delivery, Nats, NatsTopic};

/// The version of the format in docs/nats-format.md.
const FORMAT: &str = "1";

/// Publishes messages.
pub(super) struct Sender {
    link: Link,
    nats: Nats,
    topic: NatsTopic,
    /// Names this run of this host.
    producer: String,
    /// The number of the next message, from 1.
    next: u64,
    batch: Vec<Outgoing>,
    /// Whether the stream and its consumers were seen since the last error.
    has_stream: bool,
    /// How many batches the server refused in a row. Only used at most once.
    refusals: Cell<usize>,
    stop: Signal,
}

/// A message of the current batch.
#[derive(Clone)]
struct Outgoing {
    number: u64,
    payload: Bytes,
}

/// What a host's work ended with: it must stop, and the batch is not acknowledged.
struct Stopped;

impl Sender {
    pub(super) fn new(link: Link, nats: Nats, topic: NatsTopic, host: &str, stop: Signal) -> Sender {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let producer = format!("{host}-{}-{:x}", std::process::id(), started.as_micros());
        Sender {
            link,
            nats,
            topic,
            producer,
            next: 1,
            batch: Vec::new(),
            has_stream: false,
            refusals: Cell::new(0),
            stop,
        }
    }

    /// Publishes until the topic has ended or the sink must stop.
    ///
    /// # Errors
    ///
    /// If it had to stop with messages that the server has not acknowledged.
    pub(super) fn run(mut self, mut inlet: Inlet) -> Result<()> {
        inlet.for_each(&mut self, Sender::add, Sender::flush)
    }

    fn add(&mut self, message: &[u8]) -> Result<()> {
        self.batch.push(Outgoing { number: self.next, payload: Bytes::copy_from_slice(message) });
        self.next += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let flushed = match self.topic.delivery {
            Delivery::AtLeastOnce => self.link.block_on(self.store(batch)),
            Delivery::AtMostOnce => self.link.block_on(self.publish(batch)),
        };
        match flushed {
            Ok(()) => {
                self.has_stream = self.topic.delivery == Delivery::AtLeastOnce;
                Ok(())
            }
            Err(Stopped) => bail!("it was stopped before the NATS server had accepted its messages"),
        }
    }

    /// Writes messages to the connection. Waits while there is none.
    async fn publish(&self, batch: Vec<Outgoing>) -> Result<(), Stopped> {
        self.unless_stopped(self.link.until_up()).await?;
        self.pause_if_refused().await?;
        for Outgoing { number, payload } in batch {
            let sent = self.link.client.publish_with_headers(self.topic.subject.clone(), self.headers(number), payload);
            if let Err(error) = self.unless_stopped(sent).await? {
                self.link.problem(format!("a message was not sent: {}", reason(&error)));
            }
        }
        tokio::select! {
            () = self.stop.wait() => return Err(Stopped),
            () = self.link.until_lost() => {}
            _ = self.link.client.flush() => {}
        }
        if self.refusals.get() > 0 {
            // What the server refuses, it says a little later.
            self.unless_stopped(tokio::time::sleep(delay(0))).await?;
        }
        Ok(())
    }

    /// Waits if the server refused the last batch, which is lost: the longer, the more in a row.
    async fn pause_if_refused(&self) -> Result<(), Stopped> {
        match (self.link.take_refused(), self.refusals.get()) {
            (Some(refused), refusals) => {
                self.link.problem(format!("the server refuses: {refused}; grant it to the user of this host"));
                self.refusals.set(refusals + 1);
                self.unless_stopped(tokio::time::sleep(delay(refusals))).await
            }
            (None, 0) => Ok(()),
            (None, _) => {
                self.refusals.set(0);
                self.link.clear_problem();
                Ok(())
            }
        }
    }

    /// Publishes messages until the stream has stored them all.
    async fn store(&self, mut batch: Vec<Outgoing>) -> Result<(), Stopped> {
        let mut has_stream = self.has_stream;
        for attempt in 0.. {
            self.unless_stopped(self.link.until_up()).await?;
            let problem = match has_stream {
                true => self.attempt(&mut batch).await?,
                false => self.prepare().await?,
            };
            match problem {
                None if has_stream => break,
                None => has_stream = true,
                Some(problem) => {
                    has_stream = false;
                    if self.link.is_up() {
                        self.link.problem(problem);
                    }
                    self.unless_stopped(tokio::time::sleep(delay(attempt))).await?;
                }
            }
        }
        self.link.clear_problem();
        Ok(())
    }

    /// Looks for the stream, or creates it. Returns what is wrong, if anything is.
    async fn prepare(&self) -> Result<Option<String>, Stopped> {
        let prepared = self.unless_stopped(setup::prepare(&self.link, &self.nats, &self.topic)).await?;
        Ok(prepared.err().map(|error| error.text().to_owned()))
    }

    /// Publishes messages once. Keeps those that the stream has not stored, and returns why.
    async fn attempt(&self, batch: &mut Vec<Outgoing>) -> Result<Option<String>, Stopped> {
        let _ = self.link.take_refused();
        let publish = async {
            let mut sent = Vec::with_capacity(batch.len());
            for message in batch.iter() {
                sent.push(self.link.jetstream.send_publish(self.topic.subject.clone(), self.stored(message)).await);
            }
            join_all(sent.into_iter().map(async |sent| sent?.await)).await
        };
        let results = tokio::select! {
            () = self.stop.wait() => return Err(Stopped),
            () = self.link.until_lost() => return Ok(Some(String::from("the NATS server is lost"))),
            results = publish => results,
        };
        let mut problem = None;
        let mut results = results.into_iter();
        batch.retain(|_| match results.next() {
            Some(Ok(_)) => false,
            Some(Err(error)) => {
                problem.get_or_insert_with(|| self.explained(&error));
                true
            }
            None => true,
        });
        Ok(problem)
    }

    fn explained(&self, error: &PublishError) -> String {
        let (stream, subject) = (&self.topic.stream, &self.topic.subject);
        if let Some(refused) = self.link.take_refused() {
            return format!("the server refuses: {refused}; grant it to the user of this host");
        }
        match error.kind() {
            PublishErrorKind::StreamNotFound => format!("no stream stores the subject `{subject}`"),
            PublishErrorKind::TimedOut => format!("the stream `{stream}` did not acknowledge a message in time"),
            _ if reason(error).contains("maximum bytes") => format!(
                "the stream `{stream}` is full, and its messages wait: a queue does not process them, or \
                 `nats.stream.max_bytes` is too small"
            ),
            _ => format!("the stream `{stream}` refuses a message: {}", reason(error)),
        }
    }

    fn stored(&self, message: &Outgoing) -> PublishMessage {
        let id = format!("{}:{}", self.producer, message.number);
        let message = PublishMessage::build().payload(message.payload.clone()).headers(self.headers(message.number));
        message.message_id(id)
    }

    fn headers(&self, number: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("Estafette-Format", FORMAT);
        headers.insert("Estafette-Producer", self.producer.as_str());
        headers.insert("Estafette-Sequence", number.to_string().as_str());
        headers
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            () = self.stop.wait() => Err(Stopped),
            done = work => Ok(done),
        }
    }
}
