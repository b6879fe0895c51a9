//! `loole`, bounded: a deque with a lock.

use std::future::Future;

use estafette_measure::{Spec, Value};
use loole::{Receiver, Sender, bounded};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, shared, spec};

/// `task/loole`.
pub(crate) struct Loole;

impl Channel for Loole {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("task/loole", env!("LOCKED_LOOLE"), "loole::bounded, send_async and recv_async")).least_capacity(0)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for Loole {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send_async(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv_async()
    }
}
