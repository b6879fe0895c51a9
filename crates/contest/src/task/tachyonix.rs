//! `tachyonix`, bounded: a ring of slots with sequence numbers (Vyukov), an event for senders, a waker for the receiver.

use estafette_measure::{Payload, Spec};
use tachyonix::{Receiver, Sender, channel};

use crate::channel::{Channel, Gone, gone, spec};

/// `task/tachyonix`.
pub(super) struct Tachyonix;

impl Channel for Tachyonix {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        spec("task/tachyonix", "0.3", "tachyonix::channel, send and recv")
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity)
    }

    fn sender<P: Payload>(tx: &Self::Tx<P>) -> Self::Tx<P> {
        tx.clone()
    }

    async fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> Result<(), Gone> {
        tx.send(message).await.map_err(gone)
    }

    async fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> Result<P, Gone> {
        rx.recv().await.map_err(gone)
    }
}
