//! Pipelines of WASM functions that are joined by topics.
//!
//! A YAML file names functions, sources, sinks and the topics between them. [`config`] reads and
//! checks it.

pub mod config;
