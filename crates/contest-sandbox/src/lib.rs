//! The mechanisms through a function inside a WASM sandbox, in a process of its own; and pipelines of such functions.
//!
//! A file holds everything that is particular to its mechanism: how it is opened, its two ends, and what it says of
//! itself. Adding one is a file and a line in the registry below, [`enrol`].
#![forbid(unsafe_code)]

use estafette_measure::Registry;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::entry::{bytes, pipelines};

mod crc;
mod flow;
#[cfg(feature = "nats")]
mod flow_nats;
mod flow_pipelines;
mod flow_pipes;
mod guest;
mod native_pair;
mod printed;
mod reference_ring;
mod wat_echo;

pub use self::native_pair::NativePair;
pub use self::wat_echo::WatEcho;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    let registry = registry.enrol(bytes(reference_ring::NoSandbox)).enrol(pipelines(NativePair));
    let registry = registry.enrol(bytes(wat_echo::WatEcho));
    let registry = flow::ROWS.iter().fold(registry, |registry, row| registry.enrol(bytes(row)));
    let registry = registry.enrol(bytes(flow_pipes::FlowPipes));
    #[cfg(feature = "nats")]
    let registry = registry.enrol(pipelines(flow_nats::FlowNats));
    registry
}

/// The patterns that are pipelines.
const PIPELINES: [Pattern; 3] = [Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete];
/// What a row plays that has both.
const ALL: [Pattern; 5] =
    [Pattern::PingPong, Pattern::Stream, Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete];

/// The first byte of a pipeline's messages, and of its last.
const NOT_LAST: u8 = b'S';
const LAST: u8 = b'F';

/// The longest message: the reference's functions have a buffer of so many bytes.
const MAX_MESSAGE: usize = 1 << 20;

/// The children of an instance whose broker holds the sandbox. Messages of a ping-pong come back to
/// the asker.
fn roles(case: &Case) -> Vec<Role> {
    match case.pattern {
        Pattern::PingPong => vec![Role::Broker, Role::Producer(0)],
        _ => vec![Role::Broker, Role::Consumer(0), Role::Producer(0)],
    }
}

/// The ends of a pipeline, each a child of the instance.
fn ends(case: &Case) -> Vec<Role> {
    (0..case.consumers()).map(Role::Consumer).chain([Role::Producer(0)]).collect()
}
