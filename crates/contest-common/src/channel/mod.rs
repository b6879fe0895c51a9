//! Channels inside one process.
//!
//! The file of a channel implements [`Channel`], and [`ThreadChannel`] or [`TaskChannel`]: its
//! description, how it is opened, and how one message is sent and received. [`mechanism`] makes a
//! mechanism of it.

use std::future::Future;

use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::{Ownership, Runtime, Scope, Tier};
use estafette_measure::{Spec, Value};

pub mod mechanism;
pub mod probe;
mod runtime;

pub use runtime::executor;

/// A channel: its description, and how it is opened. [`ThreadChannel`] or [`TaskChannel`] says how
/// messages are sent and received.
pub trait Channel: Send + Sync + 'static {
    /// The sending end. A clone is another sender of the same channel.
    type Tx<P: Value>: Clone + Send + 'static;
    /// The receiving end.
    type Rx<P: Value>: Send + 'static;

    /// Returns its description.
    fn spec() -> Spec;

    /// Checks that it supports this capacity and number of senders.
    ///
    /// # Errors
    ///
    /// A reason for the user.
    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        let _ = (capacity, senders);
        Ok(())
    }

    /// Opens a channel with a capacity in messages for `senders` senders.
    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>);

    /// Returns another receiver of the same channel, if several receivers can share the messages.
    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        let _ = rx;
        None
    }
}

/// A channel whose functions block their thread.
pub trait ThreadChannel: Channel {
    /// Sends one message.
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()>;

    /// Receives one message.
    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P>;
}

/// A channel whose functions are futures.
pub trait TaskChannel: Channel {
    /// Sends one message.
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send;

    /// Receives one message.
    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send;
}

/// The result of a channel's function: a value, or an error if the other side has closed.
pub trait Outcome<T> {
    /// Returns the value, or `None` if the other side has closed.
    fn into_option(self) -> Option<T>;
}

impl<T> Outcome<T> for Option<T> {
    #[inline(always)]
    fn into_option(self) -> Option<T> {
        self
    }
}

impl<T, E> Outcome<T> for Result<T, E> {
    #[inline(always)]
    fn into_option(self) -> Option<T> {
        self.ok()
    }
}

/// Returns a description with the properties of most channels: any payload, one receiver, cloned
/// senders.
pub fn spec(name: &str, version: &str, implementation: &str) -> Spec {
    let spec = Spec::new(name)
        .version(version)
        .implementation(implementation)
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::Burst])
        .payloads(&[
            PayloadKind::U64,
            PayloadKind::Bytes,
            PayloadKind::Inline,
            PayloadKind::Shared,
            PayloadKind::Unread,
        ])
        .ownership(Ownership::Owned)
        .max_producers(None)
        .tier(Tier::Suite);
    if spec.scope == Scope::Task { add_pattern(spec.runtimes(&Runtime::TASKS), Pattern::Cancel) } else { spec }
}

/// Adds to a description that several receivers can share the channel.
pub fn shared(spec: Spec) -> Spec {
    add_pattern(spec, Pattern::Mpmc)
}

fn add_pattern(spec: Spec, pattern: Pattern) -> Spec {
    let patterns = [&*spec.patterns, &[pattern]].concat();
    spec.patterns(&patterns)
}

/// Checks that a capacity can be divided among senders that each have a ring of a power of two.
pub fn check_ring_capacity(capacity: usize, senders: usize) -> Result<(), String> {
    let each = capacity / senders;
    if each.is_power_of_two() && each * senders == capacity {
        return Ok(());
    }
    Err(format!("each sender's capacity must be a power of two: {capacity} cannot be divided that way among {senders}"))
}
