//! How much memory a mechanism takes in a process.
//!
//! Counted is what the process has written and the kernel keeps for it: anonymous memory, and its
//! part of memory that it shares with others, so that the sum over processes counts no page twice
//! (`Pss_Anon` and `Pss_Shmem` in `/proc/self/smaps_rollup`). Not counted are the program's code,
//! files that are mapped, and what the kernel keeps itself: the buffers of pipes and sockets.

use std::fs;
use std::sync::{Arc, OnceLock};

/// The memory of this process in bytes. `None` if the kernel does not report it.
fn current() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/smaps_rollup").ok()?)
}

fn parse(rollup: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    kib("Pss_Anon")?.checked_add(kib("Pss_Shmem")?)?.checked_mul(1024)
}

/// Measures how much the memory of this process grows from the time before a mechanism is opened to
/// the end of the window. It is read at these two times only, because a reading walks the page
/// tables.
#[derive(Clone, Debug)]
pub(crate) struct MemoryProbe {
    /// The memory before the mechanism was opened, in bytes.
    before: u64,
    grown: Arc<OnceLock<u64>>,
}

impl MemoryProbe {
    /// Reads the memory before a mechanism is opened. `None` if the kernel does not report it.
    pub(crate) fn before_opening() -> Option<MemoryProbe> {
        Some(MemoryProbe { before: current()?, grown: Arc::default() })
    }

    /// Reads the memory. Called once, after the window.
    pub(crate) fn read(&self) {
        if let Some(now) = current() {
            let _ = self.grown.set(now.saturating_sub(self.before));
        }
    }

    /// By how many bytes the memory had grown when it was read. `None` before.
    pub(crate) fn grown(&self) -> Option<u64> {
        self.grown.get().copied()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::hint::black_box;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// For tests that take much memory and measure that of the whole process.
    pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn written_memory_is_counted_and_reserved_memory_is_not() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = MemoryProbe::before_opening().unwrap();
        assert_eq!(probe.grown(), None);
        let reserved = black_box(Vec::<u8>::with_capacity(256 << 20));
        let written = black_box(vec![1u8; 64 << 20]);
        probe.read();
        let grown = probe.grown().unwrap();
        // Other tests of this process take and free less meanwhile.
        assert!((32 << 20..192 << 20).contains(&grown), "{grown}");
        drop((reserved, written));
    }

    #[test]
    fn the_kernels_text_is_parsed() {
        let text = "0-1 ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss_Anon:      112 kB\nPss_File: 7 kB\nPss_Shmem: 4 kB\n";
        assert_eq!(parse(text), Some(116 * 1024));
        assert_eq!(parse("Pss_Anon: 112 kB\n"), None, "older than Linux 5.4");
        assert_eq!(parse("Pss_Anon: 18446744073709551615 kB\nPss_Shmem: 4 kB\n"), None);
    }
}
