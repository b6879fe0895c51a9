//! `ipc-channel` with messages of a topic and data, in two versions: the current one, which writes values down with
//! postcard, and 0.13, which writes them with bincode 1, as `ipc-channel-throughput` had it.
//!
//! The two differ in nothing that is used here but their types, so `ends.rs` is compiled once for each, in this folder.
#![expect(clippy::duplicate_mod, reason = "one source, two libraries")]

use estafette_measure::Registry;
use estafette_measure::spec::Joins;

#[path = "."]
mod current {
    use super::Joins;

    pub(super) use ::ipc_channel as library;

    pub(super) const NAME: &str = "ipc-channel";
    pub(super) const VERSION: &str = env!("LOCKED_IPC_CHANNEL_0_23");
    pub(super) const BY_HAND: Joins = Joins::Suite;

    #[path = "ends.rs"]
    pub(super) mod ends;
}

#[path = "."]
mod v0_13 {
    use super::Joins;

    pub(super) use ::ipc_channel_013 as library;

    pub(super) const NAME: &str = "ipc-channel-0.13";
    pub(super) const VERSION: &str = env!("LOCKED_IPC_CHANNEL_0_13");
    // Its channel of bytes differs little from the current one, and a quick run has few rows.
    pub(super) const BY_HAND: Joins = Joins::Standard;

    #[path = "ends.rs"]
    pub(super) mod ends;
}

/// Adds every way to send a message through both.
pub(super) fn enrol(registry: Registry) -> Registry {
    v0_13::ends::enrol(current::ends::enrol(registry))
}
