//! The kernel: the cheapest system call, and the page fault at the first write to a page.
//!
//! A mechanism that enters the kernel for every message pays at least a system call. `gettid` does
//! nothing and is timed in batches. A mechanism that uses fresh memory (an allocation or a new
//! mapping per message) pays a page fault for every page: the fault itself, and the zeroing of the
//! page.
//!
//! To measure page faults, pages of a fresh allocation are written one after the other. Two things
//! could spoil this:
//!
//! - glibc reuses freed blocks of up to 32 MiB, whose pages do not fault again. So the allocation
//!   is larger. Its unused part costs nothing.
//! - With transparent huge pages, one fault maps 512 pages. So they are disabled during the
//!   measurement. This affects the whole process, because Linux has no such setting for one thread.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::param::page_size;
use rustix::thread::{disable_transparent_huge_pages, gettid, transparent_huge_pages_are_disabled};
use serde::{Deserialize, Serialize};

use super::clock_cost::time_each;
use super::samples::Samples;
use super::team;

const CALLS: usize = 256;
const PAGES: usize = 64;
/// The size of the allocation in bytes: more than the largest block that glibc reuses.
const FRESH_BYTES: usize = 48 << 20;
/// The maximum number of bytes that are written, because the machine may have little memory.
const TOUCHED_BYTES: usize = 16 << 20;

/// The minimum cost of entering the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Kernel {
    /// The time of a system call that does nothing, in nanoseconds.
    pub syscall_ns: f64,
    /// The time of the first write to a page of fresh memory, in nanoseconds.
    pub page_fault_ns: f64,
    /// The size of a page in bytes.
    pub page_bytes: u64,
}

/// Measures all figures of [`Kernel`] on `cpu`.
pub(super) fn measure(cpu: usize, length: Duration) -> Result<Kernel> {
    team::run(cpu, [], |_| {
        let syscalls = Samples::take(length / 2, || {
            Some(time_each(CALLS, || {
                for _ in 0..CALLS {
                    black_box(gettid());
                }
            }))
        });
        Ok(Kernel {
            syscall_ns: syscalls.median()?,
            page_fault_ns: page_faults(length / 2)?.median()?,
            page_bytes: page_size() as u64,
        })
    })
}

fn page_faults(length: Duration) -> Result<Samples> {
    let _small = SmallPages::only();
    let mut fresh: Vec<u8> = Vec::new();
    fresh.try_reserve_exact(FRESH_BYTES).context("no memory to measure page faults with")?;
    let page = page_size();
    let touched = &mut fresh.spare_capacity_mut()[..TOUCHED_BYTES];
    let mut batches = touched.chunks_exact_mut(PAGES * page);
    Ok(Samples::take(length, || {
        let pages = batches.next()?;
        Some(time_each(PAGES, || {
            for page in pages.chunks_exact_mut(page) {
                black_box(page[0].write(1));
            }
        }))
    }))
}

/// Disables transparent huge pages until it is dropped. If that is not permitted, they stay as they
/// are, and the time of a fault may be too high.
struct SmallPages {
    switched: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Locked while the setting of the process is changed.
static SWITCH: Mutex<()> = Mutex::new(());

impl SmallPages {
    fn only() -> Self {
        let alone = SWITCH.lock().unwrap_or_else(PoisonError::into_inner);
        let huge = matches!(transparent_huge_pages_are_disabled(), Ok(false));
        Self { switched: huge && disable_transparent_huge_pages(true).is_ok(), _alone: alone }
    }
}

impl Drop for SmallPages {
    fn drop(&mut self) {
        if self.switched {
            // An error is ignored: changing the setting was permitted a moment ago.
            let _ = disable_transparent_huge_pages(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The minor page faults of the calling thread: the tenth field of its `stat`.
    fn minor_faults() -> u64 {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn every_page_written_is_one_fault() {
        for _ in 0..3 {
            let before = minor_faults();
            let batches = page_faults(Duration::from_millis(20)).unwrap().len() as u64;
            let faults = minor_faults() - before;
            let pages = batches * PAGES as u64;
            assert!(faults >= pages && faults < pages + pages / 2 + 64, "{faults} for {pages}");
        }
    }

    #[test]
    fn the_setting_of_huge_pages_is_restored() {
        let found = || {
            let _alone = SWITCH.lock().unwrap_or_else(PoisonError::into_inner);
            transparent_huge_pages_are_disabled().unwrap()
        };
        let before = found();
        {
            let _small = SmallPages::only();
            assert!(transparent_huge_pages_are_disabled().unwrap());
        }
        assert_eq!(found(), before);
    }
}
