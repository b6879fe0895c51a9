//! The clock: the cost of a read, its smallest step, and the cost of an empty loop.
//!
//! Every time in Estafette is read from `CLOCK_MONOTONIC`. A single event cannot be timed more
//! precisely than the cost of one read. Events shorter than about twenty reads are timed in
//! batches. Then an iteration of the empty loop is the minimum cost of each event.
//!
//! The cost of a read is the time of a batch of reads, by the clock itself. The step is the
//! smallest nonzero difference between two successive reads. An iteration of the empty loop only
//! hides its counter from the optimiser.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::samples::Samples;
use super::team;
use crate::clock::now_ns;

const READS: usize = 256;
const ITERATIONS: u64 = 16_384;

/// The cost of timing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Clock {
    /// The time of one read of `CLOCK_MONOTONIC`, in nanoseconds.
    pub read_ns: f64,
    /// The smallest nonzero difference between two successive reads, in nanoseconds.
    pub smallest_step_ns: f64,
    /// The time of one iteration of an empty loop, in nanoseconds.
    pub empty_loop_ns: f64,
}

/// Runs `batch`, which has `count` equal operations, and returns the mean time of one in
/// nanoseconds.
pub(super) fn time_each(count: usize, batch: impl FnOnce()) -> f64 {
    let start = now_ns();
    batch();
    (now_ns() - start) as f64 / count as f64
}

/// Measures all figures of [`Clock`] on `cpu`.
pub(super) fn measure(cpu: usize, length: Duration) -> Result<Clock> {
    team::run(cpu, [], |_| {
        let mut smallest_step = u64::MAX;
        let reads = Samples::take(length / 2, || {
            let mut times = [0; READS];
            let each = time_each(READS, || times.fill_with(now_ns));
            let steps = times.windows(2).map(|pair| pair[1] - pair[0]).filter(|&step| step > 0);
            smallest_step = steps.fold(smallest_step, u64::min);
            Some(each)
        });
        let loops = Samples::take(length / 2, || {
            Some(time_each(ITERATIONS as usize, || {
                for iteration in 0..ITERATIONS {
                    black_box(iteration);
                }
            }))
        });
        Ok(Clock { read_ns: reads.median()?, smallest_step_ns: smallest_step as f64, empty_loop_ns: loops.median()? })
    })
}
