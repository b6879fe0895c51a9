//! The sink that publishes a topic to the server.
//!
//! It takes batches from the topic's ring. A task of the thread of the connections publishes them,
//! so the sink's own thread is woken once for a batch, and not for each answer. Meanwhile it copies
//! the next batch. At least once, a stream stores them (`store.rs`). At most once, a batch is
//! acknowledged to the ring when it is written to the connection.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{Client, HeaderMap, Subject};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::super::inlet::Inlet;
use super::errors::reason;
use super::link::{Io, Link, Signal};
use super::pack::{self, Packed, Packer};
use super::store::{Batches, StreamPublisher};
use super::timing::delay;
use crate::config::{Delivery, Nats, NatsTopic, Topic};
use crate::counters::{Counter, Counters};

/// How many batches are taken and not acknowledged.
pub(super) const MAX_BATCHES: usize = 2;

/// Publishes messages.
pub(super) struct Sender {
    io: Arc<Io>,
    target: Target,
    client: Client,
    /// The most bytes of messages that are sent as one.
    batch: usize,
}

/// How messages are published.
enum Target {
    Subject(Box<SubjectPublisher>),
    Stream(Box<StreamPublisher>),
}

/// The side of the sink's thread.
struct BatchMaker {
    /// The number of the next message, from 1.
    next: u64,
    /// The messages of the next batch.
    batch: Vec<Outgoing>,
    packer: Packer,
    /// The setting of the topic.
    limit: usize,
    client: Client,
    /// To the task that publishes.
    to_publish: mpsc::Sender<Vec<Outgoing>>,
    /// From it: a batch is published.
    published: mpsc::Receiver<()>,
}

/// A message to the server: one of the topic, or several.
pub(super) struct Outgoing {
    /// The number of the first message of the topic, and how many there are.
    pub(super) number: u64,
    count: u64,
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
    /// Its first name, and how often it got another one.
    first_name: String,
    renamed: u64,
    pub(super) stop: Signal,
}

impl Destination {
    /// The name of a message: its producer and its number.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}:{number}", self.producer)
    }

    /// Names all further messages differently, and those that are sent again. The server then
    /// recognises none of them as sent before.
    pub(super) fn rename_producer(&mut self) {
        self.renamed += 1;
        self.producer = format!("{}-{}", self.first_name, self.renamed);
    }

    pub(super) fn headers(&self, message: &Outgoing) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.topic.message_ids {
            headers.insert(NATS_MESSAGE_ID, self.id(message.number));
        }
        if message.count > 1 {
            headers.insert(pack::COUNT, message.count.to_string());
        }
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
        let (io, client, batch) = (link.io(), link.client.clone(), topic.batch);
        let first_name = producer.clone();
        let destination = Destination { link, topic, subject, producer, first_name, renamed: 0, stop };
        let target = match delivery {
            Delivery::AtLeastOnce => Target::Stream(Box::new(StreamPublisher::new(destination, nats))),
            Delivery::AtMostOnce => {
                Target::Subject(Box::new(SubjectPublisher { destination, refusals: 0, has_dropped: false }))
            }
        };
        Sender { io, target, client, batch }
    }

    /// Publishes until the topic has ended or the sink must stop. Blocks.
    ///
    /// # Errors
    ///
    /// If it had to stop with messages that the server has not acknowledged.
    pub(super) fn run(self, mut inlet: Inlet) -> Result<()> {
        let (to_publish, batches) = mpsc::channel(MAX_BATCHES);
        let (report, published) = mpsc::channel(MAX_BATCHES);
        let task = self.io.spawn(self.target.publish_all(batches, report, inlet.counters()));
        let mut maker = BatchMaker::new(self.batch, self.client, to_publish, published);
        let result =
            inlet.for_each_ahead(MAX_BATCHES, &mut maker, BatchMaker::add, BatchMaker::start, BatchMaker::finish);
        drop(maker);
        // The task's error has the reason for an error of this thread.
        self.io.join(task).and(result)
    }
}

