//! Drift: how much the machine itself changed between two records, and with which uncertainty.
//!
//! An anchor is a case of a reference ring that both records contain. The same program ran in both,
//! so its shift is the machine's. The drift is the median of the anchors' shifts. It is subtracted
//! from every other change.
//!
//! The estimate is uncertain for two reasons. The anchors themselves are noisy, and a machine does
//! not drift evenly. For example, a host that moves one virtual core to another socket slows
//! spinning mechanisms, but not sleeping ones. Both reasons make the anchors disagree, so the
//! drift's interval is the range of their shifts. Of many anchors, the outermost twentieth on each
//! side is left out: one bad cell among 30 is no drift.
//!
//! With at least [`MIN_ANCHORS`] anchors, the ends of this range are order statistics that enclose
//! the median with over 97.5 %. With fewer, no range can reach that. Then the interval also extends
//! to either side of the median by at least the half width of a typical anchor.
//!
//! The drift's interval widens the interval of every change: the drift's upper end is subtracted
//! from the shift's lower end, and the drift's lower end from the shift's upper end. Each interval
//! has a coverage of 97.5 %, so both together hold with at least 95 % (Bonferroni).
//!
//! The table shows the limits of this method, from the simulation below (a drift of 20 %, noise of
//! 3 % per instance, 12 rounds). It has the percentage of unchanged cases that are called faster or
//! slower. Its columns differ in the standard deviation of the drift from cell to cell.
//!
//! | anchors | even | 3 % | 10 % |
//! |---|---|---|---|
//! | 1 | 0 % | 3 % | 47 % |
//! | 4 | 0 % | 0 % | 17 % |
//! | 7 | 0 % | 0 % | 7 % |
//! | 30 | 0 % | 0 % | 3 % |
//!
//! So too few anchors cannot detect a very uneven drift. A comparison of two records is weaker than
//! one with interleaved rounds.

use estafette_measure::stats::{CONFIDENCE, Interval, Margins, median};
use serde::Serialize;

/// The coverage of the shift's interval and of the drift's. Both together reach [`CONFIDENCE`].
pub(crate) const INTERVAL_COVERAGE: f64 = 1.0 - (1.0 - CONFIDENCE) / 2.0;
/// The minimum number of anchors whose range reaches [`INTERVAL_COVERAGE`].
///
/// The minimum and the maximum of 7 samples enclose their median with 1 - 2^-6, 98.4 %. Those of 6
/// samples enclose it with less than [`INTERVAL_COVERAGE`].
const MIN_ANCHORS: usize = 7;

/// The machine's change from A to B, as a ln ratio; positive if it was faster in B.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Drift {
    /// The number of anchors.
    pub(crate) anchors: usize,
    #[serde(flatten)]
    pub(crate) interval: Interval,
}

impl Drift {
    /// Estimates the drift from the shifts of the anchors; `None` without anchors.
    pub(super) fn of(anchors: &[Interval]) -> Option<Drift> {
        let mut shifts: Vec<f64> = anchors.iter().map(|anchor| anchor.estimate).collect();
        shifts.sort_by(f64::total_cmp);
        let widths: Vec<f64> = anchors.iter().map(Interval::half_width).collect();
        let (estimate, width) = (median(&shifts)?, median(&widths)?);
        let count = shifts.len();
        let outermost = count / 20;
        let (low, high) = (shifts[outermost], shifts[count - 1 - outermost]);
        let interval = if count < MIN_ANCHORS {
            let coverage = anchors.iter().map(|anchor| anchor.coverage).fold(1.0, f64::min);
            Interval { estimate, low: low.min(estimate - width), high: high.max(estimate + width), coverage }
        } else {
            Interval { estimate, low, high, coverage: INTERVAL_COVERAGE }
        };
        Some(Drift { anchors: count, interval })
    }

    /// Whether there are too few anchors for their range to reach [`INTERVAL_COVERAGE`].
    pub(crate) fn has_few_anchors(&self) -> bool {
        self.anchors < MIN_ANCHORS
    }

