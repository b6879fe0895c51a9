//! `crossfire`, bounded, with several receivers.

use std::future::Future;

use crossfire::mpmc::{Array, bounded_async};
use crossfire::{MAsyncRx, MAsyncTx, detect_backoff_cfg};
use estafette_measure::case::Pattern;
use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/crossfire-mpmc`.
pub(crate) struct CrossfireMpmc;

impl Channel for CrossfireMpmc {
    type Tx<P: Value> = MAsyncTx<Array<P>>;
    type Rx<P: Value> = MAsyncRx<Array<P>>;

    fn spec() -> Spec {
        spec("task/crossfire-mpmc", env!("LOCKED_CROSSFIRE"), "crossfire::mpmc::bounded_async, send and recv")
            .patterns(&[Pattern::Mpmc])
            .tier(Tier::Suite)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        // Its documentation recommends this call on virtual machines.
        detect_backoff_cfg();
        bounded_async(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for CrossfireMpmc {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
