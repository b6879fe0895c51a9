//! Sources and sinks, by pipelines that have no function: what they do with the world outside, also
//! where that is slow, hostile or gone for a while.

mod http;
mod metrics;
mod pipeline;
mod websocket;
