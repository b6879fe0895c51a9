//! `tokio::sync::mpsc`, bounded: blocks of 32 slots in a list, a semaphore for the capacity.

use std::future::Future;

use estafette_measure::spec::{Cancel, Joins};
use estafette_measure::{Payload, Spec};
use tokio::sync::mpsc;

use crate::channel::{Channel, Outcome, spec};

/// `task/tokio-mpsc`.
pub(super) struct TokioMpsc;

impl Channel for TokioMpsc {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = mpsc::Sender<P>;
    type Rx<P: Payload> = mpsc::Receiver<P>;

    fn spec() -> Spec {
        spec("task/tokio-mpsc", env!("LOCKED_TOKIO"), "tokio::sync::mpsc::channel, send and recv")
            .joins(Joins::Overview)
            .cancel(Cancel::Safe)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        mpsc::channel(capacity)
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
