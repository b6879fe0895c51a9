//! What a child knows of its instance besides the case.

use crate::pace::LinkEstimate;
use crate::pauses::Pauses;
use crate::rendezvous::Rendezvous;
use crate::window::Window;

/// The parameters of an instance that a child gets besides the case.
#[derive(Debug)]
pub struct Ctx {
    /// The connection to the coordinator, through which the children of an instance find each
    /// other.
    pub rendezvous: Rendezvous,
    /// The window to measure.
    pub window: Window,
    /// How long producers continue to send after the window, in nanoseconds.
    pub tail_ns: u64,
    /// What is known of the link, if the ends are on two hosts.
    pub link: Option<LinkEstimate>,
    /// The seed of the messages' contents.
    pub seed: u64,
    /// The secret with which message bodies are made. The ends of the mechanism do not get it.
    pub secret: u64,
    /// The core of each party that this child runs; see [`crate::protocol::Assignment::cpus`].
    pub cpus: Vec<Option<usize>>,
    /// The pauses of an instance that is measured in slices.
    pub pauses: Pauses,
}
