//! Publishes messages to a stream, at least once and in order.
//!
//! A batch is acknowledged to the topic's ring when the stream has stored all of its messages. No
//! more than two batches are taken until then, so the ring fills and the sender waits. What the
//! stream has not stored is published again, under the same number, which the server recognises.
//!
//! Messages are published without waiting for each other. A message names the one before it, unless
//! that one is known to be stored (`Nats-Expected-Last-Msg-Id`). The stream stores it only directly
//! after that one. So if a message is refused, all that were published after it are refused too,
//! and the order is kept: when the stream is full for a moment, and when a connection is lost. A
//! message of another producer in between also ends the chain. The first message that was refused
//! begins the next one.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::header::NATS_EXPECTED_LAST_MESSAGE_ID;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::mpsc;

use super::errors::reason;
use super::publish::{Destination, MAX_BATCHES, Outgoing, Stopped};
use super::setup;
use super::timing::delay;
use crate::config::Nats;

/// The most messages that are published without an answer.
const MAX_WINDOW: usize = 4096;
/// How often in a row a message is taken for a duplicate that is not stored until it is sent under
/// another name, with an increasing delay: some seconds, in which a message that waits for the
/// other servers of a cluster is stored.
const FALSE_DUPLICATES: usize = 5;
/// The first delay while the stream is full. It doubles up to that of other refusals.
const FULL: Duration = Duration::from_millis(10);

/// Publishes to a stream.
pub(super) struct StreamPublisher {
    destination: Destination,
    nats: Nats,
    /// The number of the connection on which the stream and its consumers were found or created.
    /// None after an error.
    prepared_on: Option<u64>,
    /// How many messages are published without an answer: fewer after a refusal, then more again.
    window: usize,
}

/// Why the stream did not store a message.
enum Refusal {
    /// Another producer's message came before.
    Overtaken,
    /// It takes the message for a duplicate, and has not stored it.
    FalseDuplicate,
    Full(String),
    Other(String),
}

impl StreamPublisher {
    pub(super) fn new(destination: Destination, nats: Nats) -> StreamPublisher {
        StreamPublisher { destination, nats, prepared_on: None, window: MAX_WINDOW }
    }

    /// Publishes batches until there are no more. Reports each that is stored.
    pub(super) async fn store_all(&mut self, batches: Batches, report: mpsc::Sender<()>) -> Result<(), Stopped> {
        let mut backlog = Backlog::new(batches, report);
        let (mut failures, mut false_duplicates) = (0, 0);
        while backlog.wait().await {
            let before = backlog.stored;
            let refusal = self.step(&mut backlog).await?;
            let has_stored = backlog.stored > before;
            if has_stored {
                (failures, false_duplicates) = (0, 0);
            }
            if let Some(refusal) = refusal {
                self.window = if has_stored { self.window.div_ceil(2) } else { 1 };
                false_duplicates = if matches!(refusal, Refusal::FalseDuplicate) { false_duplicates + 1 } else { 0 };
                if false_duplicates > FALSE_DUPLICATES {
                    self.destination.rename_producer();
                }
                self.pause(refusal, failures).await?;
                failures += 1;
            }
        }
        Ok(())
    }

    /// Prepares the stream if that is needed, or else publishes messages until all are stored or
    /// one is not. Returns why it is not.
    async fn step(&mut self, backlog: &mut Backlog) -> Result<Option<Refusal>, Stopped> {
        let link = &self.destination.link;
        self.destination.unless_stopped(link.until_up()).await?;
        let connection = link.number();
        if self.prepared_on != Some(connection) {
            let prepared = setup::prepare_to_publish(link, &self.nats, &self.destination.topic);
            let prepared = self.destination.unless_stopped(prepared).await?;
            self.prepared_on = prepared.is_ok().then_some(connection);
            return Ok(prepared.err().map(|error| Refusal::Other(error.text().to_owned())));
        }
        let _ = link.take_refused();
        let refusal = tokio::select! {
            () = self.destination.stop.wait() => return Err(Stopped),
            () = link.until_lost() => Some(Refusal::Other(String::from("the NATS server is lost"))),
            refusal = publish(&self.destination, &mut self.window, backlog) => refusal,
        };
        if matches!(refusal, Some(Refusal::Other(_))) {
            self.prepared_on = None;
        }
        Ok(refusal)
    }

    /// Waits after a refusal, and shows it.
    async fn pause(&self, refusal: Refusal, failures: usize) -> Result<(), Stopped> {
        let link = &self.destination.link;
        let (problem, pause) = match refusal {
            Refusal::Overtaken => return Ok(()),
            Refusal::FalseDuplicate => (false_duplicate(&self.destination), delay(failures)),
            Refusal::Full(problem) => (problem, full_delay(failures)),
            Refusal::Other(problem) => (problem, delay(failures)),
        };
        if link.is_up() {
            link.problem(problem);
        }
        self.destination.unless_stopped(tokio::time::sleep(pause)).await
    }
}

