//! Drift: by how much the machine itself changed between two records, and how surely that is known.
//!
//! An anchor is a case of a reference ring that both records have. The same program ran in both, so its shift is the
//! machine's. The drift is the median of the anchors' shifts; it is taken off every other change.
//!
//! The estimate is uncertain in two ways. The anchors are noisy themselves, and a machine does not drift evenly: a host
//! that moves one virtual core to another socket slows what spins and leaves what sleeps alone. Both show as anchors
//! that disagree, so what they disagree about becomes the drift's interval: from the least to the greatest of them, of
//! many anchors less the outermost twentieth on either side (one bad cell among 30 is no drift). With [`ENOUGH`] and more
//! these are order statistics that enclose the median with over 97.5 %. Fewer cannot, whatever they say; then the
//! interval also is at least as wide as that of a single anchor, to either side of the median.
//!
//! A change's interval is widened by the whole of the drift's: its ends are the shift's less the drift's opposite
//! ends. Each is made with 97.5 %, so that both hold with 95 % at least (Bonferroni).
//!
//! How far that carries, simulated below (a drift of 20 %, noise of 3 % an instance, 12 rounds): how often a case that
//! did not change is called faster or slower, where the drift differs from cell to cell by so much (one sd).
//!
//! | anchors | even | 3 % | 10 % |
//! |---|---|---|---|
//! | 1 | 0 % | 3 % | 47 % |
//! | 4 | 0 % | 0 % | 17 % |
//! | 7 | 0 % | 0 % | 7 % |
//! | 30 | 0 % | 0 % | 3 % |
//!
//! So it is no proof against a very uneven drift that too few anchors could show. Two records are the weaker comparison,
//! interleaved rounds the stronger.

use estafette_measure::stats::{CONFIDENCE, Interval, median};
use serde::Serialize;

/// The coverage of the shift's interval and of the drift's: so that both together reach [`CONFIDENCE`].
pub(super) const EACH: f64 = 1.0 - (1.0 - CONFIDENCE) / 2.0;
/// Least and greatest of so many samples enclose their median with 1 - 2^-6, 98.4 %; one fewer falls short of [`EACH`].
const ENOUGH: usize = 7;

/// How the machine changed from A to B, as a ln ratio: positive where it was faster in B.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Drift {
    /// How many cases it is taken from.
    pub(super) anchors: usize,
    #[serde(flatten)]
    pub(super) interval: Interval,
}

impl Drift {
    /// From the shifts of the anchors; not known without one.
    pub(super) fn of(anchors: &[Interval]) -> Option<Drift> {
        let mut shifts: Vec<f64> = anchors.iter().map(|anchor| anchor.estimate).collect();
        shifts.sort_by(f64::total_cmp);
        let widths: Vec<f64> = anchors.iter().map(Interval::half_width).collect();
        let (estimate, width) = (median(&shifts)?, median(&widths)?);
        let count = shifts.len();
        let outermost = count / 20;
        let (low, high) = (shifts[outermost], shifts[count - 1 - outermost]);
        let interval = if count < ENOUGH {
            let coverage = anchors.iter().map(|anchor| anchor.coverage).fold(1.0, f64::min);
            Interval { estimate, low: low.min(estimate - width), high: high.max(estimate + width), coverage }
        } else {
            Interval { estimate, low, high, coverage: EACH }
        };
        Some(Drift { anchors: count, interval })
    }

    /// Whether so few anchors were there that their spread alone does not reach [`EACH`].
    pub(super) fn few(&self) -> bool {
        self.anchors < ENOUGH
    }

