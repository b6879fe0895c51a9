//! `futures_concurrency`'s `Merge` of a vector of streams.

use std::future::Future;
use std::pin::Pin;

use futures_concurrency::stream::Merge as _;
use futures_util::StreamExt;

use crate::merge::{Merge, Source};

pub(crate) struct ByFuturesConcurrency;

impl Merge for ByFuturesConcurrency {
    const NAME: (&str, &str) = ("concurrency", env!("LOCKED_FUTURES_CONCURRENCY"));
    const DESCRIPTION: &str = "futures_concurrency::stream::Merge";
    type Merged<S: Source> = Pin<Box<futures_concurrency::vec::Merge<S>>>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Merged<S> {
        Box::pin(streams.merge())
    }

    fn next<S: Source>(merged: &mut Self::Merged<S>) -> impl Future<Output = Option<S::Item>> + Send {
        merged.next()
    }
}