/// Publishes the messages of a backlog, up to `window` of them without an answer, until all are
/// stored or one is not. Returns why it is not.
async fn publish(destination: &Destination, window: &mut usize, backlog: &mut Backlog) -> Option<Refusal> {
    let jetstream = &destination.link.jetstream;
    // The answers to the first messages of the backlog.
    let mut answers = FuturesOrdered::new();
    let mut stored_in_a_row = 0;
    let refusal = loop {
        while answers.len() < backlog.messages.len().min(*window) {
            let before = answers.len().checked_sub(1).map(|before| &backlog.messages[before]);
            let publish = chained(destination, &backlog.messages[answers.len()], before);
            let sent = jetstream.send_publish(destination.subject.clone(), publish).await;
            answers.push_back(async move { sent?.await });
        }
        let answer = tokio::select! {
            answer = answers.next() => match answer {
                Some(answer) => answer,
                None => return None,
            },
            () = backlog.take(), if backlog.is_below_limit() => continue,
        };
        match answer {
            Ok(answer) if is_stored(&answer) => {
                if backlog.remove_first() {
                    destination.link.clear_problem();
                }
                stored_in_a_row += 1;
                if stored_in_a_row >= *window {
                    *window = (*window * 2).min(MAX_WINDOW);
                    stored_in_a_row = 0;
                }
            }
            Ok(_) => break Refusal::FalseDuplicate,
            Err(error) => break refusal(destination, &error),
        }
    };
    // Those after it are refused too. Without their answers, a message that is published again might be stored
    // between them.
    while answers.next().await.is_some() {}
    Some(refusal)
}

/// A message that is stored only after the one before it, if one is given.
fn chained(destination: &Destination, message: &Outgoing, before: Option<&Outgoing>) -> PublishMessage {
    let mut headers = destination.headers(message);
    if let Some(before) = before {
        headers.insert(NATS_EXPECTED_LAST_MESSAGE_ID, destination.id(before.number));
    }
    PublishMessage::build().payload(message.payload.clone()).headers(headers)
}

fn refusal(destination: &Destination, error: &PublishError) -> Refusal {
    let (stream, subject) = (&destination.topic.stream, &destination.topic.subject);
    if let Some(refused) = destination.link.take_refused() {
        return Refusal::Other(format!("the server refuses: {refused}; grant it to the user of this host"));
    }
    match error.kind() {
        PublishErrorKind::WrongLastMessageId => Refusal::Overtaken,
        PublishErrorKind::StreamNotFound => Refusal::Other(format!("no stream stores the subject `{subject}`")),
        PublishErrorKind::TimedOut => {
            Refusal::Other(format!("the stream `{stream}` did not acknowledge a message in time"))
        }
        _ if is_full(&reason(error)) => Refusal::Full(format!(
            "the stream `{stream}` is full, and its messages wait: a queue does not process them, or \
             `nats.stream.max_bytes` is too small"
        )),
        _ => Refusal::Other(format!("the stream `{stream}` refuses a message: {}", reason(error))),
    }
}

/// The server knows the `Nats-Msg-Id` of a message, and has not stored it: it has refused it
/// before, or the message waits for the other servers of a cluster.
fn false_duplicate(destination: &Destination) -> String {
    format!(
        "the stream `{}` takes a message for a duplicate that it has not stored; it is sent again, soon under another name",
        destination.topic.stream
    )
}

/// Batches to publish.
pub(super) type Batches = mpsc::Receiver<Vec<Outgoing>>;

/// The messages that are not stored yet.
struct Backlog {
    batches: Batches,
    /// Gets an item for each batch that is stored.
    report: mpsc::Sender<()>,
    messages: VecDeque<Outgoing>,
    /// How many messages each batch has left.
    left: VecDeque<usize>,
    /// How many messages are stored.
    stored: u64,
    /// Whether more batches may follow.
    is_open: bool,
}

impl Backlog {
    fn new(batches: Batches, report: mpsc::Sender<()>) -> Backlog {
        Backlog { batches, report, messages: VecDeque::new(), left: VecDeque::new(), stored: 0, is_open: true }
    }

    /// Waits for messages. Returns `false` if none follow. Cancel-safe.
    async fn wait(&mut self) -> bool {
        while self.messages.is_empty() && self.is_open {
            self.take().await;
        }
        !self.messages.is_empty()
    }

    fn is_below_limit(&self) -> bool {
        self.is_open && self.left.len() < MAX_BATCHES
    }

    /// Waits for another batch, or the end. Cancel-safe.
    async fn take(&mut self) {
        match self.batches.recv().await {
            Some(batch) => {
                self.left.push_back(batch.len());
                self.messages.extend(batch);
            }
            None => self.is_open = false,
        }
    }

    /// Removes the first message, which is stored. Returns whether its batch is complete, and
    /// reports that.
    fn remove_first(&mut self) -> bool {
        self.messages.pop_front();
        self.stored += 1;
        let Some(left) = self.left.front_mut() else { return false };
        *left -= 1;
        let is_complete = *left == 0;
        if is_complete {
            self.left.pop_front();
            // There is space for all batches. Fails only if the sink has ended.
            let _ = self.report.try_send(());
        }
        is_complete
    }
}

/// Whether a message is in the stream. With replicas, a server can recognise a message that it
/// refused before, and then gives no sequence.
fn is_stored(ack: &PublishAck) -> bool {
    ack.sequence > 0
}

/// Whether the server says that a stream is full. Streams of another program may also have a number
/// of messages as their limit.
fn is_full(reason: &str) -> bool {
    reason.contains("maximum bytes") || reason.contains("maximum messages")
}

/// The delay before a message is published again to a full stream.
fn full_delay(failures: usize) -> Duration {
    let doublings = u32::try_from(failures).unwrap_or(u32::MAX).min(16);
    FULL.saturating_mul(2u32.saturating_pow(doublings)).min(delay(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_without_a_sequence_is_not_stored() {
        let ack = |text| serde_json::from_str(text).unwrap();
        assert!(is_stored(&ack(r#"{"stream":"s","seq":7,"duplicate":true}"#)));
        assert!(!is_stored(&ack(r#"{"stream":"s","seq":0,"duplicate":true}"#)));
    }

    #[test]
    fn a_full_stream_is_tried_often_at_first() {
        let delays: Vec<_> =
            [0, 1, 8, 9, 1_000_000].into_iter().map(|failures| full_delay(failures).as_millis()).collect();
        assert_eq!(delays, [10, 20, 2560, 5000, 5000]);
    }
}
