//! `flume`, bounded, blocking: a deque with a lock.

use std::future::{Future, ready};

use estafette_measure::{Spec, Value};
use flume::{Receiver, Sender, bounded};

use crate::channel::{Channel, Outcome, shared, spec};

/// `thread/flume`.
pub(super) struct Flume;

impl Channel for Flume {
    const BLOCKS: bool = true;
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/flume", env!("LOCKED_FLUME"), "flume::bounded, send and recv")).least_capacity(0)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }

    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        ready(tx.send(message))
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        ready(rx.recv())
    }
}
