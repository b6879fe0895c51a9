//! What a record says of the other host.

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::limits::Link;

/// The other host of a run between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Peer {
    /// How it was reached, such as `tcp://host:port` or `ssh://host`, without a user's name.
    pub address: String,
    /// The version of its tool.
    pub tool: String,
    /// The commit of its tool's sources. `None` if they were not built from a git repository.
    pub commit: Option<String>,
    /// The host.
    pub fingerprint: Fingerprint,
    /// The longest round trip of a small packet of the session with it, from a few before the run,
    /// in nanoseconds. It contains the wake-up of two processes on each host, and over ssh those of
    /// ssh.
    pub round_trip_ns: u64,
    /// The limits of the link to it. `None` if they could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The part of its processor time that other processes used before the first round, from 0 to 1.
    /// `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_load: Option<f64>,
}
