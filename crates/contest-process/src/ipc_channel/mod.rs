//! `ipc-channel` in two versions: the current one, which serializes values with postcard, and 0.13,
//! which uses bincode 1, as `ipc-channel-throughput` did.
//!
//! Its channel of bytes sends sequenced packets over a UNIX socket. A message that does not fit
//! into one packet is sent in several, through an extra pair of sockets.
//!
//! For this crate the two versions differ only in their types, so `ends.rs` in this folder is
//! compiled once for each.
#![expect(clippy::duplicate_mod, reason = "one source, two libraries")]

use estafette_measure::Registry;
use estafette_measure::spec::Tier;

#[path = "."]
mod current {
    use std::io::{self, ErrorKind};

    use ::ipc_channel::IpcError;

    use super::Tier;

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

    #[path = "ends.rs"]
    pub(super) mod ends;
}

#[path = "."]
mod v0_13 {
    use std::error::Error;
    use std::io;

    use super::Tier;

    pub(super) use ::ipc_channel_013 as library;

    pub(super) const NAME: &str = "ipc-channel-0.13";
    pub(super) const VERSION: &str = env!("LOCKED_IPC_CHANNEL_0_13");
    // Its channel of bytes differs little from the current one, and a quick run has few rows.
    pub(super) const BYTES: Tier = Tier::Standard;

    /// Converts an error of a receive. The error does not say whether the other side has closed.
    pub(super) fn fault(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
        io::Error::other(error)
    }

    #[path = "ends.rs"]
    pub(super) mod ends;
}

/// Adds the channels of bytes of both versions.
pub(super) fn enrol(registry: Registry) -> Registry {
    v0_13::ends::enrol(current::ends::enrol(registry))
}

/// Adds all variants for messages with a topic and data, of both versions.
pub(super) fn enrol_typed(registry: Registry) -> Registry {
    v0_13::ends::enrol_typed(current::ends::enrol_typed(registry))
}
