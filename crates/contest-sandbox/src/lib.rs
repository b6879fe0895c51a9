//! Mechanisms through a function inside a WASM sandbox, in a process of its own; and pipelines of
//! such functions.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in the registry below, [`register`].
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use estafette_measure::Registry;
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
mod rows;
mod wat_echo;

pub use self::native_pair::NativePair;
pub use self::wat_echo::WatEcho;

/// Adds the mechanisms of the scope `sandbox`.
pub fn register(registry: Registry) -> Registry {
    let registry = registry.register(bytes(reference_ring::NoSandbox)).register(pipelines(NativePair));
    let registry = registry.register(bytes(wat_echo::WatEcho));
    let registry = flow::ROWS.iter().fold(registry, |registry, row| registry.register(bytes(row)));
    let registry = registry.register(bytes(flow_pipes::FlowPipes));
    #[cfg(feature = "nats")]
    let registry = registry.register(pipelines(flow_nats::FlowNats));
    registry
}
