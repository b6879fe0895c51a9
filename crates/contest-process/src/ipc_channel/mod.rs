//! `ipc-channel` in two versions: the current one, which serializes values with postcard, and 0.13,
//! which uses bincode 1, as `ipc-channel-throughput` did.
//!
//! Its channel of bytes sends sequenced packets over a UNIX socket. A message that does not fit
//! into one packet is sent in several, through an extra pair of sockets.
//!
//! For this crate the two versions differ only in their types, so `ends.rs` in this folder is
//! compiled once for each. What they need of their version is in `current.rs` and `v0_13.rs`.
#![expect(clippy::duplicate_mod, reason = "one source, two libraries")]

use estafette_measure::Registry;

mod current;
mod v0_13;

#[path = "."]
mod with_current {
    pub(super) use super::current as version;

    #[path = "ends.rs"]
    pub(super) mod ends;
}

#[path = "."]
mod with_v0_13 {
    pub(super) use super::v0_13 as version;

    #[path = "ends.rs"]
    pub(super) mod ends;
}

/// Adds the channels of bytes of both versions.
pub(super) fn register(registry: Registry) -> Registry {
    with_v0_13::ends::register(with_current::ends::register(registry))
}

/// Adds all variants for messages with a topic and data, of both versions.
pub(super) fn register_typed(registry: Registry) -> Registry {
    with_v0_13::ends::register_typed(with_current::ends::register_typed(registry))
}
