//! A test suite for stream transports: whether a transport does what a node needs to keep its
//! guarantees. The transports of this crate pass it; run it on a custom one. Needs the feature
//! `conformance`.
//!
//! ```no_run
//! use estafette_net::conformance::Subject;
//!
//! // A custom transport also needs `.transport(Arc::new(...))`.
//! Subject::new("tcp", |scheme| format!("{scheme}://127.0.0.1:0")).conforms();
//! ```
//!
//! This is a complete test. Each check is also a function of its own, so that it can run alone. A
//! failed check panics with the guarantee that was broken and what was seen instead. [`Side`],
//! [`until`] and [`pattern`] are the building blocks, for further checks.
//! `examples/own_transport.rs` is a transport with its test.

mod delivery;
mod ending;
mod scene;
mod side;
mod usage;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::scene::Scene;
use crate::scheme::Scheme;
use crate::{Limits, Options, Transport};

pub use self::delivery::{
    messages_are_whole_and_in_order, nodes_that_send_from_callbacks_go_on, pieces_of_messages_are_put_together,
    streams_are_told_in_records, streams_keep_every_byte, threads_do_not_interleave,
};
pub use self::ending::{
    answers_may_be_longer_than_questions, ends_without_half_open_write_what_waits, finished_early_sends_what_waits,
    nobody_listening_is_told, nodes_that_are_gone_end_connections, what_waits_is_written_before_closing,
};
pub use self::scene::pattern;
pub use self::side::{PATIENCE, Seen, Side, connected, until};
pub use self::usage::Usage;
pub use self::waiting::{
    early_sends_wait, paused_connections_are_closed, paused_connections_lose_nothing, paused_listeners_accept_nobody,
    pauses_cost_nothing, slow_readers_cost_a_queue,
};

/// Every check, the simplest first.
const CHECKS: &[fn(&Subject)] = &[
    streams_keep_every_byte,
    streams_are_told_in_records,
    messages_are_whole_and_in_order,
    pieces_of_messages_are_put_together,
    early_sends_wait,
    what_waits_is_written_before_closing,
    nodes_that_are_gone_end_connections,
    nobody_listening_is_told,
    answers_may_be_longer_than_questions,
    ends_without_half_open_write_what_waits,
    finished_early_sends_what_waits,
    paused_connections_lose_nothing,
    paused_connections_are_closed,
    paused_listeners_accept_nobody,
    pauses_cost_nothing,
    slow_readers_cost_a_queue,
    threads_do_not_interleave,
    nodes_that_send_from_callbacks_go_on,
];

/// A stream transport to be checked, and what the checks need to know of it.
pub struct Subject {
    scheme: String,
    address: Box<dyn Fn(&str) -> String + Send + Sync>,
    transport: Option<Arc<dyn Transport>>,
    options: (Options, Options),
    patience: Duration,
    /// Creates a node.
    side: fn(Limits) -> Side,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

impl Subject {
    /// A transport with this scheme. `address` returns an address to listen at for the scheme it is
    /// given: `scheme`, or `scheme` with `+msg`.
    ///
    /// The address has to be unused at every call. `address` may return the same one again, because
    /// each check has one listener at a time, and drops its node at the end.
    ///
    /// Both streams and messages are checked; only messages if the scheme itself has framing, as
    /// `tcp+msg` and `ws` have.
    pub fn new(scheme: &str, address: impl Fn(&str) -> String + Send + Sync + 'static) -> Subject {
        Subject {
            scheme: scheme.to_owned(),
            address: Box::new(address),
            transport: None,
            options: (Options::default(), Options::default()),
            patience: PATIENCE,
            side: Side::with,
        }
    }

    /// Adds this transport to every node. Without it, the checks use a transport that nodes have
    /// already.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Subject {
        self.transport = Some(transport);
        self
    }

    /// Sets the options of the listener and of the client.
    #[must_use]
    pub fn options(mut self, listener: Options, client: Options) -> Subject {
        self.options = (listener, client);
        self
    }

    /// Sets how long anything may take before a check fails. Default: [`PATIENCE`]. Checks that
    /// pass do not wait for it.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Subject {
        self.patience = time;
        self
    }

    /// Runs every check, one after the other. This takes some seconds.
    ///
    /// # Panics
    ///
    /// At the first broken guarantee. The message names it, the scheme, and what was seen.
    pub fn conforms(&self) {
        CHECKS.iter().for_each(|check| check(self));
    }

    /// Creates a node that has the transport.
    pub fn side(&self, limits: Limits) -> Side {
        let side = (self.side)(limits);
        if let Some(transport) = &self.transport {
            side.node.add_transport(Scheme::of(&self.scheme).0, transport.clone());
        }
        side
    }

    /// The default limits, but with the subject's patience as every deadline, so that no check
    /// fails earlier.
    fn limits(&self) -> Limits {
        let patience = self.patience;
        Limits { handshake: patience, message_timeout: patience, flush: patience, ..Limits::default() }
    }

    fn address(&self, scheme: &str) -> String {
        (self.address)(scheme)
    }

    /// The scheme with message framing.
    fn messages(&self) -> String {
        match Scheme::of(&self.scheme).1 {
            Scheme::Length | Scheme::WebSocket => self.scheme.clone(),
            _ => format!("{}+msg", self.scheme),
        }
    }

    /// A scene with messages.
    fn scene(&self, promise: &'static str) -> Scene<'_> {
        Scene::new(self, self.messages(), promise)
    }

    /// A scene for each of the schemes.
    fn scenes(&self, promise: &'static str) -> impl Iterator<Item = Scene<'_>> {
        let mut schemes = vec![self.scheme.clone(), self.messages()];
        schemes.dedup();
        schemes.into_iter().map(move |scheme| Scene::new(self, scheme, promise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::backend::scrambled;

    /// Runs every check with nodes whose readiness events are delayed, split and reordered.
    fn conforms_in_any_order(scheme: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket").display().to_string();
        let mut subject = Subject::new(scheme, move |scheme| match scheme {
            "tcp" | "tcp+msg" | "ws" => format!("{scheme}://127.0.0.1:0"),
            _ => format!("{scheme}://{path}"),
        });
        // With spurious events no node would sleep, and some checks test that it does.
        subject.side = |limits| Side::of(Node::with_backend(scrambled(2026, false).unwrap(), limits));
        subject.conforms();
    }

    #[test]
    fn tcp_conforms_in_any_order() {
        conforms_in_any_order("tcp");
    }

    #[test]
    fn unix_conforms_in_any_order() {
        conforms_in_any_order("unix");
    }

    #[test]
    fn inproc_conforms_in_any_order() {
        conforms_in_any_order("inproc");
    }

    #[test]
    fn websockets_conform_in_any_order() {
        conforms_in_any_order("ws");
    }
}
