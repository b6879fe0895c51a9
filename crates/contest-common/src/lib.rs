//! What mechanisms of several distances share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`buffer`] | a message's place in memory |
//! | [`byte_stream`] | ends over a stream of bytes |
//! | [`credit`] | a cap on what is under way between processes |
//! | [`fd_passing`] | how ends in two processes come by their descriptors |
//! | [`reference_ring`] | the least that copies messages between two ends |
//! | `nats` | a NATS server, and a connection to it (feature `nats`) |
//! | [`own_thread`] | a value that stays with the thread that made it |
//! | [`ring_ends`] | the reference ring's ends as ends of a mechanism |
//! | [`capacity`] | how many messages fit between two ends |
//! | [`server`] | a server program between the ends |
//! | [`typed`] | the shapes and layouts of a message of a topic and data |
//!
//! Whatever is not generic and runs for each message is marked `#[inline]`: the drivers' loops are in other crates.
#![deny(unsafe_code)]

pub mod buffer;
pub mod byte_stream;
pub mod capacity;
pub mod credit;
pub mod fd_passing;
#[cfg(feature = "nats")]
pub mod nats;
pub mod own_thread;
#[allow(unsafe_code)]
pub mod reference_ring;
pub mod ring_ends;
pub mod server;
pub mod typed;
