//! Mechanisms inside one process: channels between tasks and between threads, and serialization
//! codecs.
//!
//! The channels between tasks are in crates of their own: `estafette-contest-tasks`, and
//! `estafette-contest-merges` for several channels with one receiver. [`register`] adds them, too.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in its scope's registry, the function `register`
//! of `thread` or `codec`.
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(all(doctest, feature = "channels"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "channels")]
mod by_hand;
#[cfg(feature = "codecs")]
mod codec;
#[cfg(feature = "channels")]
pub mod thread;

#[cfg(feature = "channels")]
pub use estafette_contest_tasks as task;
use estafette_measure::Registry;

/// Adds the mechanisms of the scopes `task` and `thread`.
pub fn register(registry: Registry) -> Registry {
    #[cfg(feature = "channels")]
    let registry = estafette_contest_merges::register(task::register(registry));
    #[cfg(feature = "channels")]
    let registry = by_hand::register(thread::register(registry));
    #[cfg(feature = "codecs")]
    let registry = codec::register(registry);
    registry
}
