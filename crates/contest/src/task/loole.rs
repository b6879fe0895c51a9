//! `loole`, bounded: a deque under a lock.

use std::future::Future;

use estafette_measure::{Payload, Spec};
use futures_util::TryFutureExt;
use loole::{Receiver, Sender, bounded};

use crate::channel::{Channel, Gone, gone, shared, spec};

/// `task/loole`.
pub(super) struct Loole;

impl Channel for Loole {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("task/loole", "0.4", "loole::bounded, send_async and recv_async")).least_capacity(0)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Payload>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = Result<(), Gone>> + Send {
        tx.send_async(message).map_err(gone)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = Result<P, Gone>> + Send {
        rx.recv_async().map_err(gone)
    }
}
