//! The coordinator's part of an instance: directories, child processes, the packets between them,
//! and the clean-up.

mod account;
mod calls;
mod capacities;
pub(crate) mod children;
mod failure;
pub(crate) mod heat;
pub(crate) mod instance;
mod lost_exchange;
pub(crate) mod placement;
mod scratch;
mod setup;

pub use calls::calls;
pub use capacities::capacities;
pub use failure::{Failure, FailureKind};
pub use instance::{Instance, Measured};
pub use scratch::Scratch;
pub use setup::Setup;

pub use crate::interrupt::Interrupt;
