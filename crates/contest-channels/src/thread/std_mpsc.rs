//! `std::sync::mpsc`, bounded: a ring of slots with sequence numbers, spinning for a while before it parks.

use std::future::{Future, ready};

use estafette_measure::spec::Wait;
use estafette_measure::{Payload, Spec};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::channel::{Channel, Outcome, spec};

/// `thread/std-mpsc`.
pub(super) struct StdMpsc;

impl Channel for StdMpsc {
    const BLOCKS: bool = true;
    type Tx<P: Payload> = SyncSender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        spec("thread/std-mpsc", "std", "std::sync::mpsc::sync_channel, send and recv")
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        sync_channel(capacity)
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        ready(tx.send(message))
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        ready(rx.recv())
    }
}
