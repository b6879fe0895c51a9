//! The source of a topic that is delivered at least once: a durable pull consumer of its stream.
//!
//! A message is taken, published to the ring of its queue, and acknowledged when it is settled
//! (`settle.rs`). The source asks for no more than the ring and a short queue can take, so messages
//! that nobody here processes stay in the stream, for the other hosts. While it holds messages, it
//! tells the server that they are in progress.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use estafette_ipc::group::RingControl;
use futures_util::{FutureExt, StreamExt};

use super::super::outlet::{Offered, Outlet};
use super::link::{Link, Signal, delay, reason};
use super::settle::{Barrier, Moment};
use super::setup;
use crate::config::{Nats, NatsTopic};

/// The most messages that a host has taken and not acknowledged.
const MAX_HELD: usize = 2048;
/// The most bytes of messages that a request asks for, if all are as long as they may be.
const MAX_BYTES: usize = 64 << 20;
/// How long a request for messages is open.
const EXPIRES: Duration = Duration::from_secs(5);
/// How long it is open while the server is stuck, and for how long the server counts as stuck.
///
/// After a `kill -9`, servers of 2.9 try to deliver messages again that are acknowledged and removed.
/// For each one they stop until another request comes ("error looking up message for consumer:
/// deleted message").
const STUCK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(30));
/// The shortest and the longest wait between two looks at the rings.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// The wait while it holds no message.
const IDLE: Duration = Duration::from_millis(500);

/// The source.
pub(super) struct Consumer {
    link: Arc<Link>,
    nats: Nats,
    topic: NatsTopic,
    queue: String,
    outlet: Outlet,
    own: RingControl,
    barrier: Barrier,
    pull: Pull,
    /// How many messages the last request brought so far.
    brought: usize,
    stuck_until: Instant,
    held: Held,
    /// The length of messages lately, in bytes: a moving average, at least 1.
    usual_len: usize,
    told: Instant,
}

/// The request for messages.
enum Pull {
    /// None is open, and none is made before that time. `failures` have come in a row.
    Closed { until: Instant, failures: usize },
    /// No request is open.
    Ready(Box<PullConsumer>),
    /// A request is open, on the connection with this number.
    Open(Box<PullConsumer>, Box<Batch>, u64),
}

/// The messages that are taken and not acknowledged. Each is known by its number in the stream.
#[derive(Default)]
struct Held {
    /// How each is acknowledged.
    ackers: HashMap<u64, (Acker, usize)>,
    /// The bytes of all of them.
    bytes: usize,
    /// Not yet in a ring.
    waiting: VecDeque<Waiting>,
    /// In the ring of the queue, with the end of its record there.
    in_ring: VecDeque<(u64, u64)>,
    /// Processed by their readers, since a moment.
    settling: VecDeque<(Vec<u64>, Moment)>,
    /// Settled, and not acknowledged since the server is lost.
    settled: Vec<u64>,
}

impl Held {
    /// Takes out how a message is acknowledged.
    fn release(&mut self, number: u64) -> Option<Acker> {
        let (acker, len) = self.ackers.remove(&number)?;
        self.bytes -= len;
        Some(acker)
    }
}

struct Waiting {
    number: u64,
    payload: Bytes,
    destination: Destination,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Queue,
    /// It was delivered too often.
    DeadLetters,
}

impl Consumer {
    pub(super) fn new(
        link: Link,
        nats: Nats,
        topic: NatsTopic,
        queue: String,
        outlet: Outlet,
        own: RingControl,
        barrier: Barrier,
    ) -> Consumer {
        let (pull, now) = (Pull::Closed { until: Instant::now(), failures: 0 }, Instant::now());
        let link = Arc::new(link);
        let usual_len = topic.max_message;
        Consumer {
            link,
            nats,
            topic,
            queue,
            outlet,
            own,
            barrier,
            pull,
            brought: 1,
            stuck_until: now,
            held: Held::default(),
            usual_len,
            told: now,
        }
    }

    /// Takes messages until `drain` is set, and ends when all that it took are acknowledged, or when
    /// `stop` is set.
    ///
    /// # Errors
    ///
    /// If all readers of the queue have ended, or a ring is broken.
    pub(super) fn run(mut self, drain: &Signal, stop: &Signal) -> Result<()> {
        let link = Arc::clone(&self.link);
        let mut wait = LOOKS.0;
        loop {
            let mut has_progress = false;
            if drain.is_set() {
                link.block_on(self.give_back());
                self.pull = Pull::Closed { until: Instant::now() + Duration::from_secs(3600), failures: 0 };
            } else {
                has_progress |= self.take()?;
            }
            has_progress |= self.forward()?;
            has_progress |= self.settle();
            link.block_on(self.acknowledge());
            if stop.is_set() || (drain.is_set() && self.held.ackers.is_empty()) {
                return link.block_on(self.finish());
            }
            wait = if has_progress { LOOKS.0 } else { (wait * 2).min(LOOKS.1) };
            self.wait(if self.held.ackers.is_empty() { IDLE } else { wait }, drain, stop);
        }
    }

