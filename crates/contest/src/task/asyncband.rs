//! `asyncband`, bounded.

use asyncband::mpsc::{BoundedReceiver, BoundedSender, bounded};
use estafette_measure::{Payload, Spec};

use crate::channel::{Channel, Gone, gone, spec};

/// `task/asyncband`.
pub(super) struct Asyncband;

impl Channel for Asyncband {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = BoundedSender<P>;
    type Rx<P: Payload> = BoundedReceiver<P>;

    fn spec() -> Spec {
        spec("task/asyncband", "0.7", "asyncband::mpsc::bounded, send and recv")
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn sender<P: Payload>(tx: &Self::Tx<P>) -> Self::Tx<P> {
        tx.clone()
    }

    async fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> Result<(), Gone> {
        tx.send(message).await.map_err(gone)
    }

    async fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> Result<P, Gone> {
        rx.recv().await.map_err(gone)
    }
}
