//! A burst: all messages are sent before the first is received, and memory is looked at between.
//!
//! What is looked at is what the process has in memory, as near as the kernel counts it (to some dozen pages): a channel
//! that has room for a million messages may have touched none of it, and memory that was freed may still be held by the
//! allocator. Both are what a user sees.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory that a channel took, in bytes: over what the process had before it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// Open, and never used.
    pub empty: u64,
    /// With the whole burst in it.
    pub full: u64,
    /// Empty again.
    pub after: u64,
}

/// A burst as the two ends of one process see it.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    progress: Arc<AtomicU8>,
    /// What the channel took as it was opened.
    empty: u64,
    /// What was in memory before the first message, without the channel.
    base: u64,
}

const SENT: u8 = 1;
const RECEIVED: u8 = 2;

impl Burst {
    /// Of a channel that took so much memory as it was opened, in a process that now has so much in all.
    pub(crate) fn new(empty: u64, all: u64) -> Burst {
        Burst { progress: Arc::default(), empty, base: all.saturating_sub(empty) }
    }

    /// All has been sent.
    pub(crate) fn set_sent(&self) {
        self.progress.store(SENT, Ordering::Release);
    }

    /// Whether all has been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.progress.load(Ordering::Acquire) >= SENT
    }

    /// Looks at memory with the whole burst in the channel.
    pub(crate) fn full(&self) -> Result<Held> {
        Ok(Held { empty: self.empty, full: resident()?.saturating_sub(self.base), after: 0 })
    }

    /// Looks at memory once all has been received.
    pub(crate) fn empty_again(&self, held: &mut Held) -> Result<()> {
        held.after = resident()?.saturating_sub(self.base);
        self.progress.store(RECEIVED, Ordering::Release);
        Ok(())
    }

    /// Whether all has been received.
    pub(crate) fn is_received(&self) -> bool {
        self.progress.load(Ordering::Acquire) >= RECEIVED
    }
}

/// What this process has in memory, in bytes.
pub(crate) fn resident() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("/proc/self/statm")?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident().unwrap();
        let block = vec![1u8; 32 << 20];
        let with = resident().unwrap();
        assert!(with >= before + (24 << 20), "{before} {with}");
        drop(block);
    }
}
