//! `thingbuf`, bounded: a ring of slots whose values are reused.

use std::future::Future;

use estafette_measure::{Spec, Value};
use thingbuf::mpsc::{Receiver, Sender, channel};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/thingbuf`.
pub(crate) struct Thingbuf;

impl Channel for Thingbuf {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/thingbuf", env!("LOCKED_THINGBUF"), "thingbuf::mpsc, send and recv")
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity)
    }
}

impl TaskChannel for Thingbuf {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
