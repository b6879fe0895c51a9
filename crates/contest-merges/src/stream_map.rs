//! `tokio_stream::StreamMap`: polls its streams one after another, starting with a random one,
//! until one has a message.

use std::future::Future;

use futures_util::StreamExt;
use tokio_stream::StreamMap;

use crate::merge::{Merge, Source};

pub(crate) struct ByStreamMap;

impl Merge for ByStreamMap {
    const NAME: (&str, &str) = ("stream-map", env!("LOCKED_TOKIO_STREAM"));
    const DESCRIPTION: &str = "tokio_stream::StreamMap";
    type Merged<S: Source> = StreamMap<usize, S>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Merged<S> {
        streams.into_iter().enumerate().collect()
    }

    fn next<S: Source>(merged: &mut Self::Merged<S>) -> impl Future<Output = Option<S::Item>> + Send {
        let mut next = merged.next();
        async move { (&mut next).await.map(|(_, message)| message) }
    }
}