impl BatchMaker {
    fn new(
        limit: usize,
        client: Client,
        to_publish: mpsc::Sender<Vec<Outgoing>>,
        published: mpsc::Receiver<()>,
    ) -> BatchMaker {
        BatchMaker { next: 1, batch: Vec::new(), packer: Packer::default(), limit, client, to_publish, published }
    }

    fn add(&mut self, message: &[u8]) -> Result<()> {
        let complete = self.packer.add(message, self.limit());
        self.push(complete);
        Ok(())
    }

    /// The most bytes of messages that are sent as one. The server may have changed.
    fn limit(&self) -> usize {
        self.limit.min(self.client.max_payload().saturating_sub(Topic::NATS_HEADERS))
    }

    fn push(&mut self, packed: Option<Packed>) {
        if let Some(Packed { count, payload }) = packed {
            self.batch.push(Outgoing { number: self.next, count, payload });
            self.next += count;
        }
    }

    /// Lets the batch be published.
    fn start(&mut self) -> Result<()> {
        let last = self.packer.take();
        self.push(last);
        self.to_publish.blocking_send(std::mem::take(&mut self.batch)).context("nothing is published any more")
    }

    /// Waits until the oldest batch is published.
    fn finish(&mut self) -> Result<()> {
        self.published.blocking_recv().context("nothing is published any more")
    }
}

impl Target {
    /// Publishes batches in order, and reports each.
    ///
    /// # Errors
    ///
    /// If it had to stop with messages that the server has not acknowledged.
    async fn publish_all(self, batches: Batches, report: mpsc::Sender<()>, counters: Arc<Counters>) -> Result<()> {
        let published = match self {
            Target::Stream(mut stream) => stream.store_all(batches, report).await,
            Target::Subject(mut subject) => subject.publish_all(batches, report, &counters).await,
        };
        match published {
            Ok(()) => Ok(()),
            Err(Stopped) => bail!("it was stopped before the NATS server had accepted its messages"),
        }
    }
}

/// Publishes messages that are delivered at most once.
struct SubjectPublisher {
    destination: Destination,
    /// How many batches the server refused in a row.
    refusals: usize,
    /// Whether messages of the last batch were dropped.
    has_dropped: bool,
}

impl SubjectPublisher {
    /// Publishes batches until there are no more. Reports each that is written to the connection.
    async fn publish_all(
        &mut self,
        mut batches: Batches,
        report: mpsc::Sender<()>,
        counters: &Counters,
    ) -> Result<(), Stopped> {
        while let Some(batch) = batches.recv().await {
            self.publish(batch, counters).await?;
            // Fails only if the sink has ended.
            let _ = report.send(()).await;
        }
        Ok(())
    }

    /// Writes messages to the connection. Waits while there is none. Messages that the connection
    /// does not accept are dropped and counted.
    async fn publish(&mut self, batch: Vec<Outgoing>, counters: &Counters) -> Result<(), Stopped> {
        let pause = self.pause();
        let Destination { link, subject, stop, .. } = &self.destination;
        self.destination.unless_stopped(link.until_up()).await?;
        if !pause.is_zero() {
            self.destination.unless_stopped(tokio::time::sleep(pause)).await?;
        }
        let publish = async {
            let mut dropped = 0;
            for message in batch {
                let (subject, headers) = (subject.clone(), self.destination.headers(&message));
                let Outgoing { count, payload, .. } = message;
                let published = if headers.is_empty() {
                    link.client.publish(subject, payload).await
                } else {
                    link.client.publish_with_headers(subject, headers, payload).await
                };
                if let Err(error) = published {
                    dropped += count;
                    link.problem(format!("a message was not sent: {}", reason(&error)));
                }
            }
            dropped
        };
        let dropped = self.destination.unless_stopped(publish).await?;
        counters.add(Counter::Dropped, dropped);
        if dropped == 0 && self.has_dropped {
            link.clear_problem();
        }
        self.has_dropped = dropped > 0;
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

    /// How long to wait if the server refused the last batch, which is lost: the longer, the more
    /// in a row.
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
