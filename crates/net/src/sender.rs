//! Senders: messages to one endpoint, without a lookup for each of them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::codec::Kind;
use crate::command::Command;
use crate::connection::Connection;
use crate::event::{Endpoint, Outcome};
#[cfg(doc)]
use crate::handle::Handle;
use crate::route::Route;
use crate::shared::Shared;
use crate::trace;

/// Sends messages to one endpoint. [`Handle::sender`] creates one.
///
/// [`Handle::send`] looks the endpoint up for each message. A sender does that once, which matters
/// where several threads send many short messages on one connection: each of them has a clone. The
/// order, the outcomes and what may be lost are those of [`Handle::send`]. After a reconnect it
/// sends on the new connection.
///
/// Drop a sender whose endpoint has ended: until then, or until its next send, it keeps the file
/// descriptor of the socket. The peer notices the end all the same.
///
/// ```
/// # use estafette_net::{Event, Node};
/// # let mut node = Node::<()>::new()?;
/// # let handle = node.handle();
/// # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
/// let endpoint = handle.connect(&handle.local_address(listener).unwrap())?;
/// let sender = handle.sender(endpoint);
/// for _ in 0..4 {
///     let mut sender = sender.clone();
///     std::thread::spawn(move || (0..100).all(|_| sender.send(b"hello").is_accepted()));
/// }
/// let mut received = 0;
/// while received < 400 {
///     node.poll(None, |event| received += usize::from(matches!(event, Event::Message(..))))?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender<S = ()> {
    shared: Arc<Shared<S>>,
    to: Endpoint,
    /// `None` if nothing can be sent there: the endpoint has ended, is a listener, or is of another
    /// node.
    route: Option<Route>,
}

impl<S> Sender<S> {
    pub(crate) fn new(shared: Arc<Shared<S>>, to: Endpoint) -> Sender<S> {
        let route = shared.route(to.key);
        Sender { shared, to, route }
    }

    /// The endpoint to which this sender sends.
    pub fn endpoint(&self) -> Endpoint {
        self.to
    }

    /// Sends a message: see [`Handle::send`].
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Outcome {
        self.send_kind(Kind::Binary, message)
    }

    /// As [`Sender::send`], but a WebSocket peer receives a text message.
    #[inline]
    pub fn send_text(&mut self, message: &str) -> Outcome {
        self.send_kind(Kind::Text, message.as_bytes())
    }

    #[inline]
    fn send_kind(&mut self, kind: Kind, message: &[u8]) -> Outcome {
        loop {
            let sent = match &self.route {
                Some(Route::Stream(connection)) => connection.send(kind, message),
                Some(Route::Datagrams(socket)) => Ok(Some(socket.send(message, self.to.remote))),
                None => return self.shared.outcome_without_route(self.to.key),
            };
            if let Some(outcome) = self.note_result(sent) {
                return outcome;
            }
        }
    }

    /// Does what the result of a send requires. Returns `None` if another connection has replaced
    /// this one, which is the route now.
    #[inline]
    pub(crate) fn note_result(&mut self, sent: io::Result<Option<Outcome>>) -> Option<Outcome> {
        match sent {
            Ok(Some(outcome @ (Outcome::Sent | Outcome::Queued))) => Some(outcome),
            sent => self.note_exception(sent),
        }
    }

    #[cold]
    fn note_exception(&mut self, sent: io::Result<Option<Outcome>>) -> Option<Outcome> {
        match sent {
            Ok(Some(Outcome::Closed)) => {
                // Nothing more will be sent there: releases the connection.
                self.route = None;
                Some(Outcome::Closed)
            }
            Ok(Some(outcome)) => {
                if let (Outcome::Full, Some(connection)) = (outcome, self.connection()) {
                    trace::full(self.to, connection);
                }
                Some(outcome)
            }
            Ok(None) => {
                self.route = self.shared.route(self.to.key);
                None
            }
            Err(error) => Some(self.fail(error)),
        }
    }

    /// Reports a failed write to the node. Returns the outcome for the sender.
    #[cold]
    pub(crate) fn fail(&self, error: io::Error) -> Outcome {
        let Some(connection) = self.connection() else { return Outcome::Closed };
        let outcome = connection.refused_outcome();
        self.shared.command(Command::SendFailed(self.to.key, connection.clone(), error));
        outcome
    }

    pub(crate) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    fn connection(&self) -> Option<&Arc<Connection>> {
        match &self.route {
            Some(Route::Stream(connection)) => Some(connection),
            _ => None,
        }
    }

    /// The outcome of a send without a route.
    pub(crate) fn outcome_without_route(&self) -> Outcome {
        self.shared.outcome_without_route(self.to.key)
    }
}

impl<S> Clone for Sender<S> {
    fn clone(&self) -> Sender<S> {
        Sender { shared: self.shared.clone(), to: self.to, route: self.route.clone() }
    }
}

impl<S> fmt::Debug for Sender<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("to", &self.to).finish_non_exhaustive()
    }
}
