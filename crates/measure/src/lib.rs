//! The benchmark harness of Estafette. Measures ways to pass a message, and shows how far each
//! result can be trusted.
//!
//! - Every instance runs in fresh child processes, and the rounds of all mechanisms are
//!   interleaved.
//! - Every cell of a ranked pattern has an A/A control: one mechanism that is measured twice.
//! - Every byte of every message is written, read and verified. The payloads `shared`, `unread` and
//!   `none` are the exceptions.
//! - Confidence intervals come from order statistics.
//! - Each result is shown with its lower bound on this machine.
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod admission;
pub mod bound;
pub mod breach;
pub mod burst_memory;
pub mod case;
pub mod child;
pub mod clock;
pub mod codec_driver;
pub mod conformance;
mod context;
pub mod coordinator;
pub mod core_distance;
pub mod csv_table;
mod descriptors;
pub mod discarded;
pub mod driver;
pub mod entry;
pub mod environment;
mod exchange;
pub mod executor;
mod figures;
pub mod fingerprint;
mod heats;
pub mod hosts;
mod interrupt;
pub mod laps;
mod latency_counts;
pub mod limits;
mod loop_ends;
pub mod mechanism;
mod memory;
pub mod message;
mod names;
pub mod other_load;
mod pace;
pub mod pairs;
pub mod pattern;
pub mod pattern_figures;
mod pauses;
pub mod pipeline_driver;
pub mod plan;
pub mod protocol;
pub mod ranking;
pub mod record;
pub mod refusal;
pub mod rendezvous;
pub mod run;
mod schedule;
#[cfg(test)]
mod schema;
mod shared_memory;
pub mod slices;
pub mod spec;
pub mod stats;
pub mod suite;
pub mod tracer;
pub mod units;
mod unpaused_runs;
pub mod usage;
pub mod variant;
pub mod window;

pub use case::{Case, Cell, Pattern, PayloadKind, Place, Role};
pub use codec_driver::Codec;
pub use entry::{Entry, Registry};
pub use mechanism::{
    AsyncMechanism, AsyncRx, AsyncTransport, AsyncTx, Ends, Mechanism, PartyEnds, Raw, Rx, Transport, Tx,
};
pub use message::{Generator, Value, Verifier};
pub use pace::{LinkEstimate, MAX_LOSS};
pub use pipeline_driver::PipelineEnd;
pub use rendezvous::Rendezvous;
pub use spec::Spec;
