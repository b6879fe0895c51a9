//! The source of a topic that is delivered at least once: a durable pull consumer of its stream.
//!
//! A message is taken, published to the ring of its queue, and acknowledged when it is settled
//! (`settle.rs`). The source asks for no more than the ring and a short queue can take, so messages
//! that nobody here processes stay in the stream, for the other hosts. It reports those that it has not
//! acknowledged as in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use async_nats::jetstream::{AckKind, Message};
use estafette_ipc::group::RingControl;
use futures_util::{FutureExt, StreamExt};

use super::super::outlet::{Offered, Outlet};
use super::errors::reason;
use super::link::{Link, Signal};
use super::settle::Barrier;
use super::setup;
use super::timing::delay;
use super::unacked::{Dead, Unacked, Waiting};
use crate::config::{Nats, NatsTopic};

/// The most messages that a host has taken and not acknowledged.
const MAX_UNACKED: usize = 2048;
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
/// The shortest and the longest wait between two polls of the rings.
const POLLS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// The wait while every message is acknowledged.
const IDLE: Duration = Duration::from_millis(500);
/// How often the server may deliver a message beyond `max_deliver` before it is a dead letter.
///
/// The server also counts deliveries after which no reader got the message: to a host that was
/// killed or stopped, or lost its connection. Attempts of a reader are counted in its ring.
const SPARE_DELIVERIES: i64 = 100;

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
    /// How many messages have arrived since the last request was made.
    received: usize,
    /// How many requests have failed in a row.
    failures: usize,
    stuck_until: Instant,
    unacked: Unacked,
    /// After how many deliveries by the server a message is a dead letter. None without a topic for
    /// dead letters: then such a message is not dropped, but delivered again.
    max_deliveries: Option<i64>,
    /// The length of messages lately, in bytes: a moving average, at least 1.
    usual_len: usize,
    last_progress_at: Instant,
    /// How often messages are reported as in progress.
    progress_interval: Duration,
}

