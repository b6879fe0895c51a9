//! Holm's step-down correction for multiple tests: the probability that any of the findings is
//! false is at most `alpha`.
//!
//! Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
//! of Statistics 6 (1979). It does not assume that the tests are independent. Cells that are
//! compared with the same base are not.

use super::sample::real;

/// Says for each p-value of a family whether it is significant, in the given order. The probability
/// of one or more false findings is at most `alpha` (above 0, below 1).
///
/// The smallest p-value of m is compared with alpha/m, the next one with alpha/(m - 1), and so on.
/// After the first one that is too large, no other is significant. A p-value that is not between 0
/// and 1 counts as 1: it is not significant, but it is part of the family. If `alpha` is outside
/// its range, nothing is significant.
///
/// With n rounds no p-value of [`sign_test_p`](super::sign_test_p) is below 2^(1-n). So a family of
/// 20 at 5 % needs at least 10 rounds for a significant result.
#[must_use]
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<bool> {
    let mut significant = vec![false; p_values.len()];
    if !(alpha > 0.0 && alpha < 1.0) {
        return significant;
    }
    let usable = |p: f64| if (0.0..=1.0).contains(&p) { p } else { 1.0 };
    let mut ascending: Vec<(usize, f64)> = p_values.iter().copied().map(usable).enumerate().collect();
    ascending.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    for (remaining, (index, p)) in (1..=ascending.len()).rev().zip(ascending) {
        if p > alpha / real(remaining) {
            break;
        }
        significant[index] = true;
    }
    significant
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn step_down_by_hand() {
        // 0.005 ≤ 0.05/4 and 0.01 ≤ 0.05/3, but 0.03 > 0.05/2. So 0.04 is not significant either,
        // although it is below 0.05/1.
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005], 0.05), [true, false, false, true]);
        assert_eq!(holm(&[0.02, 0.03, 0.01], 0.05), [true; 3], "they are at most 0.05/3, 0.05/2 and 0.05");
        assert_eq!(holm(&[0.02, 0.02, 0.02], 0.05), [false; 3], "the first step already fails");
    }

    #[test]
    fn a_family_of_one_is_not_corrected() {
        assert_eq!(holm(&[0.05], 0.05), [true]);
        assert_eq!(holm(&[0.051], 0.05), [false]);
        assert_eq!(holm(&[], 0.05), Vec::<bool>::new());
    }

    #[test]
    fn invalid_values_are_not_significant_but_count_in_the_family() {
        assert_eq!(holm(&[f64::NAN, -1.0, 0.01, f64::INFINITY, -f64::NAN, 2.0], 0.05), [false; 6], "0.01 > 0.05/6");
        assert_eq!(holm(&[f64::NAN, 0.01], 0.05), [false, true]);
        for alpha in [f64::NAN, 0.0, 1.0, -0.05, 5.0] {
            assert_eq!(holm(&[0.0, 0.5], alpha), [false, false], "{alpha}");
        }
    }

    proptest! {
        #[test]
        fn a_smaller_p_is_significant_if_a_larger_one_is(p_values in vec(0.0..0.06, 0..12)) {
            let significant = holm(&p_values, 0.05);
            for (i, one) in p_values.iter().enumerate() {
                for (j, other) in p_values.iter().enumerate() {
                    prop_assert!(!significant[j] || one > other || significant[i]);
                }
            }
        }

        #[test]
        fn a_smaller_p_value_never_removes_a_finding(
            p_values in vec(0.0..0.06, 1..12), which in any::<prop::sample::Index>(), factor in 0.0..1.0,
        ) {
            let mut stronger = p_values.clone();
            *which.get_mut(&mut stronger) *= factor;
            for (before, after) in holm(&p_values, 0.05).into_iter().zip(holm(&stronger, 0.05)) {
                prop_assert!(!before || after);
            }
        }

        #[test]
        fn a_larger_alpha_or_a_smaller_family_never_removes_a_finding(p_values in vec(0.0..0.06, 1..12)) {
            let strict = holm(&p_values, 0.03);
            let lax = holm(&p_values, 0.05);
            prop_assert!(strict.iter().zip(&lax).all(|(strict, lax)| !strict || *lax));
            let fewer = holm(&p_values[1..], 0.03);
            prop_assert!(strict[1..].iter().zip(&fewer).all(|(strict, fewer)| !strict || *fewer));
        }

        #[test]
        fn holm_finds_at_least_as_much_as_bonferroni_and_at_most_as_much_as_no_correction(p_values in vec(0.0..0.06, 1..12)) {
            for (p, significant) in p_values.iter().zip(holm(&p_values, 0.05)) {
                prop_assert!(!significant || *p <= 0.05);
                prop_assert!(significant || *p > 0.05 / real(p_values.len()));
            }
        }

        #[test]
        fn arbitrary_values_do_not_panic(p_values in vec(any::<f64>(), 0..12), alpha in any::<f64>()) {
            prop_assert_eq!(holm(&p_values, alpha).len(), p_values.len());
        }
    }
}