    /// Takes messages that have arrived, and asks for more. Returns whether there were any.
    fn take(&mut self) -> Result<bool> {
        let mut taken = 0;
        if matches!(&self.pull, Pull::Open(.., connection) if *connection != self.link.number()) {
            // The request was lost with its connection.
            self.pull = Pull::Closed { until: Instant::now(), failures: 0 };
        }
        while let Pull::Open(_, batch, _) = &mut self.pull {
            if taken >= MAX_HELD {
                break;
            }
            let Some(next) = self.link.block_on(async { batch.next().now_or_never() }) else { break };
            match next {
                Some(Ok(message)) => {
                    taken += 1;
                    self.hold(message);
                }
                Some(Err(error)) => {
                    tracing::debug!(topic = self.topic.topic, "a request for messages ended: {error}");
                    self.end_pull(1, None);
                }
                None => self.end_pull(0, None),
            }
        }
        self.ask();
        Ok(taken > 0)
    }

    /// Ends the open request.
    fn end_pull(&mut self, failures: usize, problem: Option<String>) {
        if let Some(problem) = problem {
            self.link.problem(problem);
        }
        let closed = Pull::Closed { until: Instant::now() + delay(failures), failures };
        self.pull = match std::mem::replace(&mut self.pull, closed) {
            Pull::Open(consumer, ..) | Pull::Ready(consumer) if failures == 0 => Pull::Ready(consumer),
            _ => return,
        };
    }

    /// Holds a message that has arrived.
    fn hold(&mut self, message: Message) {
        let Ok(info) = message.info() else { return };
        let (number, delivered) = (info.stream_sequence, info.delivered);
        let (message, acker) = message.split();
        let len = message.payload.len();
        self.brought += 1;
        self.usual_len = (self.usual_len * 7 / 8 + len / 8).max(1);
        if self.held.ackers.insert(number, (acker, len)).is_some() {
            // It is here already: the server did not hear of it in time.
            return;
        }
        let is_dead = delivered > i64::from(self.topic.max_deliver);
        let destination = if is_dead { Destination::DeadLetters } else { Destination::Queue };
        self.held.bytes += len;
        self.held.waiting.push_back(Waiting { number, payload: message.payload, destination });
    }

    /// Asks for as many messages as can be held, if no request is open.
    fn ask(&mut self) {
        let failures = match &self.pull {
            Pull::Open(..) => return,
            Pull::Closed { until, .. } if *until > Instant::now() || !self.link.is_up() => return,
            Pull::Closed { failures, .. } => *failures,
            Pull::Ready(_) => 0,
        };
        let (free, free_bytes) = (MAX_HELD - self.held.ackers.len(), self.free_bytes());
        if free < MAX_HELD / 2 || free_bytes < self.topic.capacity / 2 || !self.held.waiting.is_empty() {
            return;
        }
        let messages = free.min(free_bytes / self.usual_len + 1).min((MAX_BYTES / self.topic.max_message).max(1));
        self.look_for_stuck();
        self.brought = 0;
        let connection = self.link.number();
        match self.link.block_on(self.request(messages)) {
            Ok((consumer, batch)) => {
                self.pull = Pull::Open(consumer, Box::new(batch), connection);
                self.link.works();
            }
            Err(problem) => {
                let problem = Some(problem).filter(|_| self.link.is_up());
                self.end_pull(failures + 1, problem);
            }
        }
    }

    /// Notices that a request brought nothing, although the stream has messages.
    fn look_for_stuck(&mut self) {
        let Pull::Ready(consumer) = &self.pull else { return };
        if self.brought == 0 && self.stuck_until <= Instant::now() {
            let info = self.link.block_on(consumer.get_info());
            if info.is_ok_and(|info| info.num_pending > 0) {
                self.stuck_until = Instant::now() + STUCK.1;
            }
        }
    }

    fn free_bytes(&self) -> usize {
        self.topic.capacity.saturating_sub(self.held.bytes)
    }

