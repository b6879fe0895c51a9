//! `rapidfire`, bounded, one receiver: a list of recycled 63-slot blocks.

use std::future::Future;

use estafette_measure::spec::{Cancel, Tier};
use estafette_measure::{Spec, Value};
use rapidfire::Sender;
use rapidfire::mpsc::{Receiver, bounded};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/rapidfire`.
pub(crate) struct Rapidfire;

impl Channel for Rapidfire {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/rapidfire", env!("LOCKED_RAPIDFIRE"), "rapidfire::mpsc::bounded, send and recv")
            .cancel(Cancel::Safe)
            .tier(Tier::Overview)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }
}

impl TaskChannel for Rapidfire {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
