//! Mechanisms through a function inside a WASM sandbox, in a process of its own; and pipelines of
//! such functions.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in the registry below, [`enrol`].
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

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

/// Adds the mechanisms of the scope `sandbox`.
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
/// The patterns of a row that supports pipelines and round trips.
const ALL: [Pattern; 5] =
    [Pattern::PingPong, Pattern::Stream, Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete];

/// The first byte of a pipeline's messages, and of its last message.
const NOT_LAST: u8 = b'S';
const LAST: u8 = b'F';

/// The longest message in bytes: the reference's functions have a buffer of this size.
const MAX_MESSAGE: usize = 1 << 20;

/// Returns the children of an instance whose broker runs the sandbox. In a ping-pong the producer
/// receives the replies itself.
fn roles(case: &Case) -> Vec<Role> {
    match case.pattern {
        Pattern::PingPong => vec![Role::Broker, Role::Producer(0)],
        _ => vec![Role::Broker, Role::Consumer(0), Role::Producer(0)],
    }
}

/// Returns the ends of a pipeline, each a child of the instance.
fn ends(case: &Case) -> Vec<Role> {
    (0..case.consumers()).map(Role::Consumer).chain([Role::Producer(0)]).collect()
}
