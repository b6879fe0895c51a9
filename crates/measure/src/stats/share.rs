//! The confidence interval of a share: how many of a number of trials had an outcome.
//!
//! E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of
//! the American Statistical Association 22 (1927). Unlike the normal approximation, it is valid for
//! shares near zero.

/// The quantile of the normal distribution for a confidence of 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// The interval that contains the share with a confidence of 95 %, from `count` of `trials`: its
/// low and high end, from 0 to 1. Without trials it is everything from 0 to 1.
pub fn share_interval(count: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let trials = trials as f64;
    let share = (count as f64 / trials).min(1.0);
    let scale = 1.0 + Z * Z / trials;
    let center = (share + Z * Z / (2.0 * trials)) / scale;
    let half = Z / scale * (share * (1.0 - share) / trials + Z * Z / (4.0 * trials * trials)).sqrt();
    // Without rounding errors at the ends.
    let low = if share == 0.0 { 0.0 } else { (center - half).max(0.0) };
    let high = if share == 1.0 { 1.0 } else { (center + half).min(1.0) };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_shares_are_those_of_the_literature() {
        let close = |(low, high): (f64, f64), expected: (f64, f64)| {
            assert!(
                (low - expected.0).abs() < 5e-4 && (high - expected.1).abs() < 5e-4,
                "{low} {high}, not {expected:?}"
            );
        };
        // R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        close(share_interval(81, 263), (0.2553, 0.3662));
        close(share_interval(15, 148), (0.0624, 0.1605));
        close(share_interval(0, 20), (0.0, 0.1611));
        assert_eq!((share_interval(0, 246).0, share_interval(246, 246).1), (0.0, 1.0));
        close(share_interval(1, 29), (0.0061, 0.1718));
    }

    #[test]
    fn impossible_counts_stay_within_zero_and_one() {
        assert_eq!(share_interval(0, 0), (0.0, 1.0));
        let (low, high) = share_interval(30, 20);
        assert!(low > 0.8 && high <= 1.0, "{low} {high}");
    }
}
