//! `async-channel` with its receiver as a `Stream`; a `Sink` it does not have.

use std::future::Future;

use async_channel::{Receiver, Sender, bounded};
use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Joins;
use estafette_measure::{Payload, Spec};
use futures_util::StreamExt;
use std::pin::Pin;

use crate::channel::{Channel, Outcome, spec};

/// `task/async-channel-stream`.
pub(super) struct AsyncChannelStream;

impl Channel for AsyncChannelStream {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = Sender<P>;
    type Rx<P: Payload> = Pin<Box<Receiver<P>>>;

    fn spec() -> Spec {
        spec(
            "task/async-channel-stream",
            env!("LOCKED_ASYNC_CHANNEL"),
            "async_channel::bounded, send and StreamExt::next",
        )
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
        .payloads(&[PayloadKind::U64, PayloadKind::Shared])
        .joins(Joins::Standard)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = bounded(capacity);
        (tx, Box::pin(rx))
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
