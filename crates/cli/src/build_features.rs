//! The peers that were left out of this build.

use anyhow::anyhow;

/// Whether this build contains the contest's mechanisms, but not those behind `all-peers`.
pub(crate) const PEERS_LEFT_OUT: bool = cfg!(all(feature = "contest", not(feature = "all-peers")));
/// The note that explains how to build with the peers that were left out.
pub(crate) const PEERS: &str = "not in this build: libraries and servers that need more than cargo and gcc (Cap'n Proto, D-Bus, gRPC, iceoryx2, MQTT, \
     nanomsg, NATS, nng, QUIC, Redis, zenoh, ZeroMQ); build with `--features all-peers`, see the README";

/// Adds the note about peers that are not in this build to an error about an unknown name.
pub(crate) fn with_peers(error: String) -> anyhow::Error {
    if PEERS_LEFT_OUT { anyhow!("{error}\n{PEERS}") } else { anyhow!(error) }
}
