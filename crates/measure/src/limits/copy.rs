//! Copying: bytes per second by message size, within a core and across two.
//!
//! A message that is not lent is copied at least once, and the reader's copy of what another core has just written
//! cannot be faster than the lines come out of that core's cache. So there are two limits: the source hot in the
//! copying core's own cache, and the source dirty in another core's. For the second, two pinned threads hand a slab
//! over in turns: one writes every byte of it, the other then copies it out, a message at a time, and times nothing
//! else.
//!
//! Small messages are copied out of a slab of 64 KiB, since one 64 B copy is shorter than a clock read; so their misses
//! overlap as they do in a busy ring, and this is a bandwidth, no latency.
//!
//! Where source and destination lie matters: copies of 4 KiB and 16 KiB ran at half speed here when the destination lay
//! 16 bytes after the source modulo 4,096 (where `malloc` likes to put it), since loads then seem to depend on the
//! stores before them. So both are placed, half a page apart.

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

/// The sizes of a message that are measured, in bytes.
pub(super) const SIZES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// What is handed over at a time: at least one message, and enough to outlast the clock.
const SLAB: usize = 64 << 10;
/// What is copied in a batch within a core.
const BATCH: usize = 256 << 10;
/// Aliasing and placement repeat at this distance.
const PAGE: usize = 4096;

/// How fast messages of one size can be copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopyBandwidth {
    /// The size of a message.
    pub size_bytes: u64,
    /// Source and destination hot in the core's own cache, as far as they fit.
    pub same_core_bytes_per_s: f64,
    /// Source dirty in the other core's cache; none with a single CPU.
    pub cross_core_bytes_per_s: Option<f64>,
}

/// Bytes at a known place within a page.
struct Placed {
    store: Vec<u8>,
    start: usize,
    len: usize,
}

impl Placed {
    fn new(len: usize, place: usize) -> Self {
        // Written, not merely zeroed: pages never written all share one page of zeros.
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

/// Measures one size on `home` and, where there is one, from `away` to `home`.
pub(super) fn measure(home: usize, away: Option<usize>, size: usize, length: Duration) -> Result<CopyBandwidth> {
    // Within a core the figures scatter less.
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

    // Odd turns are the writer's and even ones the reader's, so the lock is never contended; it fails only where the
    // other has panicked, which the team reports.
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
    // A clock as coarse as the batch must not make it infinitely fast.
    bytes as f64 * 1e9 / took_ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_lie_where_they_were_placed() {
        for size in SIZES {
            let (mut from, mut to) = (Placed::source(size), Placed::destination(size));
            assert_eq!((from.bytes().len(), to.bytes().len()), (size, size));
            assert_eq!(from.bytes().as_ptr().addr() % PAGE, 0);
            assert_eq!(to.bytes().as_ptr().addr() % PAGE, PAGE / 2);
        }
    }

    #[test]
    fn slabs_hold_whole_messages() {
        assert!(SIZES.iter().all(|&size| SLAB.max(size) % size == 0));
    }
}
