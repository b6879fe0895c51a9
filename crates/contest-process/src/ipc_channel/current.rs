//! The current version of the library, its name in the results, and its errors.

use std::io::{self, ErrorKind};

use ::ipc_channel::IpcError;
use estafette_measure::spec::Tier;

pub(super) use ::ipc_channel as library;

pub(super) const NAME: &str = "ipc-channel";
pub(super) const VERSION: &str = env!("LOCKED_IPC_CHANNEL_0_23");
pub(super) const BYTES: Tier = Tier::Suite;

/// Converts an error of a receive.
pub(super) fn fault(error: IpcError) -> io::Error {
    match error {
        IpcError::Disconnected => ErrorKind::UnexpectedEof.into(),
        IpcError::Io(error) => error,
        error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
    }
}
