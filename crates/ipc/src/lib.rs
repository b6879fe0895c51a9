//! Bytes between processes of one machine, over sealed shared memory.
//!
//! [`group`] has rings for one producer and a group of competing consumers, of which any may be
//! killed at any moment.

#![cfg_attr(loom, allow(dead_code, reason = "under loom only the models use the rings"))]
#![deny(unsafe_code)]

mod bell;
mod error;
#[cfg(not(loom))]
pub mod fd_passing;
#[cfg(not(loom))]
mod file;
pub mod group;
#[cfg_attr(loom, path = "modelled.rs")]
#[allow(unsafe_code)]
mod memory;
mod record;
mod sync;
mod wait;

pub use self::error::{OpenError, Violation};
pub use self::wait::WaitMode;
