//! `tachyonix`, bounded: a ring of slots with sequence numbers (Vyukov), an event for senders, a waker for the receiver.

use std::future::Future;

use estafette_measure::{Payload, Spec};
use tachyonix::{Receiver, Sender, channel};

use crate::channel::{Channel, Outcome, spec};

/// `task/tachyonix`.
pub(super) struct Tachyonix;

impl Channel for Tachyonix {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/tachyonix", env!("LOCKED_TACHYONIX"), "tachyonix::channel, send and recv")
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity)
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
