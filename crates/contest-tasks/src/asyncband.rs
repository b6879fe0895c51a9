//! `asyncband`, bounded.

use std::future::Future;

use asyncband::mpsc::{BoundedReceiver, BoundedSender, bounded};
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/asyncband`.
pub(crate) struct Asyncband;

impl Channel for Asyncband {
    type Tx<P: Value> = BoundedSender<P>;
    type Rx<P: Value> = BoundedReceiver<P>;

    fn spec() -> Spec {
        spec("task/asyncband", env!("LOCKED_ASYNCBAND"), "asyncband::mpsc::bounded, send and recv")
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }
}

impl TaskChannel for Asyncband {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
