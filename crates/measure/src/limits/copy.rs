//! Copying: bytes per second by message size, within a core and between two.
//!
//! A message that is not loaned is copied at least once. When the reader copies what another core
//! has written, the copy is limited by how fast the lines come to this core. So there are two
//! limits: the source is hot in the cache of the copying core, or another core has written it. For
//! the second, two pinned threads pass a slab of memory back and forth. One writes every byte of
//! it. The other copies it, one message at a time, and only this is timed.
//!
//! How much is written ahead decides where the lines are. The last 64 KiB that a core wrote are in
//! its own cache. Much of 4 MiB has left it for the cache that the cores share, and on some
//! processors a core reads from there twice as fast as from another core's own cache: an Intel Xeon
//! with 2 MiB for each core copied 4 KiB in 269 ns and in 143 ns. A queue of 1,024 such messages
//! may be that full, so the limit is the fastest of several slabs, which take turns. For short
//! messages that is more than a queue contains, so their limit is lower than it needs to be, as a
//! bound may.
//!
//! A copy of 64 B is shorter than a clock read, so small messages are copied out of a slab too.
//! Their cache misses overlap, as in a busy ring. So the figure is a bandwidth and not a latency.
//!
//! The addresses of source and destination matter. On the development machine, copies of 4 KiB and
//! 16 KiB ran at half speed when the destination was 16 bytes after the source modulo 4,096, where
//! `malloc` often puts it. The reason is probably 4K aliasing: loads seem to depend on earlier
//! stores. So source and destination are placed half a page apart.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::cache_line::Line;
use super::samples::{SampleWindow, Samples};
use super::team::{self, TeamMember};
use crate::clock::now_ns;

/// The measured sizes of messages in bytes.
pub(super) const SIZES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The number of bytes passed at a time, or one message if that is more. The smallest is large
/// compared with a clock read, the largest exceeds what a core has as its own cache.
const SLABS: [usize; 4] = [64 << 10, 512 << 10, 4 << 20, 16 << 20];
/// The number of bytes copied in a batch within a core.
const BATCH: usize = 256 << 10;
/// Addresses that differ by a multiple of this alias.
const PAGE: usize = 4096;

/// How fast messages of one size can be copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CopyBandwidth {
    /// The size of a message in bytes.
    pub size_bytes: u64,
    /// The bandwidth in bytes per second, with source and destination hot in the core's own cache
    /// if they fit.
    pub same_core_bytes_per_s: f64,
    /// The bandwidth in bytes per second, with a source that the other core has written: the
    /// fastest of some amounts written ahead. `null` with a single CPU.
    pub cross_core_bytes_per_s: Option<f64>,
    /// The number of bytes written ahead with which that bandwidth was measured. `null` with a
    /// single CPU, and in records of older versions, which only measured 64 KiB or one message.
    #[serde(default)]
    pub cross_core_ahead_bytes: Option<u64>,
}

/// Bytes at a known offset within a page.
struct Placed {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl Placed {
    fn new(len: usize, place: usize) -> Self {
        // Filled with 1 and not 0, because pages that were never written all share one zero page.
        let store = vec![1; len + PAGE + place];
        let start = store.as_ptr().align_offset(PAGE) + place;
        Self { store, start, len }
    }

    fn source(len: usize) -> Self {
        Self::new(len, 0)
    }

    fn destination(len: usize) -> Self {
        Self::new(len, PAGE / 2)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.store[self.start..][..self.len]
    }
}

/// Measures one size on `home` and, if there is another CPU, from `away` to `home`.
pub(super) fn measure(home: usize, away: Option<usize>, size: usize, length: Duration) -> Result<CopyBandwidth> {
    // The figures within a core vary less, so they need less time.
    let within = if away.is_some() { length / 4 } else { length };
    let across = away.map(|away| cross_core(home, away, size, length - within)).transpose()?;
    Ok(CopyBandwidth {
        size_bytes: size as u64,
        same_core_bytes_per_s: same_core(home, size, within)?,
        cross_core_bytes_per_s: across.map(|(_, bandwidth)| bandwidth),
        cross_core_ahead_bytes: across.map(|(slab, _)| slab as u64),
    })
}

fn same_core(cpu: usize, size: usize, length: Duration) -> Result<f64> {
    team::run(cpu, [], |_| {
        let (mut from, mut to) = (Placed::source(size), Placed::destination(size));
        let (from, to) = (from.bytes(), to.bytes());
        let copies = BATCH.div_ceil(size);
        Samples::take(length, || {
            let start = now_ns();
            for _ in 0..copies {
                to.copy_from_slice(black_box(from));
                black_box(&mut *to);
            }
            Some(per_second(copies * size, now_ns() - start))
        })
        .median()
    })
}

/// The slab with the highest bandwidth, and that bandwidth. The slabs take turns, so that all of
/// them are measured in each state of a machine that moves the cores.
fn cross_core(home: usize, away: usize, size: usize, length: Duration) -> Result<(usize, f64)> {
    let mut slabs = SLABS.map(|slab| slab.max(size)).to_vec();
    slabs.dedup();
    let place = |turn: u64| (turn / 2) as usize % slabs.len();
    let largest = slabs[slabs.len() - 1];
    let (shared, Line(turn)) = (&Mutex::new(Placed::source(largest)), &Line::default());

    // The writer has the odd turns and the reader the even ones, so the lock is never contended.
    // Locking only fails if the other thread has panicked, which the team reports.
    let writer = TeamMember::new(away, |stop| {
        let mut next = 1;
        while stop.spin_until(turn, next) {
            let Ok(mut slab) = shared.lock() else { break };
            slab.bytes()[..slabs[place(next)]].fill(next as u8);
            drop(slab);
            turn.store(next + 1, Ordering::Release);
            next += 2;
        }
        Ok(())
    });
    team::run(home, [writer], |stop| {
        let mut to = Placed::destination(size);
        let to = to.bytes();
        let mut samples: Vec<Samples> = slabs.iter().map(|_| Samples::default()).collect();
        let (window, mut next) = (SampleWindow::open(length), 1);
        while !window.over(samples[slabs.len() - 1].len()) {
            turn.store(next, Ordering::Release);
            if !stop.spin_until(turn, next + 1) {
                break;
            }
            let Ok(mut guard) = shared.lock() else { break };
            let slab = slabs[place(next)];
            let start = now_ns();
            for message in guard.bytes()[..slab].chunks_exact(size) {
                to.copy_from_slice(message);
                black_box(&mut *to);
            }
            samples[place(next)].push(per_second(slab, now_ns() - start));
            next += 2;
        }
        let medians = slabs.iter().zip(samples).map(|(slab, samples)| Ok((*slab, samples.median()?)));
        let medians = medians.collect::<Result<Vec<_>>>()?;
        Ok(medians.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b)).expect("there are slabs"))
    })
}

fn per_second(bytes: usize, took_ns: u64) -> f64 {
    // With a coarse clock `took_ns` can be 0. The result must not be infinite.
    bytes as f64 * 1e9 / took_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_requested_offset() {
        for size in SIZES {
            let (mut from, mut to) = (Placed::source(size), Placed::destination(size));
            assert_eq!((from.bytes().len(), to.bytes().len()), (size, size));
            assert_eq!(from.bytes().as_ptr().addr() % PAGE, 0);
            assert_eq!(to.bytes().as_ptr().addr() % PAGE, PAGE / 2);
        }
    }

    #[test]
    fn the_size_of_a_slab_is_a_multiple_of_each_message_size() {
        assert!(SIZES.iter().all(|&size| SLABS.iter().all(|slab| slab.max(&size) % size == 0)));
    }
}
