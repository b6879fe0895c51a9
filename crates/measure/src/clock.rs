//! The clock of all measurements: `CLOCK_MONOTONIC`, which all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// The time in nanoseconds since an arbitrary origin. Needs no system call if the kernel provides a
/// vDSO.
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The cost of one reading in nanoseconds: the median of several batches. Blocks for a fraction of
/// a millisecond.
pub fn cost_ns() -> f64 {
    const BATCH: u32 = 1_000;
    let mut batches = [0.0; 9];
    for batch in &mut batches {
        let start = now_ns();
        for _ in 0..BATCH {
            std::hint::black_box(now_ns());
        }
        *batch = (now_ns() - start) as f64 / f64::from(BATCH);
    }
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}
