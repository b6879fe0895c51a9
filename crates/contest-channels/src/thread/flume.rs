//! `flume`, bounded, blocking: a deque with a lock.

use estafette_measure::{Spec, Value};
use flume::{Receiver, Sender, bounded};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, shared, spec};

/// `thread/flume`.
pub(super) struct Flume;

impl Channel for Flume {
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
}

impl ThreadChannel for Flume {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}
