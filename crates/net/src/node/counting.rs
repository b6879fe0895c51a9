//! What the node's thread counts: see [`crate::counters`].

use super::{Entry, Node};
use crate::connection::Connection;
use crate::counters::Openings;
use crate::event::{Endpoint, Reason};
use crate::incoming::Incoming;
use crate::trace;

impl<S> Node<S> {
    /// Counts the messages of the run so far. While a run is delivered, they are counted in the run
    /// itself, which is at hand.
    pub(super) fn count_run(&mut self) {
        let Some(run) = &mut self.reader.run else { return };
        let received = match self.entries.get(run.from.key.index as usize) {
            Some(Some(Entry::Stream(incoming))) => incoming.connection.received(),
            Some(Some(Entry::Datagrams(datagrams))) => &datagrams.socket.tally.received,
            _ => return,
        };
        received.messages.add(run.take_uncounted().into());
    }

    /// Counts a connection that is open now.
    pub(super) fn count_open(&self, connection: &Connection) {
        let openings = &self.shared.openings;
        match &connection.accepted_by {
            Some(acceptor) => {
                acceptor.openings.accepted.add(1);
                openings.accepted.add(1);
            }
            None => openings.connected.add(1),
        }
    }
}

/// Counts and traces a connection whose end is reported now.
pub(super) fn note_end(openings: &Openings, incoming: &Incoming, reason: &Reason) {
    let (endpoint, connection) = (Endpoint::new(incoming.key), &*incoming.connection);
    if !is_failure(incoming, reason) {
        return trace::closed(endpoint, reason);
    }
    trace::failed(endpoint, connection, reason);
    openings.failed.add(1);
    if let Some(acceptor) = &connection.accepted_by {
        acceptor.openings.failed.add(1);
    }
}

/// Whether a connection that ends for this reason was never open, and not closed on this side.
pub(super) fn is_failure(incoming: &Incoming, reason: &Reason) -> bool {
    match reason {
        Reason::Closed | Reason::Unwritten(_) => false,
        Reason::NotConnected(_) => true,
        _ => incoming.life.never_open().is_some(),
    }
}
