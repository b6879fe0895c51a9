//! `crossfire`, bounded: a lock-free ring of slots, one waker for the receiver and a registry for
//! the senders.

use std::future::Future;

use crossfire::mpsc::{Array, bounded_async};
use crossfire::{AsyncRx, MAsyncTx, detect_backoff_cfg};
use estafette_measure::spec::{Cancel, Tier};
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/crossfire`.
pub(crate) struct Crossfire;

impl Channel for Crossfire {
    type Tx<P: Value> = MAsyncTx<Array<P>>;
    type Rx<P: Value> = AsyncRx<Array<P>>;

    fn spec() -> Spec {
        spec("task/crossfire", env!("LOCKED_CROSSFIRE"), "crossfire::mpsc::bounded_async, send and recv")
            .tier(Tier::Overview)
            .cancel(Cancel::Safe)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        // Its documentation recommends this call on virtual machines.
        detect_backoff_cfg();
        bounded_async(capacity)
    }
}

impl TaskChannel for Crossfire {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
