//! Mechanisms inside one process: channels between tasks and between threads, and serialization
//! codecs.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in its scope's registry, the function `enrol`
//! of `task`, `thread` or `codec`.
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(all(doctest, feature = "channels"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "channels")]
mod by_hand;
#[cfg(feature = "channels")]
mod channel;
#[cfg(feature = "channels")]
mod channel_capacity;
#[cfg(feature = "channels")]
mod channel_mechanism;
#[cfg(feature = "codecs")]
mod codec;
#[cfg(feature = "channels")]
mod credit;
#[cfg(feature = "channels")]
mod runtime;
#[cfg(feature = "channels")]
pub mod task;
#[cfg(feature = "channels")]
pub mod thread;

use estafette_measure::Registry;

/// Adds the mechanisms of the scopes `task` and `thread`.
pub fn enrol(registry: Registry) -> Registry {
    #[cfg(feature = "channels")]
    let registry = by_hand::enrol(thread::enrol(task::enrol(registry)));
    #[cfg(feature = "codecs")]
    let registry = codec::enrol(registry);
    registry
}
