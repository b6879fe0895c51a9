//! The mechanisms under measure, one file each, by scope.
//!
//! A file holds everything that is particular to its mechanism: how it is opened, its two ends, and what it says of
//! itself. Adding one is a file and a line in its scope's registry below.
#![deny(unsafe_code)]

mod buffer;
mod by_hand;
mod byte_stream;
mod channel;
mod credit;
mod ring_ends;
mod room;
mod runtime;

#[allow(unsafe_code)]
pub mod limit_ring;
pub mod network;
pub mod process;
#[cfg(feature = "wasm")]
pub mod sandbox;
pub mod task;
pub mod thread;

use estafette_measure::Registry;

/// Every mechanism of this crate.
pub fn registry() -> Registry {
    let registry = by_hand::enrol(thread::enrol(task::enrol(Registry::new())));
    let registry = network::enrol(process::enrol(registry));
    #[cfg(feature = "wasm")]
    let registry = sandbox::enrol(registry);
    registry
}