    /// Asks for messages. Their number is the only bound that servers keep reliably.
    async fn request(&self, messages: usize) -> Result<(Box<PullConsumer>, Batch), String> {
        let consumer = match &self.pull {
            Pull::Ready(consumer) | Pull::Open(consumer, ..) => consumer.clone(),
            Pull::Closed { .. } => {
                let consumer = setup::consumer_of(&self.link, &self.nats, &self.topic, &self.queue).await;
                Box::new(consumer.map_err(|error| error.text().to_owned())?)
            }
        };
        let expires = if self.stuck_until > Instant::now() { STUCK.0 } else { EXPIRES };
        let batch = consumer.batch().max_messages(messages).expires(expires).messages().await;
        Ok((consumer, batch.map_err(|error| reason(&error))?))
    }

    /// Publishes waiting messages to their rings, as far as there is space. Returns whether there
    /// were any.
    fn forward(&mut self) -> Result<bool> {
        let mut has_progress = false;
        while let Some(Waiting { number, payload, destination }) = self.held.waiting.front() {
            let number = *number;
            let (offered, is_dead) = match destination {
                Destination::Queue => (self.outlet.try_send(payload)?, false),
                Destination::DeadLetters => (self.outlet.send_dead_letter(payload)?, true),
            };
            match offered {
                Offered::Full => break,
                Offered::Sent if !is_dead => {
                    let end = self.own.positions().tail;
                    self.held.in_ring.push_back((number, end));
                }
                Offered::Sent => {
                    tracing::warn!(topic = self.topic.topic, "a message was delivered too often, and is dead");
                    self.held.settling.push_back((vec![number], self.barrier.now()));
                }
                // Dead without a topic for dead letters, or too long: counted.
                Offered::Dropped => self.held.settled.push(number),
                Offered::Closed => bail!("all readers of its queue have ended"),
            }
            has_progress = true;
            self.held.waiting.pop_front();
        }
        Ok(has_progress)
    }

    /// Finds messages that are settled. Returns whether there is progress.
    fn settle(&mut self) -> bool {
        let head = self.own.positions().head;
        let done = self.held.in_ring.iter().take_while(|(_, end)| *end <= head).count();
        let processed: Vec<_> = self.held.in_ring.drain(..done).map(|(number, _)| number).collect();
        if !processed.is_empty() {
            self.held.settling.push_back((processed, self.barrier.now()));
        }
        let before = self.held.settled.len();
        while let Some((_, moment)) = self.held.settling.front_mut() {
            if !self.barrier.has_passed(moment) {
                break;
            }
            let settled = self.held.settling.pop_front();
            self.held.settled.extend(settled.into_iter().flat_map(|(numbers, _)| numbers));
        }
        done > 0 || self.held.settled.len() > before
    }

    /// Acknowledges what is settled, and tells the server that the rest is in progress.
    async fn acknowledge(&mut self) {
        if !self.link.is_up() {
            return;
        }
        for number in std::mem::take(&mut self.held.settled) {
            if let Some(acker) = self.held.release(number)
                && acker.ack().await.is_err()
            {
                tracing::debug!("an acknowledgement was not sent, so its message is delivered again");
            }
        }
        if self.told.elapsed() > self.nats.ack_wait / 3 {
            self.told = Instant::now();
            for (acker, _) in self.held.ackers.values() {
                let _ = acker.ack_with(AckKind::Progress).await;
            }
        }
    }

    /// Gives back messages that are in no ring, for other hosts.
    async fn give_back(&mut self) {
        for waiting in std::mem::take(&mut self.held.waiting) {
            if let Some(acker) = self.held.release(waiting.number)
                && self.link.is_up()
            {
                let _ = acker.ack_with(AckKind::Nak(None)).await;
            }
        }
    }

    /// Writes what was acknowledged to the connection.
    async fn finish(&mut self) -> Result<()> {
        if self.link.is_up() {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.link.client.flush()).await;
        }
        Ok(())
    }

    /// Waits for a message, a signal, or until the time is over.
    fn wait(&mut self, time: Duration, drain: &Signal, stop: &Signal) {
        let is_draining = drain.is_set();
        let (link, pull) = (&self.link, &mut self.pull);
        let mut arrived = None;
        link.block_on(async {
            let batch = async {
                match pull {
                    Pull::Open(_, batch, _) => batch.next().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = drain.wait(), if !is_draining => {}
                () = stop.wait() => {}
                next = batch => arrived = Some(next),
            }
        });
        match arrived {
            Some(Some(Ok(message))) => self.hold(message),
            Some(Some(Err(_))) => self.end_pull(1, None),
            Some(None) => self.end_pull(0, None),
            None => {}
        }
    }
}
