//! The orderly end of a whole node: [`Handle::shutdown`](crate::Handle::shutdown).

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Entry, Node};
use crate::codec::websocket::Close;
use crate::event::Reason;
use crate::incoming::after;
use crate::lifecycle::Stage;
#[cfg(doc)]
use crate::limits::Limits;
use crate::lock::lock;
use crate::slab::Key;

/// The status code of a closing frame that says "going away": RFC 6455, section 7.4.1.
const GOING_AWAY: u16 = 1001;

impl<S> Node<S> {
    /// Closes every endpoint, and cuts at `until` what is left. A second call can only bring that
    /// forward.
    pub(super) fn begin_shutdown(&mut self, until: Instant) {
        self.shutdown_at = Some(self.shutdown_at.map_or(until, |before| before.min(until)));
        for key in self.keys() {
            self.close_in_shutdown(key);
        }
    }

    /// The keys of all entries.
    fn keys(&self) -> Vec<Key> {
        self.entries.iter().flatten().map(Entry::key).collect()
    }

    /// Closes an entry if the node is shutting down.
    pub(super) fn close_in_shutdown(&mut self, key: Key) {
        if self.shutdown_at.is_some() {
            let farewell = Close { code: Some(GOING_AWAY), reason: String::new() };
            self.close(key, &farewell.payload());
        }
    }

    /// Until when a connection that closes now may write its queue and wait for its peer:
    /// [`Limits::flush`], or the end of the shutdown.
    pub(super) fn flush_deadline(&self) -> Instant {
        self.shutdown_at.unwrap_or_else(|| after(self.clock, self.shared.limits.flush))
    }

    /// Ends at once what is left when the time for a shutdown is over.
    pub(super) fn cut_shutdown(&mut self) {
        if self.shutdown_at.is_none_or(|at| self.clock < at) {
            return;
        }
        for key in self.keys() {
            if self.stream(key).is_some_and(|incoming| incoming.life.is_ending()) {
                self.finish_end(key);
            } else {
                self.close_or_reconnect(key, Reason::Closed);
            }
        }
    }

    /// Called when every event was delivered: if the node was shutting down and no endpoint is
    /// left, it stops as by [`Handle::stop`](crate::Handle::stop).
    pub(super) fn complete_shutdown(&mut self) {
        if self.shutdown_at.is_none() || self.shared.count() > 0 {
            return;
        }
        let signals = lock(&self.shared.signals);
        if !signals.urgent.is_empty() || !signals.usual.is_empty() {
            return;
        }
        drop(signals);
        self.shared.lifecycle.advance(Stage::ShutDown);
        // A thread that creates an endpoint inserts it and then looks at the stage. So either it
        // sees the new stage and removes the endpoint, or it is counted here.
        if self.shared.count() == 0 {
            self.shared.stopped.store(true, Ordering::SeqCst);
        }
    }
}
