//! The source of a topic that is delivered at least once: a durable pull consumer of its stream.
//!
//! A message is taken, published to the ring of its queue, and acknowledged when it is settled
//! (`settle.rs`). The source asks for no more than the ring and a short queue can take, so messages
//! that nobody here processes stay in the stream, for the other hosts. It reports those that it has
//! not acknowledged as in progress.
//!
//! It is a task of the thread that reads the connections, so a message does not wake another thread
//! before it is in the ring.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_nats::jetstream::AckKind;
use estafette_ipc::group::RingControl;

use super::super::outlet::{Offered, Outlet};
use super::link::{Link, Signal};
use super::pack::Unpacked;
use super::pull::{Puller, Received};
use super::settle::Barrier;
use super::timer::Timer;
use super::unacked::{Dead, MessageId, Unacked, Waiting};
use crate::config::{Nats, NatsTopic};

/// The most messages that a host has taken and not acknowledged.
const MAX_UNACKED: usize = 2048;
/// The most bytes of messages that a request asks for, if all are as long as they may be.
const MAX_BYTES: usize = 64 << 20;
/// The shortest and the longest wait between two polls of the rings. The sooner a message is
/// acknowledged, the less the server keeps: with a first wait of 1 ms a stream carried a quarter
/// less.
const POLLS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(20));
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
    topic: NatsTopic,
    outlet: Outlet,
    own: RingControl,
    barrier: Barrier,
    puller: Puller,
    unacked: Unacked,
    /// After how many deliveries by the server a message is a dead letter. None without a topic for
    /// dead letters: then such a message is not dropped, but delivered again.
    max_deliveries: Option<i64>,
    /// The length of messages lately, in bytes: a moving average, at least 1.
    usual_len: usize,
    last_progress_at: Instant,
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
        let link = Arc::new(link);
        let usual_len = topic.max_message.max(topic.batch).max(1);
        let max_deliveries = outlet.has_dead_letters().then(|| i64::from(topic.max_deliver) + SPARE_DELIVERIES);
        let puller = Puller::new(Arc::clone(&link), nats, topic.clone(), queue);
        Consumer {
            link,
            topic,
            outlet,
            own,
            barrier,
            puller,
            unacked: Unacked::default(),
            max_deliveries,
            usual_len,
            last_progress_at: Instant::now(),
        }
    }

    /// Takes messages until `drain` is set or all readers of the queue have ended. Gives back those
    /// that no reader has processed, and ends when the others are acknowledged, or when `stop` is
    /// set.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    pub(super) async fn run(mut self, drain: Signal, stop: Signal) -> Result<()> {
        let link = Arc::clone(&self.link);
        let timer = Timer::new()?;
        let mut wait = POLLS.0;
        loop {
            // The supervisor closes the ring when its last reader has ended for good.
            let has_readers = !self.own.is_closed();
            let is_ending = !has_readers || drain.is_set();
            // The servers of a cluster may take seconds to know a new consumer.
            let mut has_progress = !is_ending
                && tokio::select! {
                    has_taken = self.take() => has_taken,
                    () = stop.wait() => false,
                };
            if has_readers {
                has_progress |= self.forward()?;
            }
            has_progress |= self.settle();
            if is_ending {
                self.end_request();
                self.give_back(has_readers).await;
            }
            // A lost connection may accept nothing until there is another one. What it does not take is delivered again.
            tokio::select! {
                () = self.acknowledge() => {}
                () = link.until_lost() => {}
            }
            if stop.is_set() || (is_ending && self.unacked.is_empty()) {
                self.finish().await;
                return Ok(());
            }
            wait = if has_progress { POLLS.0 } else { (wait * 2).min(POLLS.1) };
            let is_idle = self.unacked.is_empty() && (self.puller.is_open() || !link.is_up());
            self.wait(&timer, if is_idle { IDLE } else { wait }, &drain, &stop).await;
        }
    }

    /// Takes messages that have arrived, and asks for more. Returns whether there were any.
    async fn take(&mut self) -> bool {
        let mut taken = 0;
        while taken < MAX_UNACKED
            && let Some(message) = self.puller.next()
        {
            taken += 1;
            self.receive(message);
        }
        if let Some(messages) = self.wanted() {
            self.puller.ask(messages).await;
        }
        taken > 0
    }

    /// Takes what has arrived, and gives up the open request.
    fn end_request(&mut self) {
        while let Some(message) = self.puller.next() {
            self.receive(message);
        }
        self.puller.close();
    }

    /// Keeps a message that has arrived until it is acknowledged.
    fn receive(&mut self, (message, connection): Received) {
        let Ok(info) = message.info() else { return };
        let id = MessageId { sequence: info.stream_sequence, stored_ns: info.published.unix_timestamp_nanos() };
        let delivered = info.delivered;
        let (message, acker) = message.split();
        let len = message.payload.len();
        self.usual_len = (self.usual_len * 7 / 8 + len / 8).max(1);
        if !self.unacked.insert(id, acker, len, connection) {
            // It is here already: no progress was reported to the server in time.
            return;
        }
        match Unpacked::new(message.headers.as_ref(), message.payload.clone()) {
            Ok(messages) if self.max_deliveries.is_none_or(|most| delivered <= most) => {
                self.unacked.waiting.push_back(Waiting { id, messages, is_begun: false });
            }
            Ok(messages) => {
                tracing::warn!(topic = self.topic.topic, "a message was delivered too often, and is dead");
                self.unacked.dead.push_back(Dead { id, messages, queues: 0 });
            }
            Err(malformed) => {
                tracing::error!(
                    topic = self.topic.topic,
                    "a message of the NATS server is malformed, and is dead: {malformed}"
                );
                self.unacked.dead.push_back(Dead { id, messages: Unpacked::one(message.payload), queues: 0 });
            }
        }
    }

    /// How many messages to ask for: as many as may be unacknowledged. None as long as few are
    /// free.
    fn wanted(&self) -> Option<usize> {
        // A server may send more than it was asked for.
        let (free, free_bytes) = (MAX_UNACKED.saturating_sub(self.unacked.len()), self.free_bytes());
        if free < MAX_UNACKED / 2 || free_bytes < self.topic.capacity / 2 || !self.unacked.waiting.is_empty() {
            return None;
        }
        let longest = self.topic.max_message.max(self.topic.batch).max(1);
        Some(free.min(free_bytes / self.usual_len + 1).min((MAX_BYTES / longest).max(1)))
    }

    fn free_bytes(&self) -> usize {
        self.topic.capacity.saturating_sub(self.unacked.bytes)
    }

    /// Publishes waiting messages to their rings, as far as there is space. Returns whether there
    /// were any.
    fn forward(&mut self) -> Result<bool> {
        let mut has_progress = self.forward_dead()?;
        while let Some(Waiting { id, messages, is_begun }) = self.unacked.waiting.front_mut() {
            while let Some(message) = messages.first() {
                let sent = match self.outlet.try_send_batch(messages.iter())? {
                    0 => match self.outlet.try_send(message)? {
                        // If all readers have ended, the next turn notices it.
                        Offered::Full | Offered::Closed => return Ok(has_progress),
                        // Dropped: it is too long, and counted.
                        Offered::Sent | Offered::Dropped => 1,
                    },
                    sent => sent,
                };
                (0..sent).for_each(|_| drop(messages.remove_first()));
                (has_progress, *is_begun) = (true, true);
            }
            self.unacked.in_ring.push_back((*id, self.own.positions().tail));
            self.unacked.waiting.pop_front();
        }
        Ok(has_progress)
    }

    /// Publishes dead letters, as far as there is space. Returns whether there were any.
    fn forward_dead(&mut self) -> Result<bool> {
        let mut has_progress = false;
        while let Some(Dead { id, messages, queues }) = self.unacked.dead.front_mut() {
            while let Some(message) = messages.first() {
                match self.outlet.try_send_dead_letter(message, queues)? {
                    Offered::Full => return Ok(has_progress),
                    // Dropped, closed: it is too long, or nobody reads dead letters. It is counted.
                    Offered::Sent | Offered::Dropped | Offered::Closed => messages.remove_first(),
                };
                *queues = 0;
                has_progress = true;
            }
            self.unacked.settling.push_back((vec![*id], self.barrier.now()));
            self.unacked.dead.pop_front();
        }
        Ok(has_progress)
    }

    /// Finds messages that are settled. Returns whether there is progress.
    fn settle(&mut self) -> bool {
        let head = self.own.positions().head;
        let done = self.unacked.in_ring.iter().take_while(|(_, end)| *end <= head).count();
        let processed: Vec<_> = self.unacked.in_ring.drain(..done).map(|(id, _)| id).collect();
        if !processed.is_empty() {
            self.unacked.settling.push_back((processed, self.barrier.now()));
        }
        let before = self.unacked.settled.len();
        while let Some((_, moment)) = self.unacked.settling.front_mut() {
            if !self.barrier.has_passed(moment) {
                break;
            }
            let settled = self.unacked.settling.pop_front();
            self.unacked.settled.extend(settled.into_iter().flat_map(|(ids, _)| ids));
        }
        done > 0 || self.unacked.settled.len() > before
    }

    /// Acknowledges what is settled, and reports the rest as in progress.
    async fn acknowledge(&mut self) {
        if !self.link.is_up() {
            return;
        }
        while let Some(id) = self.unacked.settled.pop_front() {
            if let Some(acker) = self.unacked.release(id, self.link.number())
                && acker.ack().await.is_err()
            {
                tracing::debug!("an acknowledgement was not sent, so its message is delivered again");
            }
        }
        if self.last_progress_at.elapsed() > self.puller.progress_interval() {
            self.last_progress_at = Instant::now();
            for acker in self.unacked.ackers(self.link.number()) {
                let _ = acker.ack_with(AckKind::Progress).await;
            }
        }
    }

    /// Gives back messages that no reader has processed, for other hosts.
    async fn give_back(&mut self, has_readers: bool) {
        for id in self.unacked.take_unprocessed(has_readers) {
            if let Some(acker) = self.unacked.release(id, self.link.number())
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
    async fn wait(&mut self, timer: &Timer, time: Duration, drain: &Signal, stop: &Signal) {
        let is_draining = drain.is_set();
        let message = tokio::select! {
            () = timer.sleep(time) => None,
            () = drain.wait(), if !is_draining => None,
            () = stop.wait() => None,
            message = self.puller.wait() => message,
        };
        if let Some(message) = message {
            self.receive(message);
        }
    }
}
