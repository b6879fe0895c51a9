//! `kanal`, bounded: a deque with a spin lock. If the other side waits, a message is moved directly
//! from stack to stack.

use std::future::Future;

use estafette_measure::spec::{Cancel, Tier};
use estafette_measure::{Spec, Value};
use kanal::{AsyncReceiver, AsyncSender, bounded_async};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, shared, spec};

/// `task/kanal`.
pub(crate) struct Kanal;

impl Channel for Kanal {
    type Tx<P: Value> = AsyncSender<P>;
    type Rx<P: Value> = AsyncReceiver<P>;

    fn spec() -> Spec {
        shared(spec("task/kanal", env!("LOCKED_KANAL"), "kanal::bounded_async, send and recv"))
            .least_capacity(0)
            .cancel(Cancel::Unsafe)
            .tier(Tier::Overview)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        bounded_async(capacity)
    }

    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        Some(rx.clone())
    }
}

impl TaskChannel for Kanal {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.recv()
    }
}