    /// A shift without the drift.
    pub(super) fn taken_off(&self, shift: &Interval) -> Interval {
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
    fn without_anchors_it_is_not_known() {
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
    fn few_anchors_are_never_surer_than_one_of_them() {
        let drift = of(&[at(0.10, 0.04), at(0.11, 0.03), at(0.09, 0.09)]).interval;
        assert!(near(drift.estimate, 0.10) && near(drift.low, 0.06) && near(drift.high, 0.14));
        let apart = of(&[at(-0.5, 0.01), at(0.0, 0.01), at(0.3, 0.01)]).interval;
        assert!(near(apart.low, -0.5) && near(apart.high, 0.3), "what they disagree about is kept");
    }

    #[test]
    fn many_anchors_span_it_but_for_the_outermost_twentieth() {
        let shifts = |count: u32| (0..count).map(|n| at(f64::from(n), 50.0)).collect::<Vec<_>>();
        let drift = |count| of(&shifts(count)).interval;
        assert!(near(drift(7).low, 0.0) && near(drift(7).high, 6.0));
        assert!(near(drift(19).low, 0.0) && near(drift(19).high, 18.0));
        assert!(near(drift(30).low, 1.0) && near(drift(30).high, 28.0) && near(drift(30).estimate, 14.5));
    }

    #[test]
    fn a_change_is_widened_by_the_whole_of_the_drift() {
        let change = of(&[at(0.1, 0.04)]).taken_off(&at(0.5, 0.1));
        assert!(near(change.estimate, 0.4) && near(change.low, 0.26) && near(change.high, 0.54));
        assert!(near(change.coverage, 0.96));
    }

    fn normal(rng: &mut Rng) -> f64 {
        (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
    }

    /// Pairs of records of one machine that drifted by 20 %, unevenly by `uneven` from cell to cell, with noise of 3 %
    /// an instance: how often the interval of a case that got better by `effect` holds that, and how often the case is
    /// called faster or slower.
    fn simulate(effect: f64, anchors: usize, uneven: f64, rounds: usize, rng: &mut Rng) -> (f64, f64) {
        const TRIALS: usize = 200;
        const NOISE: f64 = 0.03;
        let (mut held, mut decided) = (0, 0);
        for _ in 0..TRIALS {
            let shift = |effect: f64, rng: &mut Rng| {
                let moved = 0.2 + effect + uneven * normal(rng);
                let mut record = |centre: f64| (0..rounds).map(|_| centre + NOISE * normal(rng)).collect::<Vec<_>>();
                shift_interval(&record(0.0), &record(moved), EACH).unwrap()
            };
            let shifts: Vec<_> = (0..anchors).map(|_| shift(0.0, rng)).collect();
            let change = of(&shifts).taken_off(&shift(effect, rng));
            let mut floor = || {
                let selves: Vec<_> = (0..rounds).map(|_| NOISE * (normal(rng) - normal(rng))).collect();
                noise_floor(&selves).unwrap()
            };
            let verdict = verdict(Some(&change), Some(floor().max(floor())), Margins::default());
            held += usize::from(change.low <= effect && effect <= change.high);
            decided += usize::from(matches!(verdict, Verdict::Faster | Verdict::Slower));
        }
        (held as f64 / TRIALS as f64, decided as f64 / TRIALS as f64)
    }

    /// `cargo test -p estafette-cli simulation -- --nocapture` prints the figures.
    #[test]
    fn simulation_the_interval_holds_and_equals_are_not_told_apart() {
        let mut rng = Rng::with_seed(1);
        println!("anchors uneven rounds   holds   equals decided   16 % found   30 % found   (percent)");
        for anchors in [1, 4, 7, 30] {
            for (uneven, rounds) in [(0.0, 6), (0.0, 12), (0.03, 12), (0.10, 12)] {
                let (held, wrong) = simulate(0.0, anchors, uneven, rounds, &mut rng);
                let [(_, less), (_, more)] =
                    [0.15, 0.26].map(|effect| simulate(effect, anchors, uneven, rounds, &mut rng));
                let [held, wrong, less, more] = [held, wrong, less, more].map(|share| 100.0 * share);
                println!("{anchors:>7} {uneven:>6} {rounds:>6} {held:>7.1} {wrong:>16.1} {less:>12.1} {more:>12.1}");
                if uneven == 0.0 {
                    assert!(held >= 95.0 && wrong <= 0.5, "{anchors} anchors, {rounds} rounds: {held} {wrong}");
                } else if uneven <= 0.03 && anchors > 1 {
                    assert!(wrong <= 2.5, "{anchors} anchors, {rounds} rounds: {wrong}");
                }
            }
        }
    }
}
