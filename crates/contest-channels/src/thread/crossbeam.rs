//! `crossbeam-channel`, bounded: a ring of slots with sequence numbers (Vyukov). Spins for a while
//! before it parks.

use std::future::{Future, ready};

use crossbeam_channel::{Receiver, Sender, bounded};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Spec, Value};

use crate::channel::{Channel, Outcome, shared, spec};

/// `thread/crossbeam`.
pub(super) struct Crossbeam;

impl Channel for Crossbeam {
    const BLOCKS: bool = true;
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/crossbeam", env!("LOCKED_CROSSBEAM_CHANNEL"), "crossbeam_channel::bounded, send and recv"))
            .tier(Tier::Overview)
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }

    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        ready(tx.send(message))
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        ready(rx.recv())
    }
}
