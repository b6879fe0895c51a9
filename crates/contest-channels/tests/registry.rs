//! What the registry says about each channel.
//!
//! A unit test that uses the registry would make the compiler build every mechanism a second time.
#![cfg(feature = "channels")]

use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
use estafette_measure::{Registry, Spec};

/// Returns the probed capacity of a mechanism.
fn effective_capacity(name: &str, capacity: usize, producers: usize) -> Option<u64> {
    let registry = estafette_contest_channels::register(Registry::new());
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
    entry.mechanism().effective_capacity(&Case { mechanism: name.to_owned(), cell })
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
