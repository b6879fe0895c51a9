//! Version 0.13 of the library, its name in the results, and its errors.

use std::error::Error;
use std::io;

use estafette_measure::spec::Tier;

pub(super) use ::ipc_channel_013 as library;

pub(super) const NAME: &str = "ipc-channel-0.13";
pub(super) const VERSION: &str = env!("LOCKED_IPC_CHANNEL_0_13");
// Its channel of bytes differs little from the current one, and a quick run has few rows.
pub(super) const BYTES: Tier = Tier::Standard;

/// Converts an error of a receive. The error does not say whether the other side has closed.
pub(super) fn fault(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}
