//! `futures::stream::SelectAll`: polls only the streams that have been woken.

use std::future::Future;

use futures_util::StreamExt;
use futures_util::stream::{SelectAll, select_all};

use crate::merge::{Merge, Source};

pub(crate) struct BySelectAll;

impl Merge for BySelectAll {
    const NAME: (&str, &str) = ("select-all", env!("LOCKED_FUTURES_UTIL"));
    const DESCRIPTION: &str = "futures::stream::SelectAll";
    type Merged<S: Source> = SelectAll<S>;

    fn merge<S: Source>(streams: Vec<S>) -> Self::Merged<S> {
        select_all(streams)
    }

    fn next<S: Source>(merged: &mut Self::Merged<S>) -> impl Future<Output = Option<S::Item>> + Send {
        merged.next()
    }
}
