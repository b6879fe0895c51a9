//! The coordinator's part of an instance: directories, child processes, the packets between them,
//! and the clean-up.

mod account;
mod calls;
mod capacities;
mod children;
pub(crate) mod heat;
mod instance;
mod interrupt;
mod lost_exchange;
mod placement;
mod scratch;

pub use calls::calls;
pub use capacities::capacities;
pub use instance::{Failure, FailureKind, Instance, Measured, Setup};
pub use interrupt::Interrupt;
pub use scratch::Scratch;
