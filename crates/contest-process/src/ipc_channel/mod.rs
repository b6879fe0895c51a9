//! `ipc-channel`, in two versions: the current one, which writes values down with postcard, and 0.13, which writes them with
//! bincode 1, as `ipc-channel-throughput` had it. Its channel of bytes is sequenced packets of a UNIX socket; what does not fit
//! one goes in several, through a pair of sockets of its own.
//!
//! The two differ in nothing that is used here but their types, so `ends.rs` is compiled once for each, in this folder.
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

    /// What the error of a receive means.
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

    /// What the error of a receive means: it does not say whether the other side has gone.
    pub(super) fn fault(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
        io::Error::other(error)
    }

    #[path = "ends.rs"]
    pub(super) mod ends;
}

/// Adds the channel of bytes of both.
pub(super) fn enrol(registry: Registry) -> Registry {
    v0_13::ends::enrol(current::ends::enrol(registry))
}

/// Adds every way to send a message of a topic and data through both.
pub(super) fn enrol_typed(registry: Registry) -> Registry {
    v0_13::ends::enrol_typed(current::ends::enrol_typed(registry))
}
