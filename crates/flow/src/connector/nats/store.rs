//! Publishes messages to a stream, at least once and in order.
//!
//! A batch is acknowledged to the topic's ring when the stream has stored all of its messages. Until
//! then no further message is taken, so the ring fills and the sender waits. What the stream has not
//! stored is published again, under the same number, which the server recognises.
//!
//! The messages of a batch are published without waiting for each other. Each but the first names its
//! predecessor (`Nats-Expected-Last-Msg-Id`), and the stream stores it only directly after that. So if
//! a message is refused, all of the batch after it are refused too, and the order is kept: when the
//! stream is full for a moment, and when a connection is lost. A message of another producer in between
//! also ends the chain. The first message that was refused begins the next one.

use std::time::Duration;

use async_nats::header::NATS_EXPECTED_LAST_MESSAGE_ID;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use futures_util::future::join_all;

use super::errors::reason;
use super::publish::{Destination, Outgoing, Stopped};
use super::setup;
use super::timing::delay;
use crate::config::Nats;

/// The most messages that are published without an answer. A batch has no more.
const MAX_WINDOW: usize = 4096;
/// The first delay while the stream is full. It doubles up to that of other refusals.
const FULL: Duration = Duration::from_millis(10);

/// Publishes to a stream.
pub(super) struct StreamPublisher {
    destination: Destination,
    nats: Nats,
    /// The number of the connection on which the stream and its consumers were found or created. None after an error.
    prepared_on: Option<u64>,
    /// How many messages are published without an answer: fewer after a refusal, then more again.
    window: usize,
}

/// Why the stream did not store a message.
enum Refusal {
    /// Another producer's message came before.
    Overtaken,
    Full(String),
    Other(String),
}

impl StreamPublisher {
    pub(super) fn new(destination: Destination, nats: Nats) -> StreamPublisher {
        StreamPublisher { destination, nats, prepared_on: None, window: MAX_WINDOW }
    }

    /// Publishes messages until the stream has stored them all.
    pub(super) async fn store(&mut self, batch: &[Outgoing]) -> Result<(), Stopped> {
        let mut waiting = batch;
        let mut failures = 0;
        while !waiting.is_empty() {
            let (stored, refusal) = self.step(waiting).await?;
            waiting = &waiting[stored..];
            if stored > 0 {
                failures = 0;
            }
            match refusal {
                None => self.window = (self.window * 2).min(MAX_WINDOW),
                Some(refusal) => {
                    self.window = if stored > 0 { self.window.div_ceil(2) } else { 1 };
                    self.pause(refusal, failures).await?;
                    failures += 1;
                }
            }
        }
        self.destination.link.clear_problem();
        Ok(())
    }

    /// Publishes the first messages once, or prepares the stream if that is needed before. Returns how
    /// many are stored, and why the next one is not.
    async fn step(&mut self, waiting: &[Outgoing]) -> Result<(usize, Option<Refusal>), Stopped> {
        let link = &self.destination.link;
        self.destination.unless_stopped(link.until_up()).await?;
        let connection = link.number();
        if self.prepared_on != Some(connection) {
            let prepared = setup::prepare(link, &self.nats, &self.destination.topic);
            let prepared = self.destination.unless_stopped(prepared).await?;
            self.prepared_on = prepared.is_ok().then_some(connection);
            return Ok((0, prepared.err().map(|error| Refusal::Other(error.text().to_owned()))));
        }
        let messages = &waiting[..waiting.len().min(self.window)];
        let (stored, refusal) = self.publish(messages).await?;
        if matches!(refusal, Some(Refusal::Other(_))) {
            self.prepared_on = None;
        }
        Ok((stored, refusal))
    }

    fn full(&self) -> Refusal {
        Refusal::Full(format!(
            "the stream `{}` is full, and its messages wait: a queue does not process them, or \
             `nats.stream.max_bytes` is too small",
            self.destination.topic.stream
        ))
    }

    /// Waits after a refusal, and shows it.
    async fn pause(&self, refusal: Refusal, failures: usize) -> Result<(), Stopped> {
        let link = &self.destination.link;
        let (problem, pause) = match refusal {
            Refusal::Overtaken => return Ok(()),
            Refusal::Full(problem) => (problem, full_delay(failures)),
            Refusal::Other(problem) => (problem, delay(failures)),
        };
        if link.is_up() {
            link.problem(problem);
        }
        self.destination.unless_stopped(tokio::time::sleep(pause)).await
    }

    /// Publishes messages once. Returns how many are stored before the first that is not, and why that is not.
    async fn publish(&self, messages: &[Outgoing]) -> Result<(usize, Option<Refusal>), Stopped> {
        let link = &self.destination.link;
        let _ = link.take_refused();
        let publish = async {
            let mut sent = Vec::with_capacity(messages.len());
            for (at, message) in messages.iter().enumerate() {
                let before = at.checked_sub(1).map(|before| &messages[before]);
                let publish = self.message(message, before);
                sent.push(link.jetstream.send_publish(self.destination.subject.clone(), publish).await);
            }
            join_all(sent.into_iter().map(async |sent| sent?.await)).await
        };
        let results = tokio::select! {
            () = self.destination.stop.wait() => return Err(Stopped),
            () = link.until_lost() => return Ok((0, Some(Refusal::Other(String::from("the NATS server is lost"))))),
            results = publish => results,
        };
        let stored = results.iter().take_while(|result| result.as_ref().is_ok_and(is_stored)).count();
        let refusal = results.into_iter().nth(stored).map(|result| match result {
            Ok(_) => self.unstored(),
            Err(error) => self.refusal(&error),
        });
        Ok((stored, refusal))
    }

    /// The server knows the `Nats-Msg-Id` of a message that it has refused before, and has not stored it.
    fn unstored(&self) -> Refusal {
        let stream = &self.destination.topic.stream;
        Refusal::Other(format!(
            "the stream `{stream}` takes a message for a duplicate that it has not stored; it is sent again until the server \
             forgets that, after two minutes"
        ))
    }

    fn refusal(&self, error: &PublishError) -> Refusal {
        let (stream, subject) = (&self.destination.topic.stream, &self.destination.topic.subject);
        if let Some(refused) = self.destination.link.take_refused() {
            return Refusal::Other(format!("the server refuses: {refused}; grant it to the user of this host"));
        }
        match error.kind() {
            PublishErrorKind::WrongLastMessageId => Refusal::Overtaken,
            PublishErrorKind::StreamNotFound => Refusal::Other(format!("no stream stores the subject `{subject}`")),
            PublishErrorKind::TimedOut => {
                Refusal::Other(format!("the stream `{stream}` did not acknowledge a message in time"))
            }
            _ if is_full(&reason(error)) => self.full(),
            _ => Refusal::Other(format!("the stream `{stream}` refuses a message: {}", reason(error))),
        }
    }

    /// A message that is stored only after the one before it, if one is given.
    fn message(&self, message: &Outgoing, before: Option<&Outgoing>) -> PublishMessage {
        let mut headers = self.destination.headers(message.number);
        if let Some(before) = before {
            headers.insert(NATS_EXPECTED_LAST_MESSAGE_ID, self.destination.id(before.number));
        }
        PublishMessage::build().payload(message.payload.clone()).headers(headers)
    }
}

/// Whether a message is in the stream. With replicas, a server can recognise a message that it refused before, and
/// then gives no sequence.
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
