//! Latencies as pairs of a time and its count, as parties report them.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// The maximum number of different times in a report with three digits. If there are more, they
/// are reported with two digits. At 20 characters each, the times and the slices of a party fit in
/// one packet.
const MAX_TIMES: usize = 4_000;

/// A histogram for times up to a minute, with three significant digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")
}

/// A histogram as pairs of a time and its count, with three significant digits, or with two if
/// there would be more than [`MAX_TIMES`] pairs.
pub(crate) fn counts(times: &Histogram<u64>) -> Result<Vec<(u64, u64)>> {
    let pairs = |times: &Histogram<u64>| -> Vec<(u64, u64)> {
        times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    };
    let fine = pairs(times);
    if fine.len() <= MAX_TIMES {
        return Ok(fine);
    }
    let mut coarse = Histogram::<u64>::new_with_bounds(1, times.high(), 2).context("a histogram")?;
    for (time, count) in fine {
        coarse.saturating_record_n(time, count);
    }
    Ok(pairs(&coarse))
}
