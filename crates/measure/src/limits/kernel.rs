//! The kernel: the cheapest system call, and the first touch of a page.
//!
//! A mechanism that enters the kernel for every message pays a system call at least; `gettid`, which does nothing, is
//! timed by the batch. One that hands out fresh memory (an allocation per message, a new mapping) pays a page fault for
//! every page of it: the fault, and the zeroing of the page.
//!
//! For the fault, pages of a fresh allocation are touched one after the other. Two traps: glibc recycles freed blocks
//! of up to 32 MiB, whose pages fault no more, so the allocation is larger (its untouched part costs nothing); and with
//! transparent huge pages one fault brings 512 pages, so these are switched off meanwhile, for the process, as Linux
//! has no such switch for one thread.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::param::page_size;
use rustix::thread::{disable_transparent_huge_pages, gettid, transparent_huge_pages_are_disabled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::time_each;
use super::samples::Samples;
use super::team;

const CALLS: usize = 256;
const PAGES: usize = 64;
/// More than the largest block glibc would ever recycle.
const FRESH_BYTES: usize = 48 << 20;
/// What is touched of it at most; the machine may be small.
const TOUCHED_BYTES: usize = 16 << 20;

/// What the kernel charges at least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// A system call that does nothing.
    pub syscall_ns: f64,
    /// The first write to one page of fresh memory.
    pub page_fault_ns: f64,
    /// The size of that page.
    pub page_bytes: u64,
}

/// Measures both on `cpu`.
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

/// Transparent huge pages are off while this lives. Where that is not permitted they stay as they are, and a fault may
/// look dearer than it is.
struct SmallPages {
    switched: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Held while the switch, which is the process's, is not as it was found.
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
            // It was permitted a moment ago, and there is nobody to tell.
            let _ = disable_transparent_huge_pages(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Page faults of the calling thread that needed no disk: the tenth field of its `stat`.
    fn minor_faults() -> u64 {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn every_page_touched_is_one_fault() {
        for _ in 0..3 {
            let before = minor_faults();
            let batches = page_faults(Duration::from_millis(20)).unwrap().len() as u64;
            let faults = minor_faults() - before;
            let pages = batches * PAGES as u64;
            assert!(faults >= pages && faults < pages + pages / 2 + 64, "{faults} for {pages}");
        }
    }

    #[test]
    fn huge_pages_are_put_back() {
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
