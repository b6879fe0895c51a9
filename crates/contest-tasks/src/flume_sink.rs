//! `flume` through its adapters to `Sink` and `Stream`.

use std::future::Future;

use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::Tier;
use estafette_measure::{Spec, Value};
use flume::r#async::{RecvStream, SendSink};
use flume::bounded;
use futures_util::{SinkExt, StreamExt};

use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/flume-sink`.
pub(crate) struct FlumeSink;

impl Channel for FlumeSink {
    type Tx<P: Value> = SendSink<'static, P>;
    type Rx<P: Value> = RecvStream<'static, P>;

    fn spec() -> Spec {
        spec("task/flume-sink", env!("LOCKED_FLUME"), "flume::bounded behind SendSink and RecvStream")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Shared])
            .tier(Tier::Standard)
    }

    fn open<P: Value>(capacity: usize, _: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let (tx, rx) = bounded(capacity);
        (tx.into_sink(), rx.into_stream())
    }
}

impl TaskChannel for FlumeSink {
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send {
        tx.send(message)
    }

    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send {
        rx.next()
    }
}
