//! Helpers shared by the contest crates (tasks, merges, channels, processes, network, sandbox).
//!
//! | module | content |
//! |---|---|
//! | [`buffer`] | a message buffer aligned to a cache line |
//! | [`byte_stream`] | sending and receiving ends over a byte stream |
//! | `channel` | channels inside one process as mechanisms (feature `channels`) |
//! | [`capacity`] | how many messages fit between two ends |
//! | [`credit`] | credit-based flow control between processes |
//! | [`fd_passing`] | ends in two processes that share file descriptors |
//! | `nats` | a NATS server, and a connection to it (feature `nats`) |
//! | [`own_thread`] | a value that only the thread that created it may access |
//! | [`packets`] | sending and receiving ends over a socket or queue that preserves message boundaries |
//! | [`reference_ring`] | the reference ring: a minimal single-producer, single-consumer queue |
//! | [`ring_ends`] | the reference ring's ends as ends of a mechanism |
//! | [`server`] | a server program between the ends |
//! | [`typed`] | the Rust types and byte layouts of a message with a topic and data |
//!
//! Each non-generic function that runs once per message is marked `#[inline]`, because the drivers'
//! loops are in other crates.
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod buffer;
pub mod byte_stream;
pub mod capacity;
#[cfg(feature = "channels")]
pub mod channel;
pub mod credit;
pub mod fd_passing;
#[cfg(feature = "nats")]
pub mod nats;
pub mod own_thread;
pub mod packets;
#[allow(unsafe_code)]
pub mod reference_ring;
pub mod ring_ends;
pub mod server;
pub mod typed;
