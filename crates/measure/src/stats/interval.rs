//! The confidence interval of a median: two order statistics.
//!
//! The k-th smallest and the k-th largest of n independent samples enclose the median of *any*
//! continuous distribution with probability 1 - 2·P(Bin(n, ½) ≤ k-1). With ties or a discrete
//! distribution the probability is at least as high.
//!
//! Sources: W. R. Thompson, "On confidence ranges for the median", Annals of Mathematical
//! Statistics 7 (1936); H. A. David and H. N. Nagaraja, *Order Statistics*, 3rd ed. (2003), section
//! 7.1.

use serde::{Deserialize, Serialize};

use super::{sample, sign};

/// The maximum rounding error of a computed coverage, by which it may be below the requested one.
const ROUNDING: f64 = 1e-12;

/// An estimate and the interval around it, on the scale of ln ratios; positive means "B better than
/// A".
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interval {
    /// The estimate, a ln ratio; between `low` and `high`.
    pub estimate: f64,
    /// The lower end, a ln ratio.
    pub low: f64,
    /// The upper end, a ln ratio.
    pub high: f64,
    /// The probability, 0 to 1, with which such an interval contains the true value; at least the
    /// confidence asked for.
    pub coverage: f64,
}

impl Interval {
    /// The estimate as a plain ratio: 1.1 means "B better by 10 %".
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.estimate.exp()
    }

    /// The lower end as a plain ratio.
    #[must_use]
    pub fn ratio_low(&self) -> f64 {
        self.low.exp()
    }

    /// The upper end as a plain ratio.
    #[must_use]
    pub fn ratio_high(&self) -> f64 {
        self.high.exp()
    }

    /// The interval of the inverse ratio: of A to B, where this is of B to A.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { estimate: -self.estimate, low: -self.high, high: -self.low, ..*self }
    }

    /// Half the distance between the ends, in ln ratio. The estimate need not lie in the middle.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        self.high / 2.0 - self.low / 2.0
    }
}

/// The median of the samples (ln ratios) and its confidence interval. The interval is the narrowest
/// symmetric pair of order statistics whose exact coverage is at least `confidence` (above 0, below
/// 1).
///
/// At 95 %, 6 samples give the 1st to the 6th (coverage 96.9 %), and 12 samples the 3rd to the 10th
/// (96.1 %).
///
/// `None` if there are too few samples for the confidence (fewer than 6 at 95 %), if a sample is
/// not finite, or if the confidence is outside its range.
#[must_use]
pub fn median_interval(samples: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sample::in_order(samples)?;
    between_ranks(&sorted, sign::lower_tails(sorted.len()), confidence)
}