/// The request for messages.
enum Pull {
    /// None is open, and none is made before that time.
    Closed { until: Instant },
    /// No request is open.
    Ready(Box<PullConsumer>),
    /// A request is open, on the connection with this number.
    Open(Box<PullConsumer>, Box<Batch>, u64),
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
        let now = Instant::now();
        let link = Arc::new(link);
        let usual_len = topic.max_message.max(1);
        let max_deliveries = outlet.has_dead_letters().then(|| i64::from(topic.max_deliver) + SPARE_DELIVERIES);
        let progress_interval = nats.ack_wait / 3;
        Consumer {
            link,
            nats,
            topic,
            queue,
            outlet,
            own,
            barrier,
            pull: Pull::Closed { until: now },
            received: 1,
            failures: 0,
            stuck_until: now,
            unacked: Unacked::default(),
            max_deliveries,
            usual_len,
            last_progress_at: now,
            progress_interval,
        }
    }

    /// Takes messages until `drain` is set or all readers of the queue have ended. Gives back those that
    /// no reader has processed, and ends when the others are acknowledged, or when `stop` is set.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    pub(super) fn run(mut self, drain: &Signal, stop: &Signal) -> Result<()> {
        let link = Arc::clone(&self.link);
        let mut wait = POLLS.0;
        loop {
            // The supervisor closes the ring when its last reader has ended for good.
            let has_readers = !self.own.is_closed();
            let is_ending = !has_readers || drain.is_set();
            let mut has_progress = if is_ending { false } else { self.take()? };
            if has_readers {
                has_progress |= self.forward()?;
            }
            has_progress |= self.settle();
            if is_ending {
                self.close_pull();
                link.block_on(self.give_back(has_readers));
            }
            link.block_on(self.acknowledge());
            if stop.is_set() || (is_ending && self.unacked.is_empty()) {
                link.block_on(self.finish());
                return Ok(());
            }
            wait = if has_progress { POLLS.0 } else { (wait * 2).min(POLLS.1) };
            self.wait(if self.unacked.is_empty() { IDLE } else { wait }, drain, stop);
        }
    }

    /// Takes messages that have arrived, and asks for more. Returns whether there were any.
    fn take(&mut self) -> Result<bool> {
        let mut taken = 0;
        if matches!(&self.pull, Pull::Open(.., connection) if *connection != self.link.number()) {
            // The request was lost with its connection.
            self.close_pull();
        }
        while let Pull::Open(_, batch, _) = &mut self.pull {
            if taken >= MAX_UNACKED {
                break;
            }
            let Some(next) = self.link.block_on(async { batch.next().now_or_never() }) else { break };
            match next {
                Some(Ok(message)) => {
                    taken += 1;
                    self.receive(message);
                }
                Some(Err(error)) => self.request_failed(format!("a request for messages ended: {error}")),
                None => self.request_ended(),
            }
        }
        self.ask();
        Ok(taken > 0)
    }

    /// Takes what has arrived, and gives up the open request.
    fn close_pull(&mut self) {
        while let Pull::Open(_, batch, _) = &mut self.pull {
            let Some(Some(Ok(message))) = self.link.block_on(async { batch.next().now_or_never() }) else { break };
            self.receive(message);
        }
        self.pull = Pull::Closed { until: Instant::now() };
    }

    /// Called when a request has ended: another one can be made. One that delivered nothing may have been
    /// refused.
    fn request_ended(&mut self) {
        if self.received == 0
            && let Some(refused) = self.link.take_refused()
        {
            return self.request_failed(format!("the server refuses: {refused}; grant it to the user of this host"));
        }
        self.request_succeeded();
        let closed = Pull::Closed { until: Instant::now() };
        self.pull = match std::mem::replace(&mut self.pull, closed) {
            Pull::Open(consumer, ..) => Pull::Ready(consumer),
            other => other,
        };
    }

    /// Shows why a request failed, and waits before the next one: the longer, the more have failed.
    fn request_failed(&mut self, problem: String) {
        if self.link.is_up() {
            self.link.problem(problem);
        }
        self.pull = Pull::Closed { until: Instant::now() + delay(self.failures) };
        self.failures += 1;
    }

    fn request_succeeded(&mut self) {
        if self.failures > 0 {
            self.failures = 0;
            self.link.clear_problem();
        }
    }

    /// Keeps a message that has arrived until it is acknowledged.
    fn receive(&mut self, message: Message) {
        let Ok(info) = message.info() else { return };
        let (number, delivered) = (info.stream_sequence, info.delivered);
        let (message, acker) = message.split();
        let len = message.payload.len();
        self.received += 1;
        self.request_succeeded();
        self.usual_len = (self.usual_len * 7 / 8 + len / 8).max(1);
        let connection = match &self.pull {
            Pull::Open(.., connection) => *connection,
            Pull::Closed { .. } | Pull::Ready(_) => 0,
        };
        if !self.unacked.insert(number, acker, len, connection) {
            // It is here already: no progress was reported to the server in time.
            return;
        }
        let payload = message.payload;
        if self.max_deliveries.is_some_and(|most| delivered > most) {
            self.unacked.dead.push_back(Dead { number, payload, queues: 0 });
        } else {
            self.unacked.waiting.push_back(Waiting { number, payload });
        }
    }

    /// Asks for as many messages as may be unacknowledged, if no request is open.
    fn ask(&mut self) {
        match &self.pull {
            Pull::Open(..) => return,
            Pull::Closed { until } if *until > Instant::now() || !self.link.is_up() => return,
            Pull::Closed { .. } | Pull::Ready(_) => {}
        }
        // A server may send more than it was asked for.
        let (free, free_bytes) = (MAX_UNACKED.saturating_sub(self.unacked.len()), self.free_bytes());
        if free < MAX_UNACKED / 2 || free_bytes < self.topic.capacity / 2 || !self.unacked.waiting.is_empty() {
            return;
        }
        let messages =
            free.min(free_bytes / self.usual_len + 1).min((MAX_BYTES / self.topic.max_message.max(1)).max(1));
        self.detect_stuck();
        self.received = 0;
        let connection = self.link.number();
        match self.link.block_on(self.request(messages)) {
            Ok((consumer, batch)) => {
                let config = &consumer.cached_info().config;
                self.progress_interval = progress_interval(config.ack_wait, &config.backoff, self.nats.ack_wait);
                self.pull = Pull::Open(consumer, Box::new(batch), connection);
            }
            Err(problem) => self.request_failed(problem),
        }
    }

    /// Notices that a request delivered nothing, although the stream has messages that it may deliver.
    fn detect_stuck(&mut self) {
        let Pull::Ready(consumer) = &self.pull else { return };
        if self.received == 0 && self.stuck_until <= Instant::now() {
            let info = self.link.block_on(consumer.get_info());
            let is_stuck = info.is_ok_and(|info| {
                // 0 or less: no limit.
                let most = usize::try_from(info.config.max_ack_pending).unwrap_or(0);
                info.num_pending > 0 && (most == 0 || info.num_ack_pending < most)
            });
            if is_stuck {
                self.stuck_until = Instant::now() + STUCK.1;
            }
        }
    }

    fn free_bytes(&self) -> usize {
        self.topic.capacity.saturating_sub(self.unacked.bytes)
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
        let mut has_progress = self.forward_dead()?;
        while let Some(Waiting { number, payload }) = self.unacked.waiting.front() {
            let number = *number;
            match self.outlet.try_send(payload)? {
                // If all readers have ended, the next turn notices it.
                Offered::Full | Offered::Closed => break,
                Offered::Sent => self.unacked.in_ring.push_back((number, self.own.positions().tail)),
                // Too long: counted.
                Offered::Dropped => self.unacked.settled.push(number),
            }
            has_progress = true;
            self.unacked.waiting.pop_front();
        }
        Ok(has_progress)
    }

    /// Publishes dead letters, as far as there is space. Returns whether there were any.
    fn forward_dead(&mut self) -> Result<bool> {
        let mut has_progress = false;
        while let Some(Dead { number, payload, queues }) = self.unacked.dead.front_mut() {
            match self.outlet.try_send_dead_letter(payload, queues)? {
                Offered::Full => break,
                Offered::Sent => {
                    tracing::warn!(topic = self.topic.topic, "a message was delivered too often, and is dead");
                    self.unacked.settling.push_back((vec![*number], self.barrier.now()));
                }
                // Too long, or nobody reads dead letters: counted.
                Offered::Dropped | Offered::Closed => self.unacked.settled.push(*number),
            }
            has_progress = true;
            self.unacked.dead.pop_front();
        }
        Ok(has_progress)
    }

    /// Finds messages that are settled. Returns whether there is progress.
    fn settle(&mut self) -> bool {
        let head = self.own.positions().head;
        let done = self.unacked.in_ring.iter().take_while(|(_, end)| *end <= head).count();
        let processed: Vec<_> = self.unacked.in_ring.drain(..done).map(|(number, _)| number).collect();
        if !processed.is_empty() {
            self.unacked.settling.push_back((processed, self.barrier.now()));
        }
        let before = self.unacked.settled.len();
        while let Some((_, moment)) = self.unacked.settling.front_mut() {
            if !self.barrier.has_passed(moment) {
                break;
            }
            let settled = self.unacked.settling.pop_front();
            self.unacked.settled.extend(settled.into_iter().flat_map(|(numbers, _)| numbers));
        }
        done > 0 || self.unacked.settled.len() > before
    }

    /// Acknowledges what is settled, and reports the rest as in progress.
    async fn acknowledge(&mut self) {
        if !self.link.is_up() {
            return;
        }
        for number in std::mem::take(&mut self.unacked.settled) {
            if let Some(acker) = self.unacked.release(number, self.link.number())
                && acker.ack().await.is_err()
            {
                tracing::debug!("an acknowledgement was not sent, so its message is delivered again");
            }
        }
        if self.last_progress_at.elapsed() > self.progress_interval {
            self.last_progress_at = Instant::now();
            for acker in self.unacked.ackers(self.link.number()) {
                let _ = acker.ack_with(AckKind::Progress).await;
            }
        }
    }

    /// Gives back messages that no reader has processed, for other hosts.
    async fn give_back(&mut self, has_readers: bool) {
        for number in self.unacked.take_unprocessed(has_readers) {
            if let Some(acker) = self.unacked.release(number, self.link.number())
                && self.link.is_up()
            {
                let _ = acker.ack_with(AckKind::Nak(None)).await;
            }
        }
    }

    /// Writes what was acknowledged to the connection.
    async fn finish(&mut self) {
        if self.link.is_up() {
            let _ = tokio::time::timeout(Duration::from_secs(1), self.link.client.flush()).await;
        }
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
            Some(Some(Ok(message))) => self.receive(message),
            Some(Some(Err(error))) => self.request_failed(format!("a request for messages ended: {error}")),
            Some(None) => self.request_ended(),
            None => {}
        }
    }
}

/// How often to report to the server that a message is in progress. An existing consumer keeps its own
/// `ack_wait`, or a list of waits in its place, whatever the pipeline's file says.
fn progress_interval(ack_wait: Duration, backoff: &[Duration], given: Duration) -> Duration {
    let shortest = backoff.iter().copied().chain([ack_wait]).filter(|wait| !wait.is_zero()).min();
    shortest.unwrap_or(given) / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_reported_as_often_as_the_consumer_wants() {
        let seconds = Duration::from_secs;
        assert_eq!(progress_interval(seconds(3), &[], seconds(30)), seconds(1));
        assert_eq!(progress_interval(seconds(30), &[seconds(6), seconds(60)], seconds(30)), seconds(2));
        assert_eq!(progress_interval(Duration::ZERO, &[], seconds(30)), seconds(10));
    }
}
