//! `crossbeam-channel`, bounded: a ring of slots with sequence numbers (Vyukov). Spins for a while
//! before it parks.

use crossbeam_channel::{Receiver, Sender, bounded};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, shared, spec};

/// `thread/crossbeam`.
pub(super) struct Crossbeam;

impl Channel for Crossbeam {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/crossbeam", env!("LOCKED_CROSSBEAM_CHANNEL"), "crossbeam_channel::bounded, send and recv"))
            .tier(Tier::Overview)
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl ThreadChannel for Crossbeam {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}
