//! `async-channel`, bounded: a lock-free ring of slots, and a list of listeners for waiting tasks.

use std::future::Future;

use async_channel::{Receiver, Sender, bounded};
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, shared, spec};

/// `task/async-channel`.
#[derive(Debug)]
pub struct AsyncChannel;

impl Channel for AsyncChannel {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("task/async-channel", env!("LOCKED_ASYNC_CHANNEL"), "async_channel::bounded, send and recv"))
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for AsyncChannel {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
