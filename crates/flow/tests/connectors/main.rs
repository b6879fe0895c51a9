//! Sources and sinks, in pipelines without functions, with peers that are slow, hostile or
//! temporarily gone.

mod http;
mod metrics;
mod pipeline;
mod websocket;
#[cfg(not(feature = "nats"))]
mod without_nats;
