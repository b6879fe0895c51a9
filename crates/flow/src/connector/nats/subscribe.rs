//! The source of a topic that is delivered at most once: a subscription in the queue's group.
//!
//! A task takes what arrives into a buffer, so that a slow reader does not slow the connection down.
//! The buffer is bounded by messages and by bytes. What does not fit is lost, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_nats::Subscriber;
use bytes::Bytes;
use estafette_ipc::group::RingControl;
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::outlet::{Next, Outlet};
use super::link::{Link, Signal};
use crate::config::NatsTopic;

/// The most messages and the most bytes that wait for the queue. One message of any length may wait.
const BUFFER: (usize, usize) = (8192, 16 << 20);
/// What a message occupies beside its payload, in bytes.
const OVERHEAD: usize = 256;
/// The most messages that are sent before losses and the end of all readers are looked for.
const MAX_IN_A_ROW: usize = 256;
/// How long the last messages may take after the end of the subscription.
const LAST: Duration = Duration::from_secs(2);
/// How often lost messages and the end of all readers are noticed while none arrive.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Sends what arrives to the queue, until the source must stop or all readers of the queue have ended.
///
/// # Errors
///
/// If a ring is broken, or the connection has ended for good.
pub(super) fn run(
    link: &Link,
    topic: &NatsTopic,
    queue: &str,
    mut outlet: Outlet,
    own: &RingControl,
    drain: &Signal,
) -> Result<()> {
    link.block_on(async {
        let (subject, queue) = (topic.subject.clone(), queue.to_owned());
        let subscriber = link.client.queue_subscribe(subject, queue).await;
        let (intake, mut buffer) = buffer();
        let end = drain.clone();
        let task = tokio::spawn(intake.run(subscriber.context("cannot subscribe")?, end));
        let sent = send_all(link, &mut buffer, &mut outlet, own, drain).await;
        // Only now, so that the subscription ends before its last messages are lost.
        task.abort();
        sent
    })
}

async fn send_all(
    link: &Link,
    buffer: &mut Buffer,
    outlet: &mut Outlet,
    own: &RingControl,
    drain: &Signal,
) -> Result<()> {
    loop {
        report_losses(link, buffer, outlet);
        if own.is_closed() {
            return Ok(());
        }
        let wait = if drain.is_set() { LAST } else { REPORT_INTERVAL };
        let mut next = match timeout(wait, buffer.next()).await {
            Ok(Some(message)) => Some(message),
            Ok(None) if !drain.is_set() => bail!("the connection to the NATS server has ended"),
            Err(_) if !drain.is_set() => continue,
            Ok(None) | Err(_) => return Ok(()),
        };
        let mut in_a_row = 0;
        while let Some(message) = next {
            in_a_row += 1;
            // When it must stop, what fits into the queue is still sent.
            if outlet.offer(&message)? == Next::Stop {
                return Ok(());
            }
            next = if in_a_row < MAX_IN_A_ROW { buffer.try_next() } else { None };
        }
    }
}

/// Reports what was lost.
fn report_losses(link: &Link, buffer: &Buffer, outlet: &Outlet) {
    let lost = link.take_lost() + buffer.counts.lost.swap(0, Ordering::Relaxed);
    if lost > 0 {
        outlet.dropped(lost);
        tracing::warn!(messages = lost, "messages from the NATS server were lost, since the topic is full");
    }
}

/// A buffer: the end that fills it and the end that empties it.
fn buffer() -> (Intake, Buffer) {
    let (sender, receiver) = mpsc::channel(BUFFER.0);
    let counts = Arc::new(Counts::default());
    (Intake { sender, counts: Arc::clone(&counts) }, Buffer { receiver, counts })
}

#[derive(Default)]
struct Counts {
    /// The bytes in the buffer.
    bytes: AtomicUsize,
    /// The messages that were lost since they were counted last.
    lost: AtomicU64,
}

/// Fills a buffer.
struct Intake {
    sender: mpsc::Sender<Bytes>,
    counts: Arc<Counts>,
}

impl Intake {
    /// Takes what arrives, until the subscription has ended. Ends it when `drain` is set.
    async fn run(self, mut subscriber: Subscriber, drain: Signal) {
        // Not interrupted while messages wait: the subscription itself has no bound in bytes.
        tokio::task::unconstrained(async {
            loop {
                tokio::select! {
                    () = drain.wait() => break,
                    next = subscriber.next() => match next {
                        Some(message) => self.add(message.payload),
                        None => return,
                    },
                }
            }
            if subscriber.drain().await.is_ok() {
                while let Some(message) = subscriber.next().await {
                    self.add(message.payload);
                }
            }
        })
        .await;
    }

    /// Adds a message, or counts it as lost.
    fn add(&self, payload: Bytes) {
        let len = payload.len() + OVERHEAD;
        let before = self.counts.bytes.fetch_add(len, Ordering::Relaxed);
        let fits = before == 0 || before + len <= BUFFER.1;
        if !fits || self.sender.try_send(payload).is_err() {
            self.counts.bytes.fetch_sub(len, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Empties a buffer.
struct Buffer {
    receiver: mpsc::Receiver<Bytes>,
    counts: Arc<Counts>,
}

impl Buffer {
    /// The next message. None if the subscription has ended. Cancel-safe.
    async fn next(&mut self) -> Option<Bytes> {
        let payload = self.receiver.recv().await?;
        Some(self.removed(payload))
    }

    /// The next message if one is here.
    fn try_next(&mut self) -> Option<Bytes> {
        let payload = self.receiver.try_recv().ok()?;
        Some(self.removed(payload))
    }

    /// Records that a message is not in the buffer any more.
    fn removed(&self, payload: Bytes) -> Bytes {
        self.counts.bytes.fetch_sub(payload.len() + OVERHEAD, Ordering::Relaxed);
        payload
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn added(messages: impl Iterator<Item = Bytes>) -> (u64, Vec<usize>) {
        let (intake, mut buffer) = buffer();
        messages.for_each(|message| intake.add(message));
        let lost = buffer.counts.lost.load(Ordering::Relaxed);
        drop(intake);
        let lens = std::iter::from_fn(|| buffer.next().now_or_never().flatten().map(|message| message.len()));
        (lost, lens.collect())
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
