//! `asyncband`, bounded.

use std::future::Future;

use asyncband::mpsc::{BoundedReceiver, BoundedSender, bounded};
use estafette_measure::{Payload, Spec};

use crate::channel::{Channel, Outcome, spec};

/// `task/asyncband`.
pub(super) struct Asyncband;

impl Channel for Asyncband {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = BoundedSender<P>;
    type Rx<P: Payload> = BoundedReceiver<P>;

    fn spec() -> Spec {
        spec("task/asyncband", env!("LOCKED_ASYNCBAND"), "asyncband::mpsc::bounded, send and recv")
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
