//! `futures-channel`, bounded: an unbounded queue, and a parked sender for each message over the
//! capacity.
//!
//! A sender may add one message beyond the capacity, but its `send` completes only when there is
//! free capacity for it.

use std::future::Future;

use estafette_measure::{Spec, Value};
use futures_channel::mpsc::{Receiver, Sender, channel};
use futures_util::{SinkExt, StreamExt};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/futures-channel`.
#[derive(Debug)]
pub struct FuturesChannel;

impl Channel for FuturesChannel {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Receiver<P>;

    fn spec() -> Spec {
        spec(
            "task/futures-channel",
            env!("LOCKED_FUTURES_CHANNEL"),
            "futures::channel::mpsc, SinkExt::send and StreamExt::next: its own API",
        )
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        channel(capacity)
    }
}

impl TaskChannel for FuturesChannel {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
