//! `futures_buffered::FuturesUnordered`: the next message of each stream is a future; one that is ready is replaced by the
//! one after it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_buffered::FuturesUnordered;
use futures_util::StreamExt;

use super::{Merge, Source};

pub(super) struct ByFuturesUnordered;

impl Merge for ByFuturesUnordered {
    const NAME: (&str, &str) = ("unordered", env!("LOCKED_FUTURES_BUFFERED"));
    const WHOLE: &str = "futures_buffered::FuturesUnordered";
    type Of<S: Source> = FuturesUnordered<Next<S>>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Of<S> {
        streams.into_iter().map(|stream| Next(Some(stream))).collect()
    }

    async fn next<S: Source>(merged: &mut Self::Of<S>) -> Option<S::Item> {
        loop {
            let (message, stream) = merged.next().await?;
            if message.is_some() {
                merged.push(Next(Some(stream)));
                return message;
            }
        }
    }
}

/// A stream's next message, and the stream.
pub(super) struct Next<S>(Option<S>);

impl<S: Source> Future for Next<S> {
    type Output = (Option<S::Item>, S);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(stream) = &mut self.0 else { return Poll::Pending };
        let Poll::Ready(message) = stream.poll_next_unpin(context) else { return Poll::Pending };
        match self.0.take() {
            Some(stream) => Poll::Ready((message, stream)),
            None => Poll::Pending,
        }
    }
}
