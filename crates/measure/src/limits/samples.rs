//! Samples: how long a quantity is measured, and which statistics are reported.
//!
//! A quantity gets a [`SampleWindow`] of the budget and is measured in batches. Each batch is much
//! shorter than the scheduler's time slice of some milliseconds, so that most batches are not
//! interrupted even on a shared machine. The median of the batches is reported. Unlike a mean, it
//! is not affected by batches that were preempted; unlike a minimum, it is not a single lucky
//! event. An event that is much longer than a clock read (a futex wake, a sleep) is a batch of one.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::clock::now_ns;

/// The minimum number of batches of a quantity, even if the budget is too small for them.
const LEAST_BATCHES: usize = 3;
/// The maximum time by which the minimum number of batches may exceed the window.
const GRACE: Duration = Duration::from_millis(500);
/// The maximum time by which a single batch may exceed the window. On a busy machine, a thread may
/// wait long for its core.
const GRACE_FOR_ONE: Duration = Duration::from_secs(10);

/// The time in which one quantity is measured.
pub(super) struct SampleWindow {
    end_ns: u64,
    /// The end if there are fewer than [`LEAST_BATCHES`].
    last_ns: u64,
    /// The end if there is none.
    last_without_ns: u64,
}

impl SampleWindow {
    /// A window of this length that opens now.
    pub(super) fn open(length: Duration) -> Self {
        let end_ns = now_ns().saturating_add(nanos(length));
        let after = |grace| end_ns.saturating_add(nanos(grace));
        Self { end_ns, last_ns: after(GRACE), last_without_ns: after(GRACE_FOR_ONE) }
    }

    /// Whether measuring should end, given the number of samples taken so far.
    pub(super) fn over(&self, samples: usize) -> bool {
        let end_ns = match samples {
            0 => self.last_without_ns,
            1..LEAST_BATCHES => self.last_ns,
            _ => self.end_ns,
        };
        now_ns() >= end_ns
    }
}

/// A duration in whole nanoseconds; 584 years at most.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The samples of one quantity: a figure for each batch.
#[derive(Default)]
pub(super) struct Samples(Vec<f64>);

impl From<Vec<f64>> for Samples {
    fn from(figures: Vec<f64>) -> Self {
        Self(figures)
    }
}

impl Samples {
    /// Runs batches for `length`, or until a batch returns `None` because its team has ended.
    pub(super) fn take(length: Duration, mut batch: impl FnMut() -> Option<f64>) -> Self {
        let window = SampleWindow::open(length);
        let mut samples = Self::default();
        while !window.over(samples.len()) {
            let Some(figure) = batch() else { break };
            samples.push(figure);
        }
        samples
    }

    pub(super) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Quantiles of the samples, by the nearest rank. 0 is the smallest sample and 1 the largest.
    ///
    /// # Errors
    ///
    /// When there is no sample.
    pub(super) fn quantiles<const N: usize>(mut self, wanted: [f64; N]) -> Result<[f64; N]> {
        if self.0.is_empty() {
            bail!("no sample in the given time: use a larger budget or a quieter machine");
        }
        self.0.sort_unstable_by(f64::total_cmp);
        let last = self.0.len() - 1;
        Ok(wanted.map(|quantile| self.0[(quantile * last as f64).round() as usize]))
    }

    /// The median of the samples.
    ///
    /// # Errors
    ///
    /// When there is no sample.
    pub(super) fn median(self) -> Result<f64> {
        self.quantiles([0.5]).map(|[median]| median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = Samples((0..=100).rev().map(f64::from).collect());
        assert_eq!(samples.quantiles([0.0, 0.5, 0.99, 1.0]).unwrap(), [0.0, 50.0, 99.0, 100.0]);
        assert_eq!(Samples(vec![3.0]).quantiles([0.0, 0.5, 1.0]).unwrap(), [3.0; 3]);
    }

    #[test]
    fn the_median_of_no_sample_is_an_error() {
        assert!(Samples::default().median().is_err());
        assert_eq!(Samples::take(Duration::from_secs(60), || None).len(), 0);
    }

    #[test]
    fn a_window_without_a_sample_lasts_longer() {
        let now = now_ns();
        let window = SampleWindow { end_ns: now, last_ns: now, last_without_ns: u64::MAX };
        assert_eq!([0, 1, LEAST_BATCHES].map(|samples| window.over(samples)), [false, true, true]);
    }

    #[test]
    fn an_empty_window_still_gets_the_minimum_number_of_batches() {
        assert!(Samples::take(Duration::ZERO, || Some(1.0)).len() >= LEAST_BATCHES);
    }
}
