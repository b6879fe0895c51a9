//! The clock: what reading it costs, the smallest step it shows, and what an empty loop costs.
//!
//! Every time in Estafette is read from `CLOCK_MONOTONIC`. No single event is timed more finely than one read, so this
//! is the limit of what can be told apart; below about twenty reads a batch is timed, and then the empty loop is what
//! each event of the batch costs at least.
//!
//! A read is timed by the clock itself over a batch of reads. The step is the smallest difference other than zero
//! between two reads in succession. An iteration of the empty loop does nothing but hide its counter from the
//! optimiser.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::samples::Samples;
use super::team;
use crate::clock::now_ns;

const READS: usize = 256;
const ITERATIONS: u64 = 16_384;

/// What timing itself costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// One read of `CLOCK_MONOTONIC`.
    pub read_ns: f64,
    /// The smallest difference seen between two reads in succession that differ.
    pub smallest_step_ns: f64,
    /// One iteration of a loop that does nothing, timed by the batch.
    pub empty_loop_ns: f64,
}

/// Times `batch`, which does `count` equal things; the time of one, in nanoseconds.
pub(super) fn time_each(count: usize, batch: impl FnOnce()) -> f64 {
    let start = now_ns();
    batch();
    (now_ns() - start) as f64 / count as f64
}

/// Measures all three on `cpu`.
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
