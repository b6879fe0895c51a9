//! The coordinator's side of an instance: directories, child processes, the packets between them, and the clean-up.

mod account;
mod calls;
mod children;
pub(crate) mod heat;
mod instance;
mod interrupt;
mod placement;
mod rooms;
mod scratch;

pub use calls::calls;
pub use instance::{Failure, FailureKind, Instance, Measured, Setup};
pub use interrupt::Interrupt;
pub use rooms::rooms;
pub use scratch::Scratch;
