//! `tokio::sync::mpsc`, bounded: a list of blocks of 32 slots, and a semaphore for the capacity.

use std::future::Future;

use estafette_measure::spec::{Cancel, Tier};
use estafette_measure::{Spec, Value};
use tokio::sync::mpsc;

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/tokio-mpsc`.
#[derive(Debug)]
pub struct TokioMpsc;

impl Channel for TokioMpsc {
    type Tx<P: Value> = mpsc::Sender<P>;
    type Rx<P: Value> = mpsc::Receiver<P>;

    fn spec() -> Spec {
        spec("task/tokio-mpsc", env!("LOCKED_TOKIO"), "tokio::sync::mpsc::channel, send and recv")
            .tier(Tier::Overview)
            .cancel(Cancel::Safe)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        mpsc::channel(capacity)
    }
}

impl TaskChannel for TokioMpsc {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
