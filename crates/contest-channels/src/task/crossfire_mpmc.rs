//! `crossfire`, bounded, with several receivers.

use std::future::Future;

use crossfire::mpmc::{Array, bounded_async};
use crossfire::{MAsyncRx, MAsyncTx, detect_backoff_cfg};
use estafette_measure::case::Pattern;
use estafette_measure::spec::Joins;
use estafette_measure::{Payload, Spec};

use crate::channel::{Channel, Outcome, spec};

/// `task/crossfire-mpmc`.
pub(super) struct CrossfireMpmc;

impl Channel for CrossfireMpmc {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = MAsyncTx<Array<P>>;
    type Rx<P: Payload> = MAsyncRx<Array<P>>;

    fn spec() -> Spec {
        spec("task/crossfire-mpmc", env!("LOCKED_CROSSFIRE"), "crossfire::mpmc::bounded_async, send and recv")
            .patterns(&[Pattern::Mpmc])
            .joins(Joins::Suite)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        // As its documentation asks for on virtual machines.
        detect_backoff_cfg();
        bounded_async(capacity)
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
