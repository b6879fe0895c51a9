//! `async-channel` with its receiver as a `Stream`. It has no `Sink`.

use std::future::Future;

use async_channel::{Receiver, Sender, bounded};
use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};
use futures_util::StreamExt;
use std::pin::Pin;

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/async-channel-stream`.
pub(crate) struct AsyncChannelStream;

impl Channel for AsyncChannelStream {
    type Tx<P: Value> = Sender<P>;
    type Rx<P: Value> = Pin<Box<Receiver<P>>>;

    fn spec() -> Spec {
        spec(
            "task/async-channel-stream",
            env!("LOCKED_ASYNC_CHANNEL"),
            "async_channel::bounded, send and StreamExt::next",
        )
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
        .payloads(&[PayloadKind::U64, PayloadKind::Shared])
        .tier(Tier::Standard)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = bounded(capacity);
        (tx, Box::pin(rx))
    }
}

impl TaskChannel for AsyncChannelStream {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
