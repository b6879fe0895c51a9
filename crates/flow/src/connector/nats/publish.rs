//! The sink that publishes a topic to the server.
//!
//! It takes batches from the topic's ring. The thread of the connections publishes them, so the sink's
//! own thread is woken once for a batch, and not for each answer. At least once, a stream stores them
//! (`store.rs`). At most once, a batch is acknowledged to the ring when it is written to the
//! connection.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Subject};
use bytes::{Bytes, BytesMut};
use tokio::sync::Mutex;

use super::super::inlet::Inlet;
use super::errors::reason;
use super::link::{Io, Link, Signal};
use super::store::StreamPublisher;
use super::timing::delay;
use crate::config::{Delivery, Nats, NatsTopic};

/// The bytes of payloads that share an allocation, which is free when all of them are sent.
const BLOCK: usize = 256 << 10;

/// Publishes messages.
pub(super) struct Sender {
    io: Arc<Io>,
    /// Used by the task of the current batch only.
    target: Arc<Mutex<Target>>,
    /// The number of the next message, from 1.
    next: u64,
    batch: Vec<Outgoing>,
    /// The next payloads are copied there.
    block: BytesMut,
}

/// How messages are published.
enum Target {
    Subject(Box<SubjectPublisher>),
    Stream(Box<StreamPublisher>),
}

/// A message of the current batch.
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) payload: Bytes,
}

/// The sink had to stop before the batch was accepted.
pub(super) struct Stopped;

/// Where messages are published, and by whom.
pub(super) struct Destination {
    pub(super) link: Link,
    pub(super) topic: NatsTopic,
    pub(super) subject: Subject,
    /// Names this run of this host.
    pub(super) producer: String,
    pub(super) stop: Signal,
}

impl Destination {
    /// The name of a message: its producer and its number.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.producer)
    }

    pub(super) fn headers(&self, number: u64) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.id(number));
        headers
    }

    pub(super) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            () = self.stop.wait() => Err(Stopped),
            done = work => Ok(done),
        }
    }
}

impl Sender {
    pub(super) fn new(link: Link, nats: Nats, topic: NatsTopic, host: &str, stop: Signal) -> Sender {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let producer = format!("{host}-{}-{:x}", std::process::id(), started.as_micros());
        let delivery = topic.delivery;
        let subject = Subject::from(topic.subject.as_str());
        let io = link.io();
        let destination = Destination { link, topic, subject, producer, stop };
        let target = match delivery {
            Delivery::AtLeastOnce => Target::Stream(Box::new(StreamPublisher::new(destination, nats))),
            Delivery::AtMostOnce => Target::Subject(Box::new(SubjectPublisher { destination, refusals: 0 })),
        };
        Sender { io, target: Arc::new(Mutex::new(target)), next: 1, batch: Vec::new(), block: BytesMut::new() }
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
        if self.block.capacity() < message.len() {
            self.block = BytesMut::with_capacity(BLOCK.max(message.len()));
        }
        self.block.extend_from_slice(message);
        self.batch.push(Outgoing { number: self.next, payload: self.block.split().freeze() });
        self.next += 1;
        Ok(())
    }

    /// Publishes the batch. Blocks.
    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let target = Arc::clone(&self.target);
        self.io.run(async move {
            let flushed = match &mut *target.lock().await {
                Target::Stream(stream) => stream.store(&batch).await,
                Target::Subject(subject) => subject.publish(batch).await,
            };
            match flushed {
                Ok(()) => Ok(()),
                Err(Stopped) => bail!("it was stopped before the NATS server had accepted its messages"),
            }
        })
    }
}

/// Publishes messages that are delivered at most once.
struct SubjectPublisher {
    destination: Destination,
    /// How many batches the server refused in a row.
    refusals: usize,
}

impl SubjectPublisher {
    /// Writes messages to the connection. Waits while there is none.
    async fn publish(&mut self, batch: Vec<Outgoing>) -> Result<(), Stopped> {
        let pause = self.pause();
        let Destination { link, subject, stop, .. } = &self.destination;
        self.destination.unless_stopped(link.until_up()).await?;
        if !pause.is_zero() {
            self.destination.unless_stopped(tokio::time::sleep(pause)).await?;
        }
        let publish = async {
            for Outgoing { number, payload } in batch {
                let headers = self.destination.headers(number);
                if let Err(error) = link.client.publish_with_headers(subject.clone(), headers, payload).await {
                    link.problem(format!("a message was not sent: {}", reason(&error)));
                }
            }
        };
        self.destination.unless_stopped(publish).await?;
        tokio::select! {
            () = stop.wait() => return Err(Stopped),
            () = link.until_lost() => {}
            _ = link.client.flush() => {}
        }
        if self.refusals > 0 {
            // What the server refuses, it says a little later.
            self.destination.unless_stopped(tokio::time::sleep(delay(0))).await?;
        }
        Ok(())
    }

    /// How long to wait if the server refused the last batch, which is lost: the longer, the more in a
    /// row.
    fn pause(&mut self) -> Duration {
        let link = &self.destination.link;
        match link.take_refused() {
            Some(refused) => {
                link.problem(format!("the server refuses: {refused}; grant it to the user of this host"));
                self.refusals += 1;
                delay(self.refusals - 1)
            }
            None => {
                if std::mem::take(&mut self.refusals) > 0 {
                    link.clear_problem();
                }
                Duration::ZERO
            }
        }
    }
}