/// The median of the sorted values, and their narrowest symmetric pair with a coverage of at least
/// `confidence`. `lower_tails` yields P(N ≤ 0), P(N ≤ 1), …, where N is the number of values below
/// the true one. The distribution of N must be symmetric.
pub(super) fn between_ranks(
    sorted: &[f64],
    lower_tails: impl Iterator<Item = f64>,
    confidence: f64,
) -> Option<Interval> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let (below, coverage) = lower_tails
        .map(|tail| 1.0 - 2.0 * tail)
        .take_while(|coverage| *coverage >= confidence - ROUNDING)
        .enumerate()
        .last()?;
    Some(Interval {
        estimate: sample::middle(sorted)?,
        low: sorted[below],
        high: sorted[sorted.len() - 1 - below],
        coverage,
    })
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are compared exactly")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The values 1 to n, shuffled. Each value equals its rank.
    fn ranks(n: u32) -> Vec<f64> {
        let mut ranks: Vec<f64> = (1..=n).map(f64::from).collect();
        fastrand::Rng::with_seed(7).shuffle(&mut ranks);
        ranks
    }

    #[test]
    fn the_table_at_95_percent() {
        // n, k and coverage in percent: the usual table of the sign test's intervals, for example
        // in David and Nagaraja.
        let table = [
            (6, 1, 96.875),
            (7, 1, 98.437_5),
            (8, 1, 99.218_75),
            (9, 2, 96.093_75),
            (10, 2, 97.851_562_5),
            (12, 3, 96.142_578_125),
            (15, 4, 96.484_375),
            (20, 6, 95.861),
            (25, 8, 95.671),
            (30, 10, 95.723),
            (100, 40, 96.480),
        ];
        for (n, k, percent) in table {
            let interval = median_interval(&ranks(n), 0.95).unwrap();
            assert_eq!((interval.low, interval.high), (f64::from(k), f64::from(n + 1 - k)), "n = {n}");
            assert_eq!(interval.estimate, f64::from(n + 1) / 2.0, "n = {n}");
            assert!((interval.coverage * 100.0 - percent).abs() < 6e-4, "n = {n}: {}", interval.coverage);
        }
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        for n in 0..=5 {
            assert_eq!(median_interval(&ranks(n), 0.95), None, "n = {n}");
        }
        assert_eq!(median_interval(&ranks(7), 0.99), None);
        assert!(median_interval(&ranks(8), 0.99).is_some());
    }

    #[test]
    fn a_coverage_exactly_at_the_confidence_suffices() {
        assert_eq!(median_interval(&ranks(6), 0.968_75).unwrap().coverage, 0.968_75);
        assert_eq!(median_interval(&ranks(6), 0.968_76), None);
        assert_eq!(median_interval(&ranks(5), 0.937_5).unwrap().coverage, 0.937_5);
    }

    #[test]
    fn thousands_of_samples_do_not_overflow_or_lose_precision() {
        for n in [1_000_u32, 1_100, 5_000, 8_000] {
            let interval = median_interval(&ranks(n), 0.95).unwrap();
            // The normal approximation of k. The exact coverage is within one step of 95 %.
            let k = f64::from(n) / 2.0 - 0.979_982 * f64::from(n).sqrt();
            assert!((interval.low - k).abs() < 1.5, "n = {n}: {} against {k}", interval.low);
            assert!((0.95..0.954).contains(&interval.coverage), "n = {n}: {}", interval.coverage);
        }
    }

    #[test]
    fn unusable_confidence_gives_no_interval() {
        for confidence in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0, 95.0] {
            assert_eq!(median_interval(&ranks(20), confidence), None, "{confidence}");
        }
    }

    #[test]
    fn ratios_are_exponentials_of_the_ends() {
        let interval = Interval { estimate: 0.0, low: 0.5_f64.ln(), high: 4.0_f64.ln(), coverage: 0.95 };
        assert_eq!(interval.ratio(), 1.0);
        assert!((interval.ratio_low() - 0.5).abs() < 1e-15);
        assert!((interval.ratio_high() - 4.0).abs() < 1e-15);
        assert!((interval.half_width() - 8.0_f64.ln() / 2.0).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn the_interval_contains_the_median(samples in vec(-9.0..9.0, 0..60), confidence in 0.01..0.999) {
            if let Some(interval) = median_interval(&samples, confidence) {
                prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
                prop_assert_eq!(Some(interval.estimate), sample::median(&samples));
                prop_assert!(interval.coverage >= confidence - ROUNDING && interval.coverage <= 1.0);
            }
        }

        #[test]
        fn the_interval_shifts_and_scales_with_the_samples(samples in vec(-9.0..9.0, 6..40), shift in -9.0..9.0_f64) {
            let plain = median_interval(&samples, 0.95).unwrap();
            let scaled: Vec<f64> = samples.iter().map(|sample| sample * 4.0).collect();
            let scaled = median_interval(&scaled, 0.95).unwrap();
            prop_assert_eq!((scaled.low, scaled.estimate, scaled.high),
                (plain.low * 4.0, plain.estimate * 4.0, plain.high * 4.0));
            let moved: Vec<f64> = samples.iter().map(|sample| sample + shift).collect();
            let moved = median_interval(&moved, 0.95).unwrap();
            for (moved, plain) in [(moved.low, plain.low), (moved.estimate, plain.estimate), (moved.high, plain.high)] {
                prop_assert!((moved - plain - shift).abs() < 1e-12);
            }
        }

        #[test]
        fn swapping_a_and_b_mirrors_the_interval(samples in vec(-9.0..9.0, 6..40)) {
            let plain = median_interval(&samples, 0.95).unwrap();
            let swapped: Vec<f64> = samples.iter().map(|sample| -sample).collect();
            let swapped = median_interval(&swapped, 0.95).unwrap();
            prop_assert_eq!((swapped.low, swapped.estimate, swapped.high), (-plain.high, -plain.estimate, -plain.low));
            prop_assert_eq!(swapped.coverage, plain.coverage);
        }

        #[test]
        fn a_higher_confidence_gives_a_wider_interval(samples in vec(-9.0..9.0, 1..60), one in 0.01..0.999, other in 0.01..0.999) {
            let (less, more) = (f64::min(one, other), f64::max(one, other));
            if let Some(wide) = median_interval(&samples, more) {
                let narrow = median_interval(&samples, less);
                prop_assert!(narrow.is_some_and(|narrow| wide.low <= narrow.low && narrow.high <= wide.high));
            }
        }

        #[test]
        fn arbitrary_values_do_not_panic(samples in vec(any::<f64>(), 0..40), confidence in any::<f64>()) {
            let broken = samples.iter().any(|sample| !sample.is_finite());
            prop_assert!(!broken || median_interval(&samples, 0.95).is_none());
            let _ = median_interval(&samples, confidence);
        }
    }
}
