//! `kanal`, bounded, blocking: a deque with a spin lock. If the other side waits, a message is
//! moved directly from stack to stack.

use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Spec, Value};
use kanal::{Receiver, Sender, bounded};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, shared, spec};

/// `thread/kanal`.
pub(super) struct Kanal;

impl Channel for Kanal {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        shared(spec("thread/kanal", env!("LOCKED_KANAL"), "kanal::bounded, send and recv"))
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
            .tier(Tier::Overview)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl ThreadChannel for Kanal {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}
