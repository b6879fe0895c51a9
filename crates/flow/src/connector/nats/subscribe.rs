//! The source of a topic that is delivered at most once: a subscription in the queue's group.
//!
//! It is a task of the thread that reads the connections. What has arrived goes to the ring of the
//! queue together. While the ring is full, messages wait in a buffer, so that a slow reader does
//! not slow the connection down. The buffer is bounded by messages and by bytes. What does not fit
//! is lost, and counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_nats::{Message, Subscriber};
use bytes::Bytes;
use estafette_ipc::group::RingControl;
use futures_util::{FutureExt, StreamExt};

use super::super::outlet::{Offered, Outlet};
use super::link::{Link, Signal};
use super::pack::Unpacked;

/// The most messages and the most bytes that wait for the queue. One message of any length may
/// wait.
const BUFFER: (usize, usize) = (8192, 16 << 20);
/// What a message occupies beside its payload, in bytes.
const OVERHEAD: usize = 256;
/// The most messages that are taken before the end of all readers is looked for.
const MAX_IN_A_ROW: usize = 256;
/// How long the last messages may take after the end of the subscription.
const LAST: Duration = Duration::from_secs(2);
/// How often lost messages are reported. Also how often the end of all readers is looked for while
/// none arrive.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest and the longest wait for space in the ring.
const POLLS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The source.
pub(super) struct Source {
    link: Link,
    outlet: Outlet,
    own: RingControl,
    buffer: Buffer,
    /// The messages that were lost since that was reported last.
    lost: u64,
    reported_at: Instant,
}

/// Whether more messages can arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Subscribed,
    /// The subscription is ending. Its last messages arrive.
    Draining,
    Ended,
}

/// What became of the waiting messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forwarded {
    /// The ring has all of them.
    All,
    /// The ring is full. `progress`: it has taken some.
    Full { progress: bool },
    /// All readers of the queue have ended.
    Closed,
}

impl Source {
    pub(super) fn new(link: Link, outlet: Outlet, own: RingControl) -> Source {
        Source { link, outlet, own, buffer: Buffer::default(), lost: 0, reported_at: Instant::now() }
    }

    /// Sends what arrives to the queue, until the source must stop or all readers of the queue have
    /// ended.
    ///
    /// # Errors
    ///
    /// If a ring is broken, or the connection has ended for good.
    pub(super) async fn run(mut self, subject: String, queue: String, drain: Signal) -> Result<()> {
        let subscriber = self.link.client.queue_subscribe(subject, queue).await.context("cannot subscribe")?;
        // Not interrupted while messages wait: the subscription itself has no bound in bytes.
        let result = tokio::task::unconstrained(self.send_all(subscriber, &drain)).await;
        self.count_losses();
        self.report_losses();
        result
    }

    async fn send_all(&mut self, mut subscriber: Subscriber, drain: &Signal) -> Result<()> {
        let mut phase = Phase::Subscribed;
        let mut last_arrival = Instant::now();
        let mut poll = POLLS.0;
        loop {
            if self.take(&mut subscriber)? {
                last_arrival = Instant::now();
            }
            let forwarded = self.forward()?;
            if forwarded != Forwarded::All {
                self.buffer.own();
            }
            self.count_losses();
            if self.reported_at.elapsed() >= REPORT_INTERVAL {
                self.report_losses();
            }
            if forwarded == Forwarded::Closed || self.own.is_closed() {
                return Ok(());
            }
            // When it must stop, what fits into the queue is still sent.
            if forwarded != Forwarded::All && self.outlet.stop.is_set() {
                self.lose(self.buffer.messages.len() as u64);
                return Ok(());
            }
            let is_over = phase == Phase::Ended || (phase == Phase::Draining && last_arrival.elapsed() >= LAST);
            if is_over && forwarded == Forwarded::All {
                return Ok(());
            }
            let wait = match (forwarded, phase) {
                (Forwarded::Full { progress }, _) => {
                    poll = if progress { POLLS.0 } else { (poll * 2).min(POLLS.1) };
                    poll
                }
                (_, Phase::Subscribed) => REPORT_INTERVAL,
                _ => LAST.saturating_sub(last_arrival.elapsed()),
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = drain.wait(), if phase == Phase::Subscribed => {
                    let ended = subscriber.drain().await;
                    phase = if ended.is_ok() { Phase::Draining } else { Phase::Ended };
                    last_arrival = Instant::now();
                }
                next = subscriber.next(), if phase != Phase::Ended => match next {
                    Some(message) => {
                        last_arrival = Instant::now();
                        self.accept(message)?;
                    }
                    None if drain.is_set() => phase = Phase::Ended,
                    None => bail!("the connection to the NATS server has ended"),
                },
            }
        }
    }

    /// Takes messages that have arrived. Returns whether there were any.
    fn take(&mut self, subscriber: &mut Subscriber) -> Result<bool> {
        for taken in 0..MAX_IN_A_ROW {
            match subscriber.next().now_or_never() {
                Some(Some(message)) => self.accept(message)?,
                // The end is found by the next wait.
                Some(None) | None => return Ok(taken > 0),
            }
        }
        Ok(true)
    }

