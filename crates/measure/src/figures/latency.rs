//! The latencies of an instance.

use anyhow::Result;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::protocol::LatencyCounts;
use crate::record::{Latency, with_lost};

/// Merges the latencies of several parties. `None` if no party has any.
pub(super) fn merged<'a>(counted: impl Iterator<Item = &'a LatencyCounts>) -> Option<LatencyCounts> {
    counted.cloned().reduce(|mut all, one| {
        all.batch = all.batch.max(one.batch);
        all.counts.extend(one.counts);
        all
    })
}

/// `lost` messages of an open loop have no time.
pub(super) fn latency_of(counted: &LatencyCounts, open_loop: bool, lost: u64) -> Result<Latency> {
    let mut times = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3)?;
    for &(time, count) in &counted.counts {
        times.saturating_record_n(time, count);
    }
    anyhow::ensure!(!times.is_empty(), "no round trip was timed within the window: choose a longer --window");
    let percentile = |of: f64, fewest: u64| with_lost(&times, lost, of).filter(|_| times.len() >= fewest);
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&times, &mut bytes)
        .map_err(|error| anyhow::anyhow!("a histogram: {error:?}"))?;
    Ok(Latency {
        open_loop,
        batch: counted.batch,
        min_ns: times.min(),
        mean_ns: times.mean(),
        stddev_ns: times.stdev(),
        p50_ns: with_lost(&times, lost, 0.5).unwrap_or_else(|| times.max()),
        p99_ns: percentile(0.99, Latency::MIN_FOR_P99),
        p999_ns: percentile(0.999, Latency::MIN_FOR_P999),
        max_ns: times.max(),
        histogram: base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_enough_samples() {
        let percentiles = |samples: u64| {
            let latency = latency_of(&LatencyCounts { batch: 1, counts: vec![(100, samples)] }, false, 0).unwrap();
            [latency.p99_ns, latency.p999_ns].map(|ns| ns.is_some())
        };
        assert_eq!([999, 1_000, 9_999, 10_000].map(percentiles), [[false; 2], [true, false], [true, false], [true; 2]]);
    }

    #[test]
    fn percentiles_come_from_the_counts() {
        let counted = LatencyCounts { batch: 1, counts: vec![(100, 9_890), (1_000, 100), (5_000, 10)] };
        let latency = latency_of(&counted, false, 0).unwrap();
        assert_eq!((latency.min_ns, latency.p50_ns), (100, 100));
        assert!((999..=1_001).contains(&latency.p999_ns.unwrap()) && latency.max_ns >= 5_000);
        assert!(latency_of(&LatencyCounts::default(), false, 0).is_err());
    }
}
