//! `fanring`, blocking: a ring for each sender, and a bitmap of the rings that are not empty.
//!
//! The library's capacity applies to each sender and is rounded up to a power of two. So the case's
//! capacity is divided among the senders.

use estafette_measure::spec::{Ordering, Tier, Wait};
use estafette_measure::{Spec, Value};
use fanring::mpsc::{Receiver, Sender, channel};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, check_ring_capacity, spec};

/// `thread/fanring`.
pub(super) struct Fanring;

impl Channel for Fanring {
    type Tx<P: Value> = Lane<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("thread/fanring", env!("LOCKED_FANRING"), "fanring::mpsc, send and recv")
            .ordering(Ordering::PerProducer)
            .waits(&[Wait::Adaptive])
            .tier(Tier::Overview)
    }

    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        check_ring_capacity(capacity, senders)
    }

    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = channel(capacity / senders);
        (Lane(tx), rx)
    }
}

impl ThreadChannel for Fanring {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        tx.0.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P> {
        rx.recv()
    }
}

/// A sender with its own ring.
pub(super) struct Lane<P>(Sender<P>);

impl<P> Clone for Lane<P> {
    fn clone(&self) -> Lane<P> {
        Lane(self.0.try_clone().expect("the receiver is there as long as a case is being opened"))
    }
}