    /// Keeps the messages in a message of the server until they are [forwarded](Self::forward).
    fn accept(&mut self, message: Message) -> Result<()> {
        let mut messages = match Unpacked::new(message.headers.as_ref(), message.payload) {
            Ok(messages) => messages,
            Err(malformed) => {
                tracing::error!(subject = %message.subject, "a message of the NATS server is malformed, and is dropped: {malformed}");
                self.outlet.dropped(1);
                return Ok(());
            }
        };
        while let Some(message) = messages.remove_first() {
            if !self.buffer.has_space_for(&message) {
                self.forward()?;
            }
            if !self.buffer.add(message) {
                self.lose(1);
            }
        }
        Ok(())
    }

    /// Sends waiting messages to the ring, as far as there is space.
    fn forward(&mut self) -> Result<Forwarded> {
        let mut progress = false;
        while let Some(message) = self.buffer.first() {
            let sent = match self.outlet.try_send_batch(self.buffer.messages.iter().map(|message| &message[..]))? {
                0 => match self.outlet.try_send(message)? {
                    Offered::Full => return Ok(Forwarded::Full { progress }),
                    Offered::Closed => return Ok(Forwarded::Closed),
                    // Dropped: it is too long, and counted.
                    Offered::Sent | Offered::Dropped => 1,
                },
                sent => sent,
            };
            self.buffer.remove(sent);
            progress = true;
        }
        Ok(Forwarded::All)
    }

    /// Counts what the client library has lost. Its events may be lost too, so it may be more.
    fn count_losses(&mut self) {
        self.lose(self.link.take_lost());
    }

    /// Counts messages that are lost because the ring is full.
    fn lose(&mut self, messages: u64) {
        if messages > 0 {
            self.outlet.dropped(messages);
            self.lost += messages;
        }
    }

    /// Reports what was lost.
    fn report_losses(&mut self) {
        let messages = std::mem::take(&mut self.lost);
        self.reported_at = Instant::now();
        if messages > 0 {
            tracing::warn!(messages, "messages from the NATS server were lost, since the topic is full");
        }
    }
}

/// The messages that wait for the ring.
#[derive(Default)]
struct Buffer {
    messages: VecDeque<Bytes>,
    /// How many of the first ones are copies.
    owned: usize,
    /// The bytes of all of them, with what they occupy beside.
    bytes: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn has_space_for(&self, message: &[u8]) -> bool {
        let bytes = self.bytes + message.len() + OVERHEAD;
        self.is_empty() || (self.messages.len() < BUFFER.0 && bytes <= BUFFER.1)
    }

    /// Adds a message. Returns `false` if it does not fit.
    #[must_use]
    fn add(&mut self, message: Bytes) -> bool {
        let fits = self.has_space_for(&message);
        if fits {
            self.bytes += message.len() + OVERHEAD;
            self.messages.push_back(message);
        }
        fits
    }

    /// Copies messages that are parts of a larger one, or of what was read from the connection at
    /// once. Otherwise each would keep all of that in memory.
    fn own(&mut self) {
        for message in self.messages.iter_mut().skip(self.owned) {
            *message = Bytes::copy_from_slice(message);
        }
        self.owned = self.messages.len();
    }

    fn first(&self) -> Option<&Bytes> {
        self.messages.front()
    }

    /// Removes the first messages.
    fn remove(&mut self, messages: usize) {
        self.owned = self.owned.saturating_sub(messages);
        self.bytes -= self.messages.drain(..messages).map(|message| message.len() + OVERHEAD).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many messages were lost, and the lengths of the others.
    fn added(messages: impl Iterator<Item = Bytes>) -> (usize, Vec<usize>) {
        let mut buffer = Buffer::default();
        let lost = messages.filter(|message| !buffer.add(message.clone())).count();
        let mut lens = Vec::new();
        while let Some(message) = buffer.first() {
            lens.push(message.len());
            buffer.remove(1);
        }
        assert_eq!(buffer.bytes, 0);
        (lost, lens)
    }

    #[test]
    fn a_buffer_is_bounded_by_messages() {
        let (lost, lens) = added((0..10_000).map(|_| Bytes::from_static(b"x")));
        assert_eq!((lost, lens.len()), (10_000 - 8192, 8192));
    }

    #[test]
    fn a_buffer_is_bounded_by_bytes() {
        let long = Bytes::from(vec![0; 1 << 20]);
        let (lost, lens) = added((0..20).map(|_| long.clone()));
        assert_eq!((lost, lens.len()), (5, 15));
    }

    #[test]
    fn one_message_of_any_length_fits() {
        let (lost, lens) = added(std::iter::once(Bytes::from(vec![0; 17 << 20])));
        assert_eq!((lost, lens), (0, vec![17 << 20]));
    }
}
