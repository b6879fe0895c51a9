//! The counters of one function instance, in memory that its host and the supervisor share.
//!
//! The host writes each counter with a plain store. The supervisor reads them for its table, its
//! metrics, and its detection of endless loops. They are only shown or compared, so a host that
//! writes invalid values cannot corrupt memory.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// The counters, in the order in which they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Grows at each call of the function and at each of its sends. An instance that is busy for
    /// long without progress is in an endless loop.
    Progress,
    /// 1 while the function's code runs, 0 while its host waits for messages.
    Busy,
    /// Calls of the function, one per message or per batch.
    Calls,
    /// Messages that the function received.
    ReceivedMessages,
    /// Their bytes.
    ReceivedBytes,
    /// Messages that the function sent.
    SentMessages,
    /// Their bytes.
    SentBytes,
    /// Messages that were dropped when they were sent: by a topic's overflow policy, or because a
    /// server does not accept them.
    Dropped,
    /// Messages that were sent to a queue whose readers had all ended: one for each such queue.
    Unread,
    /// Messages that were sent to a dead-letter topic, or dropped because there is none.
    DeadLetters,
    /// The size of its linear memory, in bytes.
    Memory,
    /// The time from the start request to the function's first instruction, in nanoseconds.
    StartTime,
}

impl Counter {
    const COUNT: usize = 12;
    const BYTES: usize = Counter::COUNT * size_of::<u64>();
}

/// The mapped counters.
#[derive(Debug)]
pub(crate) struct Counters {
    map: MmapRaw,
}

impl Counters {
    /// Creates counters, all zero, and the file by which another process maps them.
    ///
    /// # Errors
    ///
    /// If the system has no memory.
    pub(crate) fn create() -> Result<(Counters, OwnedFd)> {
        let file = memfd_create("estafette-counters", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, Counter::BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Counters::open(&file)?, file))
    }

    /// Maps counters that another process created.
    ///
    /// # Errors
    ///
    /// If the file was not created by [`Counters::create`].
    pub(crate) fn open(file: impl AsFd) -> Result<Counters> {
        let seals = fcntl_get_seals(&file).context("the counters are not in a memfd")?;
        let len = fstat(&file)?.st_size;
        ensure!(seals.contains(SealFlags::SHRINK) && len == Counter::BYTES as i64, "the counters have another size");
        let file = File::from(file.as_fd().try_clone_to_owned()?);
        let map = MmapOptions::new().len(Counter::BYTES).map_raw(&file).context("cannot map the counters")?;
        Ok(Counters { map })
    }

    #[inline]
    fn word(&self, counter: Counter) -> &AtomicU64 {
        let words = self.map.as_mut_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping has `Counter::COUNT` words, is aligned to a page, is sealed against
        // shrinking, and lives as long as `self`. All processes access its words only as atomics.
        unsafe { &*words.add(counter as usize) }
    }

    /// The current value of a counter.
    #[inline]
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.word(counter).load(Ordering::Relaxed)
    }

    /// Sets a counter. Called by the host.
    #[inline]
    pub(crate) fn set(&self, counter: Counter, value: u64) {
        self.word(counter).store(value, Ordering::Relaxed);
    }

    /// Adds to a counter. Each counter has one writer, so no locked instruction is needed: the
    /// thread that runs the instance, or the thread of the connections for `Dropped` of a sink.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        let word = self.word(counter);
        word.store(word.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same_counters() {
        let (ours, file) = Counters::create().unwrap();
        let theirs = Counters::open(&file).unwrap();
        theirs.add(Counter::Calls, 2);
        theirs.add(Counter::Calls, 3);
        theirs.set(Counter::StartTime, 7);
        assert_eq!((ours.get(Counter::Calls), ours.get(Counter::StartTime), ours.get(Counter::Busy)), (5, 7, 0));
    }

    #[test]
    fn another_file_is_refused() {
        let file = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, Counter::BYTES as u64).unwrap();
        assert!(Counters::open(&file).is_err());
        assert!(Counters::open(tempfile::tempfile().unwrap()).is_err());
    }
}
