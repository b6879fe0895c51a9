//! The sign test, and the distribution Bin(n, ½), which the intervals of order statistics use too.
//!
//! Source: W. J. Dixon and A. M. Mood, "The statistical sign test", Journal of the American
//! Statistical Association 41 (1946).
//!
//! The tails are sums of binomial coefficients. They are exact in an `f64` if the coefficients are
//! below 2^53 (n ≤ 56). For thousands of samples the relative error is a few parts in 10^13.

use super::sample::real;

/// An exponent of two. A running sum of coefficients above that power is divided by it, without
/// loss.
const SCALE: i32 = 500;

/// The exact two-sided p-value of a sign test. The null hypothesis is that the median lies within
/// ±`margin`.
///
/// Samples and margin are ln ratios. With margin 0 this is the ordinary sign test. It agrees with
/// [`median_interval`](super::median_interval): p ≤ 1 - confidence exactly if the whole interval
/// lies outside ±`margin`. The one-sided p-value in the direction of the median is half of this
/// one.
///
/// A sample exactly at the margin counts as within it, which is conservative. The result is 1 (no
/// evidence) if there are no samples, if one is not finite, or if the margin is negative or not
/// finite.
#[must_use]
pub fn sign_test_p(samples: &[f64], margin: f64) -> f64 {
    let usable = margin.is_finite() && margin >= 0.0 && samples.iter().all(|sample| sample.is_finite());
    if !usable {
        return 1.0;
    }
    let above = samples.iter().filter(|sample| **sample > margin).count();
    let below = samples.iter().filter(|sample| **sample < -margin).count();
    let others = samples.len() - above.max(below);
    lower_tails(samples.len()).nth(others).map_or(1.0, |tail| f64::min(1.0, 2.0 * tail))
}

/// P(Bin(n, ½) ≤ 0), P(Bin(n, ½) ≤ 1), …, P(Bin(n, ½) ≤ n). Tails below 2^-500 may be 0.
pub(super) fn lower_tails(n: usize) -> impl Iterator<Item = f64> {
    let mut coefficient = 1.0; // C(n, i) · 2^(exponent - n)
    let mut sum = 0.0; // the sum of the coefficients so far
    let mut exponent = i32::try_from(n).unwrap_or(i32::MAX); // the tail is sum / 2^exponent
    (0..=n).map(move |i| {
        sum += coefficient;
        coefficient = coefficient * real(n - i) / real(i + 1);
        if sum > 2.0_f64.powi(SCALE) {
            sum *= 2.0_f64.powi(-SCALE);
            coefficient *= 2.0_f64.powi(-SCALE);
            exponent -= SCALE;
        }
        sum * 2.0_f64.powi(-exponent)
    })
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are compared exactly")]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::super::{Interval, median_interval};
    use super::*;

    #[test]
    fn tails_are_exact_in_integers() {
        for n in 1..=120_u32 {
            let (mut coefficient, mut sum) = (1_u128, 0_u128);
            for (i, tail) in (0..=u128::from(n)).zip(lower_tails(n as usize)) {
                sum += coefficient;
                coefficient = coefficient * (u128::from(n) - i) / (i + 1);
                #[expect(clippy::cast_precision_loss, reason = "rounded once, to compare")]
                let exact = sum as f64 / 2.0_f64.powi(i32::try_from(n).unwrap());
                let allowed = if n <= 50 { 0.0 } else { exact * 1e-13 };
                assert!((tail - exact).abs() <= allowed, "n = {n}, i = {i}: {tail} against {exact}");
            }
        }
    }

    #[test]
    fn large_tails_are_symmetric_and_end_at_one() {
        for n in [1_001_usize, 2_000, 5_001, 10_000] {
            let tails: Vec<f64> = lower_tails(n).collect();
            assert_eq!(tails.len(), n + 1);
            assert!((tails[n] - 1.0).abs() < 1e-11, "n = {n}: {}", tails[n]);
            for i in [n / 2 - 40, n / 2 - 1, (n - 1) / 2] {
                assert!((tails[i] + tails[n - 1 - i] - 1.0).abs() < 1e-11, "n = {n}, i = {i}");
            }
        }
    }

    #[test]
    fn known_p_values() {
        let all_up = [0.1; 6];
        assert_eq!(sign_test_p(&all_up, 0.0), 2.0 / 64.0);
        assert_eq!(sign_test_p(&all_up, 0.05), 2.0 / 64.0);
        assert_eq!(sign_test_p(&all_up, 0.1), 1.0, "a sample at the margin is within it");
        assert_eq!(sign_test_p(&[-0.1; 6], 0.05), 2.0 / 64.0);
        // 10 of 12 samples are above the margin: 2·(1 + 12 + 66) / 4096.
        let mut ten_of_twelve = [0.3; 12];
        ten_of_twelve[3] = -0.3;
        ten_of_twelve[8] = 0.01;
        assert_eq!(sign_test_p(&ten_of_twelve, 0.02), 158.0 / 4096.0);
        assert_eq!(sign_test_p(&[1.0, -1.0, 1.0, -1.0], 0.0), 1.0);
    }

    #[test]
    fn without_evidence_p_is_one() {
        assert_eq!(sign_test_p(&[], 0.0), 1.0);
        assert_eq!(sign_test_p(&[f64::NAN; 20], 0.0), 1.0);
        assert_eq!(sign_test_p(&[f64::INFINITY; 20], 0.0), 1.0);
        for margin in [f64::NAN, f64::INFINITY, -0.1] {
            assert_eq!(sign_test_p(&[1.0; 20], margin), 1.0, "{margin}");
        }
    }

    proptest! {
        #[test]
        fn the_test_agrees_with_the_interval(
            samples in vec(-1.0..2.0, 6..30), margin in 0.0..0.5, confidence in 0.5..0.99,
        ) {
            if let Some(Interval { low, high, .. }) = median_interval(&samples, confidence) {
                let beyond = low > margin || high < -margin;
                prop_assert_eq!(sign_test_p(&samples, margin) <= 1.0 - confidence, beyond);
            }
        }

        #[test]
        fn p_does_not_depend_on_the_sign_and_grows_with_the_margin(
            samples in vec(-1.0..2.0, 1..30), one in 0.0..1.0, other in 0.0..1.0,
        ) {
            let swapped: Vec<f64> = samples.iter().map(|sample| -sample).collect();
            prop_assert_eq!(sign_test_p(&samples, one), sign_test_p(&swapped, one));
            let (near, far) = (f64::min(one, other), f64::max(one, other));
            prop_assert!(sign_test_p(&samples, near) <= sign_test_p(&samples, far));
        }

        #[test]
        fn p_is_always_a_probability(samples in vec(any::<f64>(), 0..30), margin in any::<f64>()) {
            let p = sign_test_p(&samples, margin);
            prop_assert!(p > 0.0 && p <= 1.0);
        }
    }
}
