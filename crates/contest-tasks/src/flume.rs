//! `flume`, bounded: a deque with a lock, and a queue of waiting tasks.

use std::future::Future;

use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};
use flume::{Receiver, Sender, bounded};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, shared, spec};

/// `task/flume`.
#[derive(Debug)]
pub struct Flume;

impl Channel for Flume {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("task/flume", env!("LOCKED_FLUME"), "flume::bounded, send_async and recv_async"))
            .tier(Tier::Overview)
            .least_capacity(0)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for Flume {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send_async(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv_async()
    }
}
