//! The null distribution of the Wilcoxon–Mann–Whitney statistic U. For n values of A and m values
//! of B from the same distribution, U is the number of the n·m pairs in which B is less than A.
//!
//! Up to [`EXACT_PAIRS`] the distribution is exact. It uses the recurrence of H. B. Mann and D. R.
//! Whitney, "On a test of whether one of two random variables is stochastically larger than the
//! other", Annals of Mathematical Statistics 18 (1947), written in probabilities: the greatest of
//! i + j values is one of the i with probability i / (i + j). All terms are positive, so there is
//! no overflow and no cancellation. Above that, it is the normal approximation with continuity
//! correction.

use super::sample::real;

/// The maximum number of pairs (60 × 60) for which the distribution is exact. At 60 × 60 the error
/// of the approximation is less than 0.0007, and the 95 % interval is the same. With unequal
/// numbers of samples the error is larger, and makes the interval wider.
pub(super) const EXACT_PAIRS: usize = 3_600;

/// P(U ≤ 0), P(U ≤ 1), … for n and m values, up to and including half the number of pairs. The
/// distribution of U is symmetric.
pub(super) fn lower_tails(n: usize, m: usize) -> Box<dyn Iterator<Item = f64>> {
    if n * m <= EXACT_PAIRS { Box::new(exact_tails(n, m)) } else { Box::new(normal_tails(n, m)) }
}

fn exact_tails(n: usize, m: usize) -> impl Iterator<Item = f64> {
    // Both orders give the same distribution. A fixed order also gives the same rounding errors.
    let (fewer, more) = (n.min(m), n.max(m));
    let half = fewer * more / 2;
    // by_more[j][u] = P(U = u) for i and j values. The recurrence updates it in place for each i.
    let mut by_more = vec![vec![1.0]; more + 1];
    for i in 1..=fewer {
        for j in 1..=more {
            let total = real(i + j);
            let mut row = vec![0.0; half.min(i * j) + 1];
            // If the greatest value is one of the i, all j values are below it. If it is one of the
            // j, it adds nothing to U.
            for (slot, p) in row.iter_mut().skip(j).zip(&by_more[j]) {
                *slot += real(i) / total * p;
            }
            for (slot, p) in row.iter_mut().zip(&by_more[j - 1]) {
                *slot += real(j) / total * p;
            }
            by_more[j] = row;
        }
    }
    let probabilities = by_more.swap_remove(more);
    probabilities.into_iter().scan(0.0, |tail, probability| {
        *tail += probability;
        Some(*tail)
    })
}

fn normal_tails(n: usize, m: usize) -> impl Iterator<Item = f64> {
    let pairs = real(n) * real(m);
    let sd = (pairs * real(n + m + 1) / 12.0).sqrt();
    (0..=n * m / 2).map(move |u| normal_cdf((real(u) + 0.5 - pairs / 2.0) / sd))
}

/// The standard normal distribution function, with an error of about 1e-15. It uses the series of
/// G. Marsaglia, "Evaluating the normal distribution", Journal of Statistical Software 11(4)
/// (2004).
pub(super) fn normal_cdf(x: f64) -> f64 {
    if x < -8.0 {
        return 0.0;
    }
    if x > 8.0 {
        return 1.0;
    }
    let (mut sum, mut previous, mut term, mut odd) = (x, 0.0, x, 1.0);
    #[expect(clippy::float_cmp, reason = "the series ends when a term no longer changes the sum")]
    while sum != previous {
        previous = sum;
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    (0.5 + sum * density).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(U ≤ u), from an enumeration of all ways to choose the n of the n + m ranks that belong to
    /// A.
    fn enumerated(n: u32, m: u32) -> Vec<f64> {
        let mut counts = vec![0_u32; (n * m) as usize + 1];
        for chosen in 0_u32..1 << (n + m) {
            if chosen.count_ones() == n {
                let ranks: u32 = (0..n + m).filter(|rank| chosen >> rank & 1 == 1).sum();
                counts[(ranks - n * (n - 1) / 2) as usize] += 1;
            }
        }
        let all: u32 = counts.iter().sum();
        let mut running = 0;
        counts
            .iter()
            .map(|count| {
                running += count;
                f64::from(running) / f64::from(all)
            })
            .collect()
    }

    #[test]
    fn exact_tails_agree_with_enumeration() {
        for n in 1..=6 {
            for m in 1..=7 {
                let tails: Vec<f64> = exact_tails(n as usize, m as usize).collect();
                assert_eq!(tails.len(), (n * m / 2) as usize + 1, "{n} and {m}");
                for (u, (tail, expected)) in tails.iter().zip(enumerated(n, m)).enumerate() {
                    assert!((tail - expected).abs() < 1e-14, "{n} and {m}, u = {u}: {tail} against {expected}");
                }
            }
        }
    }

    #[test]
    fn critical_values_of_the_printed_table() {
        // n, m and the greatest u with P(U ≤ u) ≤ 0.025, from the usual table in textbooks.
        let table = [(3, 5, 0), (4, 4, 0), (5, 5, 2), (5, 8, 6), (6, 6, 5), (8, 8, 13), (10, 10, 23), (10, 15, 39)];
        for (n, m, critical) in table.into_iter().chain([(12, 12, 37), (15, 15, 64), (20, 20, 127)]) {
            assert_eq!(exact_tails(n, m).take_while(|tail| *tail <= 0.025).count(), critical + 1, "{n} and {m}");
        }
        assert_eq!(exact_tails(3, 4).take_while(|tail| *tail <= 0.025).count(), 0, "3 and 4 samples are too few");
    }

    #[test]
    fn the_lower_half_has_probability_one_half() {
        // With an odd number of pairs the lower half of U holds exactly half the probability.
        for (n, m) in [(1, 1), (7, 9), (25, 31), (59, 61)] {
            let half = exact_tails(n, m).last().unwrap();
            assert!((half - 0.5).abs() < 1e-12, "{n} and {m}: {half}");
        }
    }

    #[test]
    fn the_approximation_is_close_to_the_exact_distribution_at_the_limit() {
        // 3,600 pairs each, with increasingly unequal sides, and the maximum error of the
        // approximation.
        for (n, m, allowed) in [(60, 60, 0.000_7), (36, 100, 0.000_85), (12, 300, 0.002_5), (3, 1_200, 0.01)] {
            for (exact, normal) in exact_tails(n, m).zip(normal_tails(n, m)) {
                assert!((normal - exact).abs() < allowed, "{n} and {m}: {normal} for {exact}");
                // Near the tail of a 95 % interval, the error always makes the interval wider.
                let excess = 0.0..allowed / 2.0;
                assert!(!(0.02..0.03).contains(&exact) || excess.contains(&(normal - exact)), "{n} and {m}: {normal}");
            }
        }
        let rank = |tails: &mut dyn Iterator<Item = f64>| tails.take_while(|tail| *tail <= 0.025).count();
        assert_eq!(rank(&mut normal_tails(60, 60)), rank(&mut exact_tails(60, 60)));
    }

    #[test]
    fn known_normal_probabilities() {
        for (x, expected) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (1.959_963_984_540_054, 0.975),
            (3.0, 0.998_650_101_968_37),
            (6.0, 0.999_999_999_013_412_3),
        ] {
            assert!((normal_cdf(x) - expected).abs() < 1e-14, "{x}: {}", normal_cdf(x));
            assert!((normal_cdf(-x) - (1.0 - expected)).abs() < 1e-14, "-{x}: {}", normal_cdf(-x));
        }
        assert_eq!((normal_cdf(-40.0), normal_cdf(40.0)), (0.0, 1.0));
    }
}
