//! `tokio_stream::StreamMap`: polls its streams one after another, from a random one on, until one has a message.

use std::future::Future;

use futures_util::StreamExt;
use tokio_stream::StreamMap;

use super::{Merge, Source};

pub(super) struct ByStreamMap;

impl Merge for ByStreamMap {
    const NAME: (&str, &str) = ("stream-map", env!("LOCKED_TOKIO_STREAM"));
    const WHOLE: &str = "tokio_stream::StreamMap";
    type Of<S: Source> = StreamMap<usize, S>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Of<S> {
        streams.into_iter().enumerate().collect()
    }

    fn next<S: Source>(merged: &mut Self::Of<S>) -> impl Future<Output = Option<S::Item>> + Send {
        let mut next = merged.next();
        async move { (&mut next).await.map(|(_, message)| message) }
    }
}
