//! `rapidfire`, bounded, with several receivers.

use std::future::Future;

use estafette_measure::case::Pattern;
use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};
use rapidfire::{Receiver, Sender, bounded};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/rapidfire-mpmc`.
pub(crate) struct RapidfireMpmc;

impl Channel for RapidfireMpmc {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/rapidfire-mpmc", env!("LOCKED_RAPIDFIRE"), "rapidfire::bounded, send and recv")
            .patterns(&[Pattern::Mpmc])
            .tier(Tier::Suite)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for RapidfireMpmc {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
