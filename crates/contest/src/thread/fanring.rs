//! `fanring`, blocking: a ring for each sender, and a bitmap of those that have something.
//!
//! Its capacity is each sender's, rounded up to a power of two: the channel's is divided among them.

use std::future::{Future, ready};

use estafette_measure::spec::{Ordering, Wait};
use estafette_measure::{Payload, Spec};
use fanring::mpsc::{Receiver, Sender, channel};

use crate::channel::{Channel, Gone, gone, in_rings, spec};

/// `thread/fanring`.
pub(super) struct Fanring;

impl Channel for Fanring {
    const BLOCKS: bool = true;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Receiver<P>;

    fn spec() -> Spec {
        spec("thread/fanring", "0.3", "fanring::mpsc, send and recv")
            .ordering(Ordering::PerProducer)
            .waits(&[Wait::Adaptive])
    }

    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        in_rings(capacity, senders)
    }

    fn open<P: Payload>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity / senders)
    }

    fn sender<P: Payload>(tx: &Self::Tx<P>) -> Self::Tx<P> {
        tx.try_clone().expect("the receiver is there")
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = Result<(), Gone>> + Send {
        ready(tx.send(message).map_err(gone))
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = Result<P, Gone>> + Send {
        ready(rx.recv().map_err(gone))
    }
}
