//! What several mechanisms of this crate have in common: their patterns, the messages of their pipelines, and their
//! children.

use estafette_measure::case::{Case, Pattern, Role};

/// The patterns that are pipelines.
pub(super) const PIPELINES: [Pattern; 3] = [Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete];
/// The patterns of a row that supports pipelines and round trips.
pub(super) const ALL: [Pattern; 5] =
    [Pattern::PingPong, Pattern::Stream, Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete];

/// The first byte of a pipeline's messages, and of its last message.
pub(super) const NOT_LAST: u8 = b'S';
pub(super) const LAST: u8 = b'F';

/// The longest message in bytes: the reference's functions have a buffer of this size.
pub(super) const MAX_MESSAGE: usize = 1 << 20;

/// Returns the children of an instance whose broker runs the sandbox. In a ping-pong the producer
/// receives the replies itself.
pub(super) fn roles(case: &Case) -> Vec<Role> {
    match case.pattern {
        Pattern::PingPong => vec![Role::Broker, Role::Producer(0)],
        _ => vec![Role::Broker, Role::Consumer(0), Role::Producer(0)],
    }
}

/// Returns the ends of a pipeline, each a child of the instance.
pub(super) fn ends(case: &Case) -> Vec<Role> {
    (0..case.consumers()).map(Role::Consumer).chain([Role::Producer(0)]).collect()
}
