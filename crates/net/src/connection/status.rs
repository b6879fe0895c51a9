//! What is known of a connection from outside: how far it is, and what it has sent and received.

use super::Connection;
use super::outgoing::{Phase, RequestedEnd};
use crate::counters::{Counters, Traffic};
use crate::endpoint_info::ConnectionState;

impl Connection {
    /// What the node's thread has received here.
    #[inline(always)]
    pub(crate) fn received(&self) -> &Traffic {
        &self.received
    }

    /// Notes that a send was refused. Returns whether it is the first one since the queue drained.
    #[cfg(feature = "tracing")]
    pub(crate) fn notes_full(&self) -> bool {
        !std::mem::replace(&mut self.lock().full_noted, true)
    }

    /// How far the connection is. Waits while another thread sends.
    pub(crate) fn state(&self) -> ConnectionState {
        let out = self.lock();
        match (out.phase, out.requested_end) {
            (Phase::Closing | Phase::Closed, _) | (_, Some(RequestedEnd::Close)) => ConnectionState::Closing,
            (Phase::Opening | Phase::Replaced, _) => ConnectionState::Opening,
            (Phase::Finishing, _) | (Phase::Open, Some(RequestedEnd::Finish)) => ConnectionState::Finishing,
            (Phase::Open, None) => ConnectionState::Open,
        }
    }

    /// What was received and sent so far. Waits while another thread sends.
    pub(crate) fn counters(&self) -> Counters {
        let out = self.lock();
        Counters {
            received_messages: self.received.messages.get(),
            received_bytes: self.received.bytes.get(),
            sent_messages: out.counts.messages,
            sent_bytes: out.counts.bytes,
            queued_bytes: out.queued() + out.delegated.len(),
            refused_sends: out.counts.refused,
            ..Counters::default()
        }
    }
}
