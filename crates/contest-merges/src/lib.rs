//! Merging: one channel per producer, and one consumer that receives from all of them. The case's
//! capacity is divided among the channels.
//!
//! Each way to merge has its own file and is measured with every channel whose receiver is a
//! stream. A mechanism's name contains both, for example `task/select-all.flume`. To add a way to
//! merge, add a file and a line in [`register`].
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::pin::Pin;

use anyhow::Result;
use estafette_contest_common::channel::mechanism::SendEnd;
use estafette_contest_common::channel::{TaskChannel, executor, probe, spec};
use estafette_contest_tasks::{AsyncChannel, Flume, FuturesChannel, TokioMpsc};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::entry::{Entry, async_values};
use estafette_measure::executor::Executor;
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{
    AsyncMechanism, AsyncRx, AsyncTransport, Ends, Mechanism, Registry, Rendezvous, Spec, Value, Verifier,
};
use futures_util::Stream;
use tokio_stream::wrappers::ReceiverStream;

mod futures_concurrency;
mod futures_unordered;
mod merge;
mod select_all;
mod stream_map;

use self::merge::{Merge, Source};

/// Adds each way to merge for each channel.
pub fn register(registry: Registry) -> Registry {
    let registry = over_all::<stream_map::ByStreamMap>(registry);
    let registry = over_all::<select_all::BySelectAll>(registry);
    let registry = over_all::<futures_unordered::ByFuturesUnordered>(registry);
    over_all::<futures_concurrency::ByFuturesConcurrency>(registry)
}

fn over_all<M: Merge>(registry: Registry) -> Registry {
    registry
        .register(merged::<M, TokioMpsc>())
        .register(merged::<M, Flume>())
        .register(merged::<M, AsyncChannel>())
        .register(merged::<M, FuturesChannel>())
}

/// A channel whose receiver is a stream.
trait Streamed: TaskChannel {
    /// Its short name, as part of the names of mechanisms that merge it.
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
    async_values(MergedChannels::<M, C>(PhantomData))
}

struct MergedChannels<M, C>(PhantomData<(M, C)>);

impl<M: Merge, C: Streamed> Mechanism for MergedChannels<M, C> {
    fn spec(&self) -> Spec {
        let (name, version) = M::NAME;
        let channel = C::spec().implementation;
        spec(&format!("task/{name}.{}", C::SHORT), version, &format!("{} over {channel}", M::DESCRIPTION))
            .patterns(&[Pattern::Merge])
            .ordering(Ordering::PerProducer)
            // A quick run compares the ways to merge with one channel only.
            .tier(if C::SHORT == "tokio" { Tier::Suite } else { Tier::Standard })
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        if case.capacity >= case.producers && case.capacity.is_multiple_of(case.producers) {
            return Ok(());
        }
        Err(format!("a capacity of {} cannot be divided among {} channels", case.capacity, case.producers))
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        // Only the channels are probed. The merged stream takes messages from them only when it is
        // polled.
        let each = probe::of_tasks::<C>(case.capacity / case.producers, 1)?;
        Some(each * case.producers as u64)
    }
}

impl<M: Merge, C: Streamed> AsyncMechanism for MergedChannels<M, C> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        executor(case)
    }
}

impl<M: Merge, C: Streamed, P: Value> AsyncTransport<P> for MergedChannels<M, C> {
    type Tx = SendEnd<C, P>;
    type Rx = RecvEnd<M, C, P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let capacity = case.capacity / case.producers;
        let (txs, streams): (Vec<_>, Vec<_>) = (0..case.producers)
            .map(|_| {
                let (tx, rx) = C::open::<P>(capacity, 1);
                (SendEnd::<C, P>(tx), C::stream(rx))
            })
            .unzip();
        Ok(Ends::many(txs, [RecvEnd(M::merge(streams))]))
    }
}

struct RecvEnd<M: Merge, C: Streamed, P: Value>(M::Merged<C::Stream<P>>);

impl<M: Merge, C: Streamed, P: Value> AsyncRx for RecvEnd<M, C, P> {
    // There is one merged stream, and no stream of replies.
    const ROUND_TRIPS: bool = false;

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
