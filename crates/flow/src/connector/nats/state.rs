//! What the events of a connection say: whether it is up, and what the server refuses.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, Event, ServerError};
use tokio::sync::watch;

use super::super::problem::Problem;
use super::errors::plain;
use super::timing::delay;

/// How long the server may take to refuse a subscription that was made again.
const REFUSAL: Duration = Duration::from_millis(500);

/// The connection as of the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Down,
    /// With the number of connections so far.
    Up(u64),
}

/// Whether the server accepts the subscriptions of a connection, those for answers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subscriptions {
    Accepted,
    /// The server has removed or refused one, and forgets it.
    Refused,
    /// They are being made again.
    Renewing,
}

/// What the callbacks of a connection write.
pub(super) struct State {
    connection: watch::Sender<Connection>,
    connections: AtomicU64,
    subscriptions: watch::Sender<Subscriptions>,
    /// What the server refused last.
    refused: Mutex<Option<String>>,
    /// Messages that a full subscription lost.
    lost: AtomicU64,
    has_ended: AtomicBool,
    problem: Arc<Problem>,
}

impl State {
    pub(super) fn new(problem: &Arc<Problem>) -> State {
        State {
            connection: watch::Sender::new(Connection::Down),
            connections: AtomicU64::new(0),
            subscriptions: watch::Sender::new(Subscriptions::Accepted),
            refused: Mutex::default(),
            lost: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            problem: Arc::clone(problem),
        }
    }

    pub(super) fn connection(&self) -> Connection {
        *self.connection.borrow()
    }

    /// Waits until the connection fulfils a condition. Cancel-safe.
    pub(super) async fn until(&self, mut condition: impl FnMut(Connection) -> bool) {
        // Fails only if the sender is gone, which this value owns.
        let _ = self.connection.subscribe().wait_for(|connection| condition(*connection)).await;
    }

    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Records that nothing is wrong, unless a subscription is refused.
    pub(super) fn clear_problem(&self) {
        if self.are_subscriptions_accepted() {
            self.problem.clear();
        }
    }

    /// What the server refused since the last call.
    pub(super) fn take_refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How many messages were lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    pub(super) fn connected(&self) {
        self.connection.send_if_modified(|connection| {
            let is_news = *connection == Connection::Down;
            if is_news {
                *connection = Connection::Up(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
            }
            is_news
        });
        self.clear_problem();
    }

    pub(super) fn unreachable(&self, reason: &str) {
        self.problem.set(format!("the NATS server cannot be reached: {reason}"));
    }

    /// Records that the connector has ended: its connection is not lost when it is closed.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn on_event(&self, event: Event) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        match event {
            Event::Connected => self.connected(),
            Event::Disconnected | Event::Closed => {
                self.connection.send_replace(Connection::Down);
                if self.are_subscriptions_accepted() {
                    self.problem.set(String::from("the NATS server is lost; its messages wait until it is back"));
                }
            }
            Event::SlowConsumer(_) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
            Event::ServerError(ServerError::Other(text)) => self.on_refusal(text),
            Event::ServerError(error) => self.on_refusal(error.to_string()),
            Event::ClientError(error) if self.connection() == Connection::Down => {
                self.unreachable(&plain(&error.to_string()));
            }
            Event::ClientError(_) | Event::LameDuckMode | Event::Draining => {}
        }
    }

    fn on_refusal(&self, text: String) {
        if is_subscription(&text) {
            self.problem.set(format!("the server refuses: {text}; grant it to the user of this host"));
            self.subscriptions.send_replace(Subscriptions::Refused);
        }
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    fn are_subscriptions_accepted(&self) -> bool {
        *self.subscriptions.borrow() == Subscriptions::Accepted
    }
}

/// Whether a refusal is of a subscription that a topic needs. The claim of a host's name is not.
fn is_subscription(refusal: &str) -> bool {
    refusal.contains("Permissions Violation for Subscription to") && !refusal.contains(".%host.")
}

/// Makes the subscriptions of a connection again after the server refused one, until it accepts
/// them: it connects again, since the client subscribes to everything then. Never returns.
pub(super) async fn renew_subscriptions(client: Client, state: Arc<State>) {
    let mut subscriptions = state.subscriptions.subscribe();
    let mut attempts = 0;
    while subscriptions.wait_for(|now| *now == Subscriptions::Refused).await.is_ok() {
        tokio::time::sleep(delay(attempts)).await;
        attempts += 1;
        let before = state.connection();
        state.subscriptions.send_replace(Subscriptions::Renewing);
        if client.force_reconnect().await.is_err() {
            return;
        }
        state.until(|connection| connection != Connection::Down && connection != before).await;
        tokio::time::sleep(REFUSAL).await;
        let is_accepted = state.subscriptions.send_if_modified(|now| {
            let is_accepted = *now == Subscriptions::Renewing;
            if is_accepted {
                *now = Subscriptions::Accepted;
            }
            is_accepted
        });
        if is_accepted {
            attempts = 0;
            state.problem.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_closed_is_not_lost() {
        let problem = Arc::new(Problem::new("test"));
        let state = State::new(&problem);
        state.connected();
        state.on_event(Event::Disconnected);
        assert!(problem.get().is_some());
        state.connected();
        state.end();
        state.on_event(Event::Disconnected);
        state.on_event(Event::Closed);
        assert_eq!(problem.get(), None);
    }

    #[test]
    fn a_refused_claim_of_a_host_is_no_refused_subscription() {
        assert!(is_subscription("Permissions Violation for Subscription to \"t.raw\""));
        assert!(is_subscription("Permissions Violation for Subscription to \"_INBOX.a.*\" (sid \"0\")"));
        assert!(!is_subscription("Permissions Violation for Subscription to \"t.%host.edge\""));
        assert!(!is_subscription("Permissions Violation for Publish to \"t.raw\""));
    }
}
