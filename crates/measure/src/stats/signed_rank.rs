//! The signed-rank test of paired samples.
//!
//! Source: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945).
//! Equal magnitudes share the mean of their ranks.
//!
//! It assumes that samples are distributed symmetrically about their median, and rejects more often
//! than the sign test, which does not: of normal samples it needs two thirds as many for the same
//! power. Ratios of two programs that take turns are symmetric if the programs are equal, because
//! nothing distinguishes one order from the other.
//!
//! Up to [`EXACT`] samples the p-value is exact. Above that, it is the normal approximation.

use super::rank_sum::normal_cdf;
use super::sample::real;

/// The maximum number of samples for which the distribution of the rank sum is computed exactly.
const EXACT: usize = 60;

/// The p-value of a one-sided signed-rank test. The null hypothesis is that the samples are
/// symmetric about a value of at most `margin`.
///
/// A sample exactly at the margin counts as below it, which is conservative. The result is 1 (no
/// evidence) if there are no samples, or if one of them or the margin is not finite.
#[must_use]
pub fn signed_rank_above_p(samples: &[f64], margin: f64) -> f64 {
    let mut distances: Vec<f64> = samples.iter().map(|sample| sample - margin).collect();
    if distances.iter().any(|distance| !distance.is_finite()) {
        return 1.0;
    }
    distances.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let ranks = doubled_ranks(&distances);
    let above = ranks.iter().zip(&distances).filter(|(_, distance)| **distance > 0.0).map(|(rank, _)| rank).sum();
    let p = if ranks.len() <= EXACT { exact_upper_tail(&ranks, above) } else { normal_upper_tail(&ranks, above) };
    p.clamp(0.0, 1.0)
}

/// Twice the rank of each distance, which are sorted by magnitude. Equal ones share the mean rank.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted.len());
    #[expect(clippy::float_cmp, reason = "only equal magnitudes are ties")]
    for ties in sorted.chunk_by(|a, b| a.abs() == b.abs()) {
        // The mean of the ranks first + 1 to first + ties, doubled.
        let first = ranks.len();
        ranks.extend(ties.iter().map(|_| 2 * first + ties.len() + 1));
    }
    ranks
}

/// P(sum ≥ `observed`), if each rank is in the sum with probability ½.
fn exact_upper_tail(doubled_ranks: &[usize], observed: usize) -> f64 {
    let total: usize = doubled_ranks.iter().sum();
    // probabilities[s] = P(the sum of the ranks so far is s)
    let mut probabilities = vec![0.0; total + 1];
    probabilities[0] = 1.0;
    for &rank in doubled_ranks {
        for sum in (0..=total).rev() {
            let with_rank = sum.checked_sub(rank).map_or(0.0, |rest| probabilities[rest]);
            probabilities[sum] = f64::midpoint(probabilities[sum], with_rank);
        }
    }
    // The smallest terms first.
    probabilities[observed..].iter().rev().sum()
}

fn normal_upper_tail(doubled_ranks: &[usize], observed: usize) -> f64 {
    let total: usize = doubled_ranks.iter().sum();
    let variance = doubled_ranks.iter().map(|&rank| real(rank).powi(2)).sum::<f64>() / 4.0;
    // Doubled sums are two apart without ties, so half of a step is 1.
    normal_cdf((real(total) / 2.0 - real(observed) + 1.0) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::super::sign_test_p;
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "exact results are compared exactly")]
    fn known_p_values() {
        // All of five samples are above: only one of 32 sets of signs has this sum.
        assert_eq!(signed_rank_above_p(&[0.1, 0.2, 0.3, 0.4, 0.5], 0.0), 1.0 / 32.0);
        // The smallest is below: the sums 14 and 15.
        assert_eq!(signed_rank_above_p(&[-0.1, 0.2, 0.3, 0.4, 0.5], 0.0), 2.0 / 32.0);
        // The second is below: 13 = 15 - 2, and 14 and 15.
        assert_eq!(signed_rank_above_p(&[0.1, -0.2, 0.3, 0.4, 0.5], 0.0), 3.0 / 32.0);
        assert_eq!(signed_rank_above_p(&[-0.1, -0.2], 0.0), 1.0);
        // The ranks of equal magnitudes are 1.5 and 1.5: either sign gives 1.5 or more in three of four sets.
        assert_eq!(signed_rank_above_p(&[0.1, -0.1], 0.0), 3.0 / 4.0);
        assert_eq!(signed_rank_above_p(&[0.1, 0.1], 0.1), 1.0, "a sample at the margin is not above it");
    }

    #[test]
    fn the_table_of_critical_values_agrees() {
        // One-sided 5 % for n = 10: a rank sum of the others of at most 10 (F. Wilcoxon's table).
        let with_others = |others: &[usize]| {
            let sample = |rank: usize| if others.contains(&rank) { -real(rank) } else { real(rank) };
            signed_rank_above_p(&(1..=10).map(sample).collect::<Vec<_>>(), 0.0)
        };
        assert!(with_others(&[10]) <= 0.05 && with_others(&[1, 10]) > 0.05);
    }

    #[test]
    fn the_approximation_meets_the_exact_distribution() {
        let ranks: Vec<usize> = (1..=EXACT).map(|rank| 2 * rank).collect();
        let total: usize = ranks.iter().sum();
        for observed in [total / 2, total * 3 / 5, total * 7 / 10] {
            let observed = observed / 2 * 2;
            let (exact, normal) = (exact_upper_tail(&ranks, observed), normal_upper_tail(&ranks, observed));
            assert!((exact - normal).abs() < 0.001, "{observed}: {exact} {normal}");
        }
    }

    #[test]
    fn it_finds_a_shift_that_the_sign_test_does_not() {
        // Four of sixteen are below the margin, all of them near it.
        let samples = [0.3, 0.25, -0.01, 0.2, 0.4, -0.02, 0.3, 0.35, 0.22, -0.01, 0.28, 0.3, -0.015, 0.31, 0.27, 0.33];
        assert!(signed_rank_above_p(&samples, 0.0) < 0.001);
        assert!(sign_test_p(&samples, 0.0) / 2.0 > 0.03);
    }

    #[test]
    fn without_evidence_p_is_one() {
        for (samples, margin) in
            [(&[][..], 0.0), (&[f64::NAN; 20], 0.0), (&[1.0; 20], f64::NAN), (&[1.0; 20], f64::INFINITY)]
        {
            assert!(signed_rank_above_p(samples, margin) >= 1.0, "{samples:?} {margin}");
        }
    }

    proptest! {
        #[test]
        fn p_is_always_a_probability(samples in vec(any::<f64>(), 0..90), margin in any::<f64>()) {
            let p = signed_rank_above_p(&samples, margin);
            prop_assert!((0.0..=1.0).contains(&p));
        }

        #[test]
        fn p_grows_with_the_margin(samples in vec(-1.0..2.0, 1..30), one in -1.0..1.0, other in -1.0..1.0) {
            let (near, far) = (f64::min(one, other), f64::max(one, other));
            prop_assert!(signed_rank_above_p(&samples, near) <= signed_rank_above_p(&samples, far) + 1e-12);
        }
    }
}
