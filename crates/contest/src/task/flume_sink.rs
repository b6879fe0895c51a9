//! `flume` through its adapters to `Sink` and `Stream`.

use std::future::Future;

use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Joins;
use estafette_measure::{Payload, Spec};
use flume::r#async::{RecvStream, SendSink};
use flume::bounded;
use futures_util::{FutureExt, SinkExt, StreamExt, TryFutureExt};

use crate::channel::{Channel, Gone, gone, spec};

/// `task/flume-sink`.
pub(super) struct FlumeSink;

impl Channel for FlumeSink {
    const BLOCKS: bool = false;
    type Tx<P: Payload> = SendSink<'static, P>;
    type Rx<P: Payload> = RecvStream<'static, P>;

    fn spec() -> Spec {
        spec("task/flume-sink", "0.12", "flume::bounded behind SendSink and RecvStream")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Shared])
            .joins(Joins::Standard)
    }

    fn open<P: Payload>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = bounded(capacity);
        (tx.into_sink(), rx.into_stream())
    }

    fn send<P: Payload>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = Result<(), Gone>> + Send {
        tx.send(message).map_err(gone)
    }

    fn receive<P: Payload>(rx: &mut Self::Rx<P>) -> impl Future<Output = Result<P, Gone>> + Send {
        rx.next().map(|message| message.ok_or(Gone))
    }
}
