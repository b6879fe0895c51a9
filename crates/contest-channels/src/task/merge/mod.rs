//! Merging: a channel for each producer, and one consumer that takes from all of them. The case's capacity is divided among
//! the channels.
//!
//! Every way to merge, a file each, is tried over every channel whose receiver is a stream; a mechanism is named by the
//! two, `task/select-all.flume`.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::pin::Pin;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::entry::{Entry, values};
use estafette_measure::executor::Executor;
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Mechanism, Registry, Rendezvous, Rx, Spec, Transport, Value, Verifier};
use futures_util::Stream;
use tokio_stream::wrappers::ReceiverStream;

use super::async_channel::AsyncChannel;
use super::flume::Flume;
use super::futures_channel::FuturesChannel;
use super::tokio_mpsc::TokioMpsc;
use crate::channel::{Channel, Sending, spec};
use crate::channel_capacity;

mod futures_concurrency;
mod futures_unordered;
mod select_all;
mod stream_map;

/// Adds every way to merge over every channel.
pub(super) fn enrol(registry: Registry) -> Registry {
    let registry = over_all::<stream_map::ByStreamMap>(registry);
    let registry = over_all::<select_all::BySelectAll>(registry);
    let registry = over_all::<futures_unordered::ByFuturesUnordered>(registry);
    over_all::<futures_concurrency::ByFuturesConcurrency>(registry)
}

fn over_all<M: Merge>(registry: Registry) -> Registry {
    registry
        .enrol(merged::<M, TokioMpsc>())
        .enrol(merged::<M, Flume>())
        .enrol(merged::<M, AsyncChannel>())
        .enrol(merged::<M, FuturesChannel>())
}

/// A way to merge.
trait Merge: Send + Sync + 'static {
    /// Its name, and the version of the library it is from.
    const NAME: (&'static str, &'static str);
    /// What it is.
    const WHOLE: &'static str;
    /// Several streams as one.
    type Of<S: Source>: Send + 'static;

    /// Merges them.
    fn merge<S: Source>(streams: Vec<S>) -> Self::Of<S>;

    /// The next message of any of them; none where all have ended.
    fn next<S: Source>(merged: &mut Self::Of<S>) -> impl Future<Output = Option<S::Item>> + Send;
}

/// A stream that can be merged.
trait Source: Stream<Item: Send> + Send + Unpin + 'static {}
impl<S: Stream<Item: Send> + Send + Unpin + 'static> Source for S {}

/// A channel whose receiver is a stream.
trait Streamed: Channel {
    /// Its name in those of mechanisms that merge it.
    const SHORT: &'static str;
    type Stream<P: Value>: Source + Stream<Item = P>;
    fn stream<P: Value>(rx: Self::Rx<P>) -> Self::Stream<P>;
}

impl Streamed for TokioMpsc {
    const SHORT: &str = "tokio";
    type Stream<P: Value> = ReceiverStream<P>;
    fn stream<P: Value>(rx: Self::Rx<P>) -> Self::Stream<P> {
        ReceiverStream::new(rx)
    }
}

impl Streamed for Flume {
    const SHORT: &str = "flume";
    type Stream<P: Value> = ::flume::r#async::RecvStream<'static, P>;
    fn stream<P: Value>(rx: Self::Rx<P>) -> Self::Stream<P> {
        rx.into_stream()
    }
}

impl Streamed for AsyncChannel {
    const SHORT: &str = "async";
    type Stream<P: Value> = Pin<Box<::async_channel::Receiver<P>>>;
    fn stream<P: Value>(rx: Self::Rx<P>) -> Self::Stream<P> {
        Box::pin(rx)
    }
}

impl Streamed for FuturesChannel {
    const SHORT: &str = "futures";
    type Stream<P: Value> = Self::Rx<P>;
    fn stream<P: Value>(rx: Self::Rx<P>) -> Self::Stream<P> {
        rx
    }
}

fn merged<M: Merge, C: Streamed>() -> impl Entry {
    values(Merged::<M, C>(PhantomData))
}

struct Merged<M, C>(PhantomData<(M, C)>);

impl<M: Merge, C: Streamed> Mechanism for Merged<M, C> {
    const BLOCKS: bool = false;

    fn spec(&self) -> Spec {
        let (name, version) = M::NAME;
        let channel = C::spec().implementation;
        spec(&format!("task/{name}.{}", C::SHORT), version, &format!("{} over {channel}", M::WHOLE))
            .patterns(&[Pattern::Merge])
            .ordering(Ordering::PerProducer)
            // A quick look is at the ways to merge, over one channel.
            .tier(if C::SHORT == "tokio" { Tier::Suite } else { Tier::Standard })
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        if case.capacity >= case.producers && case.capacity.is_multiple_of(case.producers) {
            return Ok(());
        }
        Err(format!("a capacity of {} cannot be divided among {} channels", case.capacity, case.producers))
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        // The channels are tried, not what merges them, which takes from them only as it is asked.
        let each = channel_capacity::tried::<C>(case.capacity / case.producers, 1)?;
        Some(each * case.producers as u64)
    }

    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        crate::runtime::executor(case)
    }
}

impl<M: Merge, C: Streamed, P: Value> Transport<P> for Merged<M, C> {
    type Tx = Sending<C, P>;
    type Rx = Receiving<M, C, P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let capacity = case.capacity / case.producers;
        let (txs, streams): (Vec<_>, Vec<_>) = (0..case.producers)
            .map(|_| {
                let (tx, rx) = C::open::<P>(capacity, 1);
                (Sending::<C, P>(tx), C::stream(rx))
            })
            .unzip();
        Ok(Ends::many(txs, [Receiving(M::merge(streams))]))
    }
}

struct Receiving<M: Merge, C: Streamed, P: Value>(M::Of<C::Stream<P>>);

impl<M: Merge, C: Streamed, P: Value> Rx for Receiving<M, C, P> {
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        self.recv_all(verifier, 1)
    }

    #[inline(always)]
    async fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        for _ in 0..count {
            M::next(&mut self.0).await.ok_or(ErrorKind::UnexpectedEof)?.check(verifier);
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }
}