    /// Whether the anchors disagree so much that no case can be equivalent, and few can be faster
    /// or slower.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.interval.half_width() > Margins::default().equivalent.ln_1p()
    }

    /// Subtracts the drift from a shift, and widens its interval by the drift's.
    pub(super) fn subtract_from(&self, shift: &Interval) -> Interval {
        Interval {
            estimate: shift.estimate - self.interval.estimate,
            low: shift.low - self.interval.high,
            high: shift.high - self.interval.low,
            coverage: shift.coverage + self.interval.coverage - 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use estafette_measure::stats::{Margins, Verdict, noise_floor, shift_interval, verdict};
    use fastrand::Rng;

    use super::*;

    fn at(estimate: f64, half_width: f64) -> Interval {
        Interval { estimate, low: estimate - half_width, high: estimate + half_width, coverage: 0.98 }
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn without_anchors_the_drift_is_unknown() {
        assert_eq!(Drift::of(&[]), None);
    }

    fn of(anchors: &[Interval]) -> Drift {
        Drift::of(anchors).expect("there are anchors")
    }

    #[test]
    fn one_anchor_gives_its_own_interval() {
        let drift = of(&[at(0.1, 0.04)]).interval;
        assert!(near(drift.low, 0.06) && near(drift.high, 0.14) && near(drift.coverage, 0.98));
    }

    #[test]
    fn few_anchors_give_no_narrower_interval_than_a_typical_one() {
        let drift = of(&[at(0.10, 0.04), at(0.11, 0.03), at(0.09, 0.09)]).interval;
        assert!(near(drift.estimate, 0.10) && near(drift.low, 0.06) && near(drift.high, 0.14));
        let apart = of(&[at(-0.5, 0.01), at(0.0, 0.01), at(0.3, 0.01)]).interval;
        assert!(near(apart.low, -0.5) && near(apart.high, 0.3), "the interval contains all shifts");
    }

    #[test]
    fn the_interval_of_many_anchors_leaves_out_the_outermost_twentieth() {
        let shifts = |count: u32| (0..count).map(|n| at(f64::from(n), 50.0)).collect::<Vec<_>>();
        let drift = |count| of(&shifts(count)).interval;
        assert!(near(drift(7).low, 0.0) && near(drift(7).high, 6.0));
        assert!(near(drift(19).low, 0.0) && near(drift(19).high, 18.0));
        assert!(near(drift(30).low, 1.0) && near(drift(30).high, 28.0) && near(drift(30).estimate, 14.5));
    }

    #[test]
    fn the_interval_of_the_drift_widens_that_of_a_change() {
        let change = of(&[at(0.1, 0.04)]).subtract_from(&at(0.5, 0.1));
        assert!(near(change.estimate, 0.4) && near(change.low, 0.26) && near(change.high, 0.54));
        assert!(near(change.coverage, 0.96));
    }

    fn normal(rng: &mut Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
    }

    /// Simulates pairs of records of one machine with a drift of 20 % and noise of 3 % per
    /// instance.
    ///
    /// `uneven` is the standard deviation of the drift from cell to cell. A case improves by
    /// `effect`. Returns the share of trials in which its interval contains `effect`, and the share
    /// in which its verdict is faster or slower.
    fn simulate(effect: f64, anchors: usize, uneven: f64, rounds: usize, rng: &mut Rng) -> (f64, f64) {
        const TRIALS: usize = 200;
        const NOISE: f64 = 0.03;
        let (mut covered, mut decided) = (0, 0);
        for _ in 0..TRIALS {
            let shift = |effect: f64, rng: &mut Rng| {
                let moved = 0.2 + effect + uneven * normal(rng);
                let mut record = |centre: f64| (0..rounds).map(|_| centre + NOISE * normal(rng)).collect::<Vec<_>>();
                shift_interval(&record(0.0), &record(moved), INTERVAL_COVERAGE).unwrap()
            };
            let shifts: Vec<_> = (0..anchors).map(|_| shift(0.0, rng)).collect();
            let change = of(&shifts).subtract_from(&shift(effect, rng));
            let mut floor = || {
                let control_pairs: Vec<_> = (0..rounds).map(|_| NOISE * (normal(rng) - normal(rng))).collect();
                noise_floor(&control_pairs).unwrap()
            };
            let verdict = verdict(Some(&change), Some(floor().max(floor())), Margins::default());
            covered += usize::from(change.low <= effect && effect <= change.high);
            decided += usize::from(matches!(verdict, Verdict::Faster | Verdict::Slower));
        }
        (covered as f64 / TRIALS as f64, decided as f64 / TRIALS as f64)
    }

    /// `cargo test -p estafette-cli simulation -- --nocapture` prints the figures.
    #[test]
    fn simulation_intervals_contain_the_effect_and_unchanged_cases_stay_undecided() {
        let mut rng = Rng::with_seed(1);
        println!("anchors uneven rounds covered unchanged decided   16 % found   30 % found   (percent)");
        for anchors in [1, 4, 7, 30] {
            for (uneven, rounds) in [(0.0, 6), (0.0, 12), (0.03, 12), (0.10, 12)] {
                let (covered, wrong) = simulate(0.0, anchors, uneven, rounds, &mut rng);
                let [(_, less), (_, more)] =
                    [0.15, 0.26].map(|effect| simulate(effect, anchors, uneven, rounds, &mut rng));
                let [covered, wrong, less, more] = [covered, wrong, less, more].map(|share| 100.0 * share);
                println!("{anchors:>7} {uneven:>6} {rounds:>6} {covered:>7.1} {wrong:>17.1} {less:>12.1} {more:>12.1}");
                if uneven == 0.0 {
                    assert!(covered >= 95.0 && wrong <= 0.5, "{anchors} anchors, {rounds} rounds: {covered} {wrong}");
                } else if uneven <= 0.03 && anchors > 1 {
                    assert!(wrong <= 2.5, "{anchors} anchors, {rounds} rounds: {wrong}");
                }
            }
        }
    }
}
