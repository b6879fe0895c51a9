//! `std::sync::mpsc`, bounded: a ring of slots with sequence numbers. Spins for a while before it
//! parks.

use estafette_measure::spec::Wait;
use estafette_measure::{Spec, Value};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, spec};

/// `thread/std-mpsc`.
pub(super) struct StdMpsc;

impl Channel for StdMpsc {
    type Tx<P: Value> = SyncSender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("thread/std-mpsc", "std", "std::sync::mpsc::sync_channel, send and recv")
            .least_capacity(0)
            .waits(&[Wait::Adaptive])
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        sync_channel(capacity)
    }
}

impl ThreadChannel for StdMpsc {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}
