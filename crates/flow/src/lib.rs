//! Pipelines of WASM functions that are connected by topics.
//!
//! A YAML file lists functions, sources, sinks and the topics between them. [`config`] reads and
//! checks the file. A [`Supervisor`] runs the pipeline: each function in its own process, connected
//! by rings in shared memory.
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod admin;
pub mod config;
mod connector;
mod control;
#[allow(unsafe_code)]
mod counters;
mod engine;
pub mod external;
mod function;
pub mod host;
mod http;
mod metrics;
pub mod status;
mod supervisor;

pub use self::connector::missing_on_server;
pub use self::engine::check::Inspector;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use self::function::guest_calls;
pub use self::metrics::MetricsServer;
pub use self::supervisor::{Ended, Options, Remote, Summary, Supervisor};
