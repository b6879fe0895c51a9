//! `tokio::sync::mpsc` through the adapters to `Sink` and `Stream`.

use std::future::Future;

use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/tokio-mpsc-sink`.
pub(crate) struct TokioMpscSink;

impl Channel for TokioMpscSink {
    type Tx<P: Value> = PollSender<P>;
    type Rx<P: Value> = ReceiverStream<P>;

    fn spec() -> Spec {
        spec(
            "task/tokio-mpsc-sink",
            env!("LOCKED_TOKIO"),
            "tokio::sync::mpsc::channel behind PollSender and ReceiverStream",
        )
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
        .payloads(&[PayloadKind::U64, PayloadKind::Shared])
        .tier(Tier::Standard)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = mpsc::channel(capacity);
        (PollSender::new(tx), ReceiverStream::new(rx))
    }
}

impl TaskChannel for TokioMpscSink {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
