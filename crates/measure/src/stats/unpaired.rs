//! The unpaired comparison of two records that share no rounds: the shift of B relative to A.
//!
//! The estimate is the median of all differences b - a. The ends of the interval are the c-th
//! smallest and the c-th largest difference. They enclose the true shift with probability
//! 1 - 2·P(U ≤ c-1), where U is the Wilcoxon–Mann–Whitney statistic.
//!
//! Sources: J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Annals of
//! Mathematical Statistics 34 (1963); M. Hollander and D. A. Wolfe, *Nonparametric Statistical
//! Methods*, 2nd ed. (1999), 4.2 and 4.3.

use super::interval::{self, Interval};
use super::{rank_sum, sample};

/// The Hodges–Lehmann estimate of the shift from `a` to `b`, and its confidence interval. The
/// interval is the narrowest symmetric one whose coverage is at least `confidence` (above 0, below
/// 1).
///
/// `a` and `b` contain one *log value* per instance: ln of the metric, or its negative if less is
/// better. The shift is then a ln ratio, and positive means "B better than A".
///
/// Assumptions: the distributions of A and B differ only by the shift, and instances are
/// independent. If the machine drifts between the two records, the drift is part of the shift.
///
/// The coverage is exact up to 3,600 pairs (60 and 60 samples). Above that, it is the normal
/// approximation with continuity correction, which at 95 % makes the interval wider rather than
/// narrower. Ties can only raise the coverage. Time and memory grow with the number of pairs.
///
/// `None` if there are too few samples for the confidence (at 95 %, 3 and 3 are too few, 4 and 4
/// are enough), if a value or a difference is not finite, or if the confidence is outside its
/// range.
#[must_use]
pub fn shift_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    let differences = sample::in_order(&differences(a, b))?;
    interval::between_ranks(&differences, rank_sum::lower_tails(a.len(), b.len()), confidence)
}

/// The two-sided p-value of a rank-sum test. The null hypothesis is that the shift from `a` to `b`
/// lies within ±`margin`.
///
/// `a` and `b` are as in [`shift_interval`], and `margin` is a ln ratio. The test agrees with that
/// interval: p ≤ 1 - confidence exactly if the whole interval lies outside ±`margin`. The
/// one-sided p-value in the direction of the shift is half of this one.
///
/// A difference exactly at the margin counts as within it. The result is 1 (no evidence) if a side
/// has no samples, if a value or a difference is not finite, or if the margin is negative or not
/// finite.
#[must_use]
pub fn shift_test_p(a: &[f64], b: &[f64], margin: f64) -> f64 {
    let differences = differences(a, b);
    let usable = margin.is_finite() && margin >= 0.0 && differences.iter().all(|difference| difference.is_finite());
    if !usable || differences.is_empty() {
        return 1.0;
    }
    let above = differences.iter().filter(|difference| **difference > margin).count();
    let below = differences.iter().filter(|difference| **difference < -margin).count();
    let others = differences.len() - above.max(below);
    // The tails end at the middle of the distribution. Above it there is no evidence.
    rank_sum::lower_tails(a.len(), b.len()).nth(others).map_or(1.0, |tail| f64::min(1.0, 2.0 * tail))
}

/// The one-sided p-value of a rank-sum test. The null hypothesis is that the shift from `a` to `b`
/// is at least `limit`; a small value shows that it is less.
///
/// `a` and `b` are as in [`shift_interval`]; `limit` is a ln ratio. The result is 1 (no evidence)
/// if a side has no samples, or if a value, a difference or the limit is not finite.
#[must_use]
pub fn shift_below_p(a: &[f64], b: &[f64], limit: f64) -> f64 {
    let differences = differences(a, b);
    let usable = limit.is_finite() && differences.iter().all(|difference| difference.is_finite());
    if !usable || differences.is_empty() {
        return 1.0;
    }
    let others = differences.iter().filter(|difference| **difference >= limit).count();
    rank_sum::lower_tails(a.len(), b.len()).nth(others).unwrap_or(1.0)
}

