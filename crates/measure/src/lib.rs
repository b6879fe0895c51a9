//! The instrument of Estafette: measures ways to pass a message so that the number can be trusted.
//!
//! Fresh child processes for every instance, rounds interleaved, an A/A control in every cell, every byte written, read
//! and verified, intervals from order statistics, and the machine's own limit beside each result.
#![forbid(unsafe_code)]

mod batch;
pub mod bound;
pub mod burst;
pub mod case;
pub mod child;
pub mod clock;
pub mod codec;
pub mod coordinator;
mod descriptors;
pub mod driver;
pub mod entry;
pub mod executor;
mod figures;
pub mod fingerprint;
pub mod limits;
pub mod mechanism;
pub mod message;
mod pace;
mod parts;
mod pauses;
pub mod pipeline;
pub mod plan;
pub mod protocol;
pub mod ranking;
pub mod record;
pub mod rendezvous;
pub mod run;
mod schedule;
mod shared_memory;
pub mod slices;
pub mod spec;
pub mod stats;
pub mod suite;
pub mod tracer;
pub mod units;
pub mod usage;
pub mod window;

pub use case::{Case, Cell, Pattern, PayloadKind, Place, Role};
pub use codec::Codec;
pub use entry::{Entry, Registry};
pub use mechanism::{Ends, Mechanism, PartyEnds, Raw, Rx, Transport, Tx};
pub use message::{Generator, Value, Verifier};
pub use pace::MAX_LOSS;
pub use pipeline::PipelineEnd;
pub use rendezvous::Rendezvous;
pub use spec::Spec;
