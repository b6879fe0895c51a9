//! `flume`, bounded, blocking: a deque under a lock.

use std::future::{Future, ready};

use estafette_measure::{Payload, Spec};
use flume::{Receiver, Sender, bounded};

use crate::channel::{Channel, Outcome, shared, spec};

/// `thread/flume`.
pub(super) struct Flume;

impl Channel for Flume {
    const BLOCKS: bool = true;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/flume", env!("LOCKED_FLUME"), "flume::bounded, send and recv")).least_capacity(0)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Payload>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        ready(tx.send(message))
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        ready(rx.recv())
    }
}
