//! `crossbeam-channel`, bounded: a ring of slots with sequence numbers (Vyukov), spinning for a while before it parks.

use std::future::{Future, ready};

use crossbeam_channel::{Receiver, Sender, bounded};
use estafette_measure::spec::{Joins, Wait};
use estafette_measure::{Payload, Spec};

use crate::channel::{Channel, Outcome, shared, spec};

/// `thread/crossbeam`.
pub(super) struct Crossbeam;

impl Channel for Crossbeam {
    const BLOCKS: bool = true;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/crossbeam", env!("LOCKED_CROSSBEAM_CHANNEL"), "crossbeam_channel::bounded, send and recv"))
            .joins(Joins::Overview)
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
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
