//! `tokio::sync::mpsc` through the adapters to `Sink` and `Stream`.

use std::future::Future;

use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Joins;
use estafette_measure::{Payload, Spec};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;

use crate::channel::{Channel, Outcome, spec};

/// `task/tokio-mpsc-sink`.
pub(super) struct TokioMpscSink;

impl Channel for TokioMpscSink {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = PollSender<P>;
    type Rx<P: Payload> = ReceiverStream<P>;

    fn spec() -> Spec {
        spec(
            "task/tokio-mpsc-sink",
            env!("LOCKED_TOKIO"),
            "tokio::sync::mpsc::channel behind PollSender and ReceiverStream",
        )
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
        .payloads(&[PayloadKind::U64, PayloadKind::Shared])
        .joins(Joins::Standard)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = mpsc::channel(capacity);
        (PollSender::new(tx), ReceiverStream::new(rx))
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
