//! A burst: all messages are sent before the first is received. Memory is measured before, between
//! and after.
//!
//! The figure is the resident memory of the process, as exactly as the kernel counts it (to some
//! dozen pages). A channel with a capacity of a million messages may not have touched its buffer
//! yet. The allocator may still keep memory that was freed. Both are part of what a user sees.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The memory of a channel in bytes: the resident memory of the process, minus what it was before
/// the channel was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BurstMemory {
    /// After it was opened, before the first message.
    pub empty: u64,
    /// With the whole burst in it.
    pub full: u64,
    /// After all messages were received.
    pub after: u64,
}

/// The state of a burst, shared by the two ends in one process.
#[derive(Clone, Debug)]
pub(crate) struct SharedBurst {
    progress: Arc<AtomicU8>,
    /// The memory that opening the channel took, in bytes.
    empty: u64,
    /// The resident memory before the first message, without the channel, in bytes.
    base: u64,
}

/// How often an end looks whether the other one has sent or received the whole burst.
pub(crate) const BURST_POLL: Duration = Duration::from_micros(100);

const SENT: u8 = 1;
const RECEIVED: u8 = 2;

impl SharedBurst {
    /// The burst of a channel that took `empty` bytes when it was opened, in a process whose
    /// resident memory is now `all` bytes.
    pub(crate) fn new(empty: u64, all: u64) -> SharedBurst {
        SharedBurst { progress: Arc::default(), empty, base: all.saturating_sub(empty) }
    }

    /// Marks the burst as sent.
    pub(crate) fn set_sent(&self) {
        self.progress.store(SENT, Ordering::Release);
    }

    /// Whether all messages have been sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.progress.load(Ordering::Acquire) >= SENT
    }

    /// Measures the memory with the whole burst in the channel.
    pub(crate) fn full(&self) -> Result<BurstMemory> {
        Ok(BurstMemory { empty: self.empty, full: resident()?.saturating_sub(self.base), after: 0 })
    }

    /// Measures the memory after all messages have been received, and marks the burst as received.
    pub(crate) fn empty_again(&self, memory: &mut BurstMemory) -> Result<()> {
        memory.after = resident()?.saturating_sub(self.base);
        self.progress.store(RECEIVED, Ordering::Release);
        Ok(())
    }

    /// Whether all messages have been received and the memory has been measured.
    pub(crate) fn is_received(&self) -> bool {
        self.progress.load(Ordering::Acquire) >= RECEIVED
    }
}

/// The resident memory of this process in bytes.
pub(crate) fn resident() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("/proc/self/statm")?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::PoisonError;

    use super::*;
    use crate::memory::tests::ONE_AT_A_TIME;

    #[test]
    fn resident_counts_memory_that_was_written() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let before = resident().unwrap();
        let block = black_box(vec![1u8; 32 << 20]);
        let with = resident().unwrap();
        assert!(with >= before + (24 << 20), "{before} {with}");
        drop(block);
    }
}
