//! The requests by which a source asks the server for messages of its queue. One at a time is open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::{FutureExt, StreamExt};

use super::errors::reason;
use super::link::Link;
use super::setup;
use super::timing::delay;
use crate::config::{Nats, NatsTopic};

/// How long a request for messages is open.
const EXPIRES: Duration = Duration::from_secs(5);

/// The requests of a source.
pub(super) struct Puller {
    link: Arc<Link>,
    nats: Nats,
    topic: NatsTopic,
    queue: String,
    request: Request,
    /// Whether a message has arrived since the last request was made.
    has_received: bool,
    /// How many requests have failed in a row.
    failures: usize,
    progress_interval: Duration,
}

/// A message, and the number of the connection that it arrived on.
pub(super) type Received = (Message, u64);

/// The request for messages.
enum Request {
    /// None is open, and none is made before that time.
    Closed { until: Instant },
    /// No request is open. The consumer was prepared on the connection with this number.
    Ready(Box<PullConsumer>, u64),
    /// A request is open.
    Open(Box<OpenRequest>),
}

struct OpenRequest {
    consumer: PullConsumer,
    batch: Batch,
    /// The number of the connection that it was made on.
    connection: u64,
}

impl Puller {
    pub(super) fn new(link: Arc<Link>, nats: Nats, topic: NatsTopic, queue: String) -> Puller {
        let progress_interval = nats.ack_wait / 3;
        let request = Request::Closed { until: Instant::now() };
        Puller { link, nats, topic, queue, request, has_received: true, failures: 0, progress_interval }
    }

    /// How often messages must be reported as in progress.
    pub(super) fn progress_interval(&self) -> Duration {
        self.progress_interval
    }

    /// A message that has arrived, if there is one. Does not wait.
    pub(super) fn next(&mut self) -> Option<Received> {
        loop {
            let Request::Open(open) = &mut self.request else { return None };
            // Otherwise a task that has taken some messages would find none, though some have arrived.
            let Some(next) = tokio::task::unconstrained(open.batch.next()).now_or_never() else {
                if open.connection != self.link.number() {
                    // The request was lost with its connection.
                    self.close();
                }
                return None;
            };
            let connection = open.connection;
            if let Some(message) = self.accept(next) {
                return Some((message, connection));
            }
        }
    }

    /// Waits for a message. None if a request ended instead. Never returns if no request is open.
    /// Cancel-safe.
    pub(super) async fn wait(&mut self) -> Option<Received> {
        match &mut self.request {
            Request::Open(open) => {
                let (next, connection) = (open.batch.next().await, open.connection);
                self.accept(next).map(|message| (message, connection))
            }
            Request::Closed { .. } | Request::Ready(..) => std::future::pending().await,
        }
    }

    /// Takes what a request delivered. None if the request has ended.
    fn accept(&mut self, next: Option<Result<Message, async_nats::Error>>) -> Option<Message> {
        match next {
            Some(Ok(message)) => {
                self.has_received = true;
                self.succeeded();
                Some(message)
            }
            Some(Err(error)) => {
                self.failed(format!("a request for messages ended: {error}"));
                None
            }
            None => {
                self.ended();
                None
            }
        }
    }

    /// Whether a request is open, so that messages arrive without another one.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.request, Request::Open(_))
    }

    /// Gives up the open request. Messages that have arrived by it and were not taken are lost, and
    /// delivered again.
    pub(super) fn close(&mut self) {
        self.request = Request::Closed { until: Instant::now() };
    }

    /// Asks for messages, if no request is open and one may be made.
    pub(super) async fn ask(&mut self, messages: usize) {
        let is_due = match &self.request {
            Request::Open(_) => false,
            Request::Closed { until } => *until <= Instant::now(),
            Request::Ready(..) => true,
        };
        // A lost connection would keep the request for the next one, on which nobody waits for it.
        if !is_due || !self.link.is_up() {
            return;
        }
        self.has_received = false;
        match self.request(messages).await {
            Ok(open) => {
                let config = &open.consumer.cached_info().config;
                self.progress_interval = progress_interval(config.ack_wait, &config.backoff, self.nats.ack_wait);
                self.request = Request::Open(Box::new(open));
            }
            Err(problem) => self.failed(problem),
        }
    }

    /// Asks for messages. Their number is the only bound that servers keep reliably.
    async fn request(&self, messages: usize) -> Result<OpenRequest, String> {
        let connection = self.link.number();
        let consumer = match &self.request {
            Request::Ready(consumer, prepared_on) if *prepared_on == connection => (**consumer).clone(),
            _ => {
                let consumer = setup::consumer_of(&self.link, &self.nats, &self.topic, &self.queue).await;
                consumer.map_err(|error| error.text().to_owned())?
            }
        };
        let batch = consumer.batch().max_messages(messages).expires(EXPIRES).messages().await;
        Ok(OpenRequest { batch: batch.map_err(|error| reason(&error))?, consumer, connection })
    }

    /// A request has ended: another one can be made. One that delivered nothing may have been
    /// refused.
    fn ended(&mut self) {
        if !self.has_received
            && let Some(refused) = self.link.take_refused()
        {
            return self.failed(format!("the server refuses: {refused}; grant it to the user of this host"));
        }
        self.succeeded();
        let closed = Request::Closed { until: Instant::now() };
        self.request = match std::mem::replace(&mut self.request, closed) {
            Request::Open(open) => Request::Ready(Box::new(open.consumer), open.connection),
            other => other,
        };
    }

    /// Shows why a request failed, and waits before the next one: the longer, the more have failed.
    fn failed(&mut self, problem: String) {
        if self.link.is_up() {
            self.link.problem(problem);
        }
        self.request = Request::Closed { until: Instant::now() + delay(self.failures) };
        self.failures += 1;
    }

    fn succeeded(&mut self) {
        if self.failures > 0 {
            self.failures = 0;
            self.link.clear_problem();
        }
    }
}

/// How often to report to the server that a message is in progress. An existing consumer keeps its
/// own `ack_wait`, or a list of waits in its place, whatever the pipeline's file says.
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
