//! How far the shutdown of a node has come, for all threads to see.

use std::sync::atomic::{AtomicU8, Ordering};

/// How far the shutdown of a node has come. A node never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Running,
    /// No endpoint is created any more, and the existing ones are being closed.
    ShuttingDown,
    /// No endpoint is left.
    ShutDown,
}

/// The stage of a node.
#[derive(Debug)]
pub(crate) struct Lifecycle(AtomicU8);

impl Lifecycle {
    pub(crate) fn new() -> Lifecycle {
        Lifecycle(AtomicU8::new(Stage::Running as u8))
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.0.load(Ordering::SeqCst) {
            0 => Stage::Running,
            1 => Stage::ShuttingDown,
            _ => Stage::ShutDown,
        }
    }

    /// Goes on to a later stage.
    pub(crate) fn advance(&self, to: Stage) {
        self.0.fetch_max(to as u8, Ordering::SeqCst);
    }
}
