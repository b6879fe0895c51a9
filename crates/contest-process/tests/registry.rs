//! What the registry says about each mechanism.
//!
//! A unit test that uses the registry would make the compiler build every mechanism a second time.

use std::convert::identity;

use estafette_contest_process::register;
use estafette_measure::Registry;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
use estafette_measure::spec::{Runtime, Scope, Wait};

#[test]
fn the_effective_capacity_is_probed() {
    let cell = |pattern| Cell {
        scope: Scope::Process,
        pattern,
        payload: Payload::Bytes(4096),
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::Free,
        load: Load::Saturated,
    };
    let registry = register(Registry::new(), identity);
    let capacity = |name: &str| {
        let case = Case { mechanism: name.to_owned(), cell: cell(Pattern::Stream) };
        registry.get(name).unwrap().mechanism().effective_capacity(&case)
    };
    assert_eq!(capacity("process/pipe"), Some(16), "64 KiB, as pipe(7) says");
    assert_eq!(capacity("process/shm-mutex"), Some(1024));
    assert!(capacity("process/unix-stream").is_some_and(|capacity| capacity > 0));
    assert_eq!(capacity("process/reference-ring"), None);
    assert!(capacity("process/unix-dgram").is_some_and(|capacity| capacity > 0));
}

#[test]
fn each_mechanism_says_how_often_the_kernel_copies_a_message() {
    let registry = register(Registry::new(), identity);
    for entry in registry.iter() {
        let spec = entry.spec();
        assert!(spec.scope != Scope::Process || spec.kernel_copies.is_some(), "{}", spec.name);
    }
}
