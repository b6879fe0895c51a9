//! `crossfire`, bounded, blocking: a lock-free ring of slots. Spins for a while before it parks.

use crossfire::mpsc::{Array, bounded_blocking};
use crossfire::{MTx, Rx, detect_backoff_cfg};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, spec};

/// `thread/crossfire`.
pub(super) struct Crossfire;

impl Channel for Crossfire {
    type Tx<P: Value> = MTx<Array<P>>;
    type Rx<P: Value> = Rx<Array<P>>;

    fn spec() -> Spec {
        spec("thread/crossfire", env!("LOCKED_CROSSFIRE"), "crossfire::mpsc::bounded_blocking, send and recv")
            .waits(&[Wait::Adaptive])
            .tier(Tier::Overview)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        // Its documentation recommends this call on virtual machines.
        detect_backoff_cfg();
        bounded_blocking(capacity)
    }
}

impl ThreadChannel for Crossfire {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}