/// b - a for every pair.
fn differences(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are compared exactly")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn one_sided_test_by_hand() {
        // Every value of b is below every value of a: one of the C(8, 4) = 70 arrangements.
        let (a, b) = ([5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0]);
        assert!((shift_below_p(&a, &b, 0.0) - 1.0 / 70.0).abs() < 1e-14);
        assert_eq!(shift_below_p(&b, &a, 0.0), 1.0);
        assert!(shift_below_p(&a, &b, -4.0) > 0.3, "a shift of -4 is not below -4");
        assert_eq!(shift_below_p(&a, &[], 0.0), 1.0);
        assert_eq!(shift_below_p(&a, &[f64::NAN], 0.0), 1.0);
        assert_eq!(shift_below_p(&a, &b, f64::NAN), 1.0);
    }

    #[test]
    fn four_and_four_by_hand() {
        let (a, b) = ([1.0, 2.0, 4.0, 8.0], [3.0, 11.0, 13.0, 20.0]);
        // Sorted differences: -5 -1 1 2 3 5 7 9 9 10 11 12 12 16 18 19. One of the C(8, 4) = 70
        // arrangements has U = 0.
        let interval = shift_interval(&a, &b, 0.95).unwrap();
        assert_eq!((interval.estimate, interval.low, interval.high), (9.0, -5.0, 19.0));
        assert!((interval.coverage - 68.0 / 70.0).abs() < 1e-14);
        // At 80 %: P(U ≤ 0, 1, 2, 3) = 1/70, 2/70, 4/70, 7/70. So the ends are the 4th differences
        // from both ends, and the coverage is 1 - 14/70.
        let interval = shift_interval(&a, &b, 0.80).unwrap();
        assert_eq!((interval.low, interval.high), (2.0, 12.0));
        assert!((interval.coverage - 0.8).abs() < 1e-14);
    }

    #[test]
    fn too_few_samples_give_no_interval() {
        let samples = [0.1, 0.2, 0.3];
        assert_eq!(shift_interval(&samples, &samples, 0.95), None);
        assert!((shift_interval(&samples, &samples, 0.90).unwrap().coverage - 0.9).abs() < 1e-14);
        assert_eq!(shift_interval(&[], &samples, 0.5), None);
        assert_eq!(shift_interval(&samples, &[], 0.5), None);
        assert_eq!(shift_interval(&[], &[], 0.5), None);
        assert_eq!(shift_interval(&[f64::MAX; 9], &[-f64::MAX; 9], 0.95), None, "the differences overflow");
    }

    #[test]
    fn known_p_values() {
        let (low, high) = ([0.1, 0.2, 0.3, 0.4], [1.1, 1.2, 1.3, 1.4]);
        assert!((shift_test_p(&low, &high, 0.0) - 2.0 / 70.0).abs() < 1e-14);
        assert!((shift_test_p(&high, &low, 0.5) - 2.0 / 70.0).abs() < 1e-14);
        assert_eq!(shift_test_p(&low, &high, 1.5), 1.0);
        assert_eq!(shift_test_p(&low, &low, 0.0), 1.0);
        // One pair is reversed, so U = 1. Two of the 70 arrangements have U ≤ 1.
        assert!((shift_test_p(&[1.0, 2.0, 3.0, 5.0], &[4.0, 6.0, 7.0, 8.0], 0.0) - 4.0 / 70.0).abs() < 1e-14);
    }

    #[test]
    fn without_evidence_p_is_one() {
        let fine = [1.0; 20];
        for broken in [&[][..], &[f64::NAN; 20], &[f64::INFINITY; 20]] {
            assert_eq!(shift_test_p(broken, &fine, 0.0), 1.0);
            assert_eq!(shift_test_p(&fine, broken, 0.0), 1.0);
        }
        for margin in [f64::NAN, f64::INFINITY, -0.1] {
            assert_eq!(shift_test_p(&[0.0; 20], &fine, margin), 1.0, "{margin}");
        }
    }

    proptest! {
        #[test]
        fn the_interval_contains_its_estimate_and_widens_with_confidence(
            a in vec(-9.0..9.0, 1..12), b in vec(-9.0..9.0, 1..12), one in 0.01..0.999, other in 0.01..0.999,
        ) {
            let (less, more) = (f64::min(one, other), f64::max(one, other));
            if let Some(wide) = shift_interval(&a, &b, more) {
                prop_assert!(wide.low <= wide.estimate && wide.estimate <= wide.high);
                prop_assert!(wide.coverage >= more - 1e-12 && wide.coverage <= 1.0);
                let narrow = shift_interval(&a, &b, less);
                prop_assert!(narrow.is_some_and(|narrow| wide.low <= narrow.low && narrow.high <= wide.high));
            }
        }

        #[test]
        fn swapping_a_and_b_mirrors_the_interval(a in vec(-9.0..9.0, 4..12), b in vec(-9.0..9.0, 4..12), margin in 0.0..9.0) {
            let plain = shift_interval(&a, &b, 0.95).unwrap();
            let swapped = shift_interval(&b, &a, 0.95).unwrap();
            prop_assert_eq!((swapped.low, swapped.estimate, swapped.high), (-plain.high, -plain.estimate, -plain.low));
            prop_assert_eq!(swapped.coverage, plain.coverage);
            prop_assert_eq!(shift_test_p(&a, &b, margin), shift_test_p(&b, &a, margin));
        }

        #[test]
        fn the_interval_shifts_with_b(a in vec(-9.0..9.0, 4..12), b in vec(-9.0..9.0, 4..12), shift in -9.0..9.0_f64) {
            let plain = shift_interval(&a, &b, 0.95).unwrap();
            let moved: Vec<f64> = b.iter().map(|b| b + shift).collect();
            let moved = shift_interval(&a, &moved, 0.95).unwrap();
            for (moved, plain) in [(moved.low, plain.low), (moved.estimate, plain.estimate), (moved.high, plain.high)] {
                prop_assert!((moved - plain - shift).abs() < 1e-12);
            }
        }

        #[test]
        fn the_test_agrees_with_the_interval(
            a in vec(-1.0..1.0, 4..12), b in vec(-1.0..3.0, 4..12), margin in 0.0..1.0, confidence in 0.5..0.97,
        ) {
            if let Some(Interval { low, high, .. }) = shift_interval(&a, &b, confidence) {
                let beyond = low > margin || high < -margin;
                prop_assert_eq!(shift_test_p(&a, &b, margin) <= 1.0 - confidence, beyond);
            }
        }

        #[test]
        fn arbitrary_values_do_not_panic(
            a in vec(any::<f64>(), 0..9), b in vec(any::<f64>(), 0..9), confidence in any::<f64>(), margin in any::<f64>(),
        ) {
            let _ = shift_interval(&a, &b, confidence);
            let broken = a.iter().chain(&b).any(|sample| !sample.is_finite());
            prop_assert!(!broken || shift_interval(&a, &b, 0.9).is_none());
            let p = shift_test_p(&a, &b, margin);
            prop_assert!((0.0..=1.0).contains(&p));
        }
    }
}
