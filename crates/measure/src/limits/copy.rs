//! Copying: bytes per second by message size, within a core and between two.
//!
//! A message that is not loaned is copied at least once. When the reader copies what another core
//! has just written, the copy is limited by how fast the lines leave that core's cache. So there
//! are two limits: the source is hot in the cache of the copying core, or it is dirty in the cache
//! of another core. For the second, two pinned threads pass a slab of memory back and forth. One
//! writes every byte of it. The other copies it, one message at a time, and only this is timed.
//!
//! A copy of 64 B is shorter than a clock read, so small messages are copied out of a slab of 64
//! KiB. Their cache misses overlap, as in a busy ring. So the figure is a bandwidth and not a
//! latency.
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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cache_line::Line;
use super::samples::Samples;
use super::team::{self, Member};
use crate::clock::now_ns;

/// The measured sizes of messages in bytes.
pub(super) const SIZES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The minimum number of bytes passed at a time. It is one message or more, and large compared with
/// a clock read.
const SLAB: usize = 64 << 10;
/// The number of bytes copied in a batch within a core.
const BATCH: usize = 256 << 10;
/// Addresses that differ by a multiple of this alias.
const PAGE: usize = 4096;

/// How fast messages of one size can be copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyBandwidth {
    /// The size of a message in bytes.
    pub size_bytes: u64,
    /// The bandwidth in bytes per second, with source and destination hot in the core's own cache
    /// if they fit.
    pub same_core_bytes_per_s: f64,
    /// The bandwidth in bytes per second, with the source dirty in the other core's cache.
    /// `null` with a single CPU.
    pub cross_core_bytes_per_s: Option<f64>,
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
    let cross = away.map(|away| cross_core(home, away, size, length - within)).transpose()?;
    Ok(CopyBandwidth {
        size_bytes: size as u64,
        same_core_bytes_per_s: same_core(home, size, within)?,
        cross_core_bytes_per_s: cross,
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

fn cross_core(home: usize, away: usize, size: usize, length: Duration) -> Result<f64> {
    let slab = SLAB.max(size);
    let (shared, Line(turn)) = (&Mutex::new(Placed::source(slab)), &Line::default());

    // The writer has the odd turns and the reader the even ones, so the lock is never contended.
    // Locking only fails if the other thread has panicked, which the team reports.
    let writer = Member::new(away, |stop| {
        let mut next = 1;
        while stop.spin_until(turn, next) {
            let Ok(mut slab) = shared.lock() else { break };
            slab.bytes().fill(next as u8);
            drop(slab);
            turn.store(next + 1, Ordering::Release);
            next += 2;
        }
        Ok(())
    });
    team::run(home, [writer], |stop| {
        let mut to = Placed::destination(size);
        let to = to.bytes();
        let mut next = 1;
        Samples::take(length, || {
            turn.store(next, Ordering::Release);
            if !stop.spin_until(turn, next + 1) {
                return None;
            }
            next += 2;
            let mut slab_guard = shared.lock().ok()?;
            let from = slab_guard.bytes();
            let start = now_ns();
            for message in from.chunks_exact(size) {
                to.copy_from_slice(message);
                black_box(&mut *to);
            }
            Some(per_second(slab, now_ns() - start))
        })
        .median()
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
        assert!(SIZES.iter().all(|&size| SLAB.max(size) % size == 0));
    }
}
