//! The coordinator's side of an instance: directories, child processes, the packets between them, and the clean-up.

mod calls;
mod children;
mod instance;
mod interrupt;
mod rooms;
mod scratch;

pub use calls::calls;
pub use instance::{Failure, FailureKind, Instance, Measured, Setup};
pub use interrupt::Interrupt;
pub use rooms::rooms;
pub use scratch::Scratch;
