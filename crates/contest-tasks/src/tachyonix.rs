//! `tachyonix`, bounded: a ring of slots with sequence numbers (Vyukov), an event for senders, and
//! a waker for the receiver.

use std::future::Future;

use estafette_measure::{Spec, Value};
use tachyonix::{Receiver, Sender, channel};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/tachyonix`.
pub(crate) struct Tachyonix;

impl Channel for Tachyonix {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/tachyonix", env!("LOCKED_TACHYONIX"), "tachyonix::channel, send and recv")
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity)
    }
}

impl TaskChannel for Tachyonix {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
