//! Pipelines of WASM functions joined by topics, on shared-memory rings between processes.

pub mod config;
mod connector;
mod control;
mod counters;
mod engine;
mod function;
pub mod host;
mod supervisor;

pub use self::supervisor::{Options, Remote, Summary, Supervisor};
