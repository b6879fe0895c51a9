//! What a way to merge streams has to do.

use std::future::Future;

use futures_util::Stream;

/// A way to merge streams.
pub(crate) trait Merge: Send + Sync + 'static {
    /// Its name, and the version of its library.
    const NAME: (&'static str, &'static str);
    /// A description of it.
    const DESCRIPTION: &'static str;
    /// The merged stream.
    type Merged<S: Source>: Send + 'static;

    /// Merges streams.
    fn merge<S: Source>(streams: Vec<S>) -> Self::Merged<S>;

    /// Returns the next message of any stream; `None` when all have ended.
    fn next<S: Source>(merged: &mut Self::Merged<S>) -> impl Future<Output = Option<S::Item>> + Send;
}

/// A stream that can be merged.
pub(crate) trait Source: Stream<Item: Send> + Send + Unpin + 'static {}
impl<S: Stream<Item: Send> + Send + Unpin + 'static> Source for S {}
