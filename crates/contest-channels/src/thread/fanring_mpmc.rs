//! `fanring`, blocking, with several receivers, which steal from each other. It guarantees no
//! order.

use estafette_measure::case::Pattern;
use estafette_measure::spec::{Ordering, Tier, Wait};
use estafette_measure::{Spec, Value};
use fanring::mpmc::{Receiver, Sender, channel};

use estafette_contest_common::channel::{Channel, Outcome, ThreadChannel, check_ring_capacity, spec};

/// `thread/fanring-mpmc`.
pub(super) struct FanringMpmc;

impl Channel for FanringMpmc {
    type Tx<P: Value> = Lane<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec("thread/fanring-mpmc", env!("LOCKED_FANRING"), "fanring::mpmc, send and recv")
            .patterns(&[Pattern::Mpmc])
            .ordering(Ordering::Unordered)
            .tier(Tier::Suite)
            .waits(&[Wait::Adaptive])
    }

    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        check_ring_capacity(capacity, senders)
    }

    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = channel(capacity / senders);
        (Lane(tx), rx)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl ThreadChannel for FanringMpmc {
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
