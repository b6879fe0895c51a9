//! `rapidfire`, bounded, with several receivers.

use std::future::Future;

use estafette_measure::case::Pattern;
use estafette_measure::spec::Joins;
use estafette_measure::{Payload, Spec};
use rapidfire::{Receiver, Sender, bounded};

use crate::channel::{Channel, Outcome, spec};

/// `task/rapidfire-mpmc`.
pub(super) struct RapidfireMpmc;

impl Channel for RapidfireMpmc {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/rapidfire-mpmc", env!("LOCKED_RAPIDFIRE"), "rapidfire::bounded, send and recv")
            .patterns(&[Pattern::Mpmc])
            .joins(Joins::Suite)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Payload>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
