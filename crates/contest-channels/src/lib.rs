//! Mechanisms inside one process: channels between tasks and between threads, and serialization
//! codecs.
//!
//! The channels between tasks are in crates of their own: `estafette-contest-tasks`, and
//! `estafette-contest-merges` for several channels with one receiver. [`enrol`] adds them, too.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in its scope's registry, the function `enrol`
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
pub fn enrol(registry: Registry) -> Registry {
    #[cfg(feature = "channels")]
    let registry = estafette_contest_merges::enrol(task::enrol(registry));
    #[cfg(feature = "channels")]
    let registry = by_hand::enrol(thread::enrol(registry));
    #[cfg(feature = "codecs")]
    let registry = codec::enrol(registry);
    registry
}

#[cfg(all(test, feature = "channels"))]
mod tests {
    use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
    use estafette_measure::{Registry, Spec};

    /// Returns the probed capacity of a mechanism.
    fn effective_capacity(name: &str, capacity: usize, producers: usize) -> Option<u64> {
        let registry = crate::enrol(Registry::new());
        let entry = registry.get(name).unwrap();
        let &Spec { scope, ref runtimes, ref waits, .. } = entry.spec();
        let cell = Cell {
            scope,
            pattern: Pattern::FanIn,
            payload: Payload::U64,
            producers,
            capacity,
            runtime: runtimes[0],
            wait: waits[0],
            place: Place::Free,
            load: Load::Saturated,
        };
        entry.effective_capacity(&Case { mechanism: name.to_owned(), cell })
    }

    #[test]
    fn blocking_channels_are_probed_by_threads() {
        assert_eq!(effective_capacity("thread/std-mpsc", 100, 2), Some(100));
        assert_eq!(effective_capacity("thread/crossbeam", 0, 2), Some(0));
    }

    #[test]
    fn effective_capacity_is_the_requested_one() {
        assert_eq!(effective_capacity("task/tokio-mpsc", 1024, 8), Some(1024));
        assert_eq!(effective_capacity("task/tokio-mpsc-unbounded", 1024, 8), Some(1024), "by credit");
        assert_eq!(effective_capacity("task/futures-channel", 1024, 8), Some(1024));
        assert_eq!(effective_capacity("task/flume", 0, 2), Some(0), "a rendezvous");
        assert_eq!(effective_capacity("task/kanal", 1, 2), Some(1));
        assert_eq!(effective_capacity("task/stream-map.tokio", 1024, 8), Some(1024), "divided among eight");
        assert_eq!(effective_capacity("task/tokio-mpsc", 1 << 20, 1), None, "too many to try");
    }
}
