//! The parameters of an instance.

use std::time::Duration;

use crate::case::Case;
use crate::hosts::OtherHost;
use crate::window::Window;

/// The parameters of an instance.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The case.
    pub case: Case,
    /// The window to measure.
    pub window: Window,
    /// The part of the window, at its beginning, that an instance in slices runs without pauses, in
    /// nanoseconds.
    pub unpaused_run_ns: u64,
    /// The seed of the messages' contents, below 2^53.
    pub seed: u64,
    /// The secret with which message bodies are made, below 2^53. The ends of the mechanism do not
    /// get it.
    pub secret: u64,
    /// The cores that may be used.
    pub cpus: Vec<usize>,
    /// How long the children may take beyond the window.
    pub timeout: Duration,
    /// How long the window may take if it is a number of messages.
    pub count_timeout: Duration,
    /// Whether to count the children's system calls. The times that they measure are then
    /// meaningless.
    pub traced: bool,
    /// The host on which the consumers run, if the case is between two hosts.
    pub other_host: Option<OtherHost>,
}
