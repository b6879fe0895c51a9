//! `futures_buffered::FuturesUnordered`: a future for the next message of each stream. When one is
//! ready, it is replaced by the future of the following message.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_buffered::FuturesUnordered;
use futures_util::StreamExt;

use crate::merge::{Merge, Source};

pub(crate) struct ByFuturesUnordered;

impl Merge for ByFuturesUnordered {
    const NAME: (&str, &str) = ("unordered", env!("LOCKED_FUTURES_BUFFERED"));
    const DESCRIPTION: &str = "futures_buffered::FuturesUnordered";
    type Merged<S: Source> = FuturesUnordered<Next<S>>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Merged<S> {
        streams.into_iter().map(|stream| Next(Some(stream))).collect()
    }

    async fn next<S: Source>(merged: &mut Self::Merged<S>) -> Option<S::Item> {
        loop {
            let (message, stream) = merged.next().await?;
            if message.is_some() {
                merged.push(Next(Some(stream)));
                return message;
            }
        }
    }
}

/// A future of a stream's next message. Returns the stream with it.
pub(crate) struct Next<S>(Option<S>);

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
