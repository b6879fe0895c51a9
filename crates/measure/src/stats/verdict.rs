//! The verdict on a difference, from an interval, a noise floor and two margins.
//!
//! The rule is in the section "Verdicts" of `docs/method.md`. Equivalence must be shown, like a
//! difference; it does not follow from the absence of a finding. Source: D. J. Schuirmann, "A
//! comparison of the two one-sided tests procedure and the power approach for assessing the
//! equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15
//! (1987).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Interval;

/// The verdict on B compared with A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// B is better: the whole interval lies above the decision threshold.
    Faster,
    /// B is worse: the whole interval lies below the negated decision threshold.
    Slower,
    /// Whatever difference there is lies within the equivalence margin.
    Equivalent,
    /// The measurement does not allow any of the others.
    Inconclusive,
}

impl Verdict {
    /// The verdict on A, where this is the verdict on B.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Faster => Self::Slower,
            Self::Slower => Self::Faster,
            Self::Equivalent | Self::Inconclusive => self,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// The smallest difference that may be decided, and the largest that counts as none. Fractions:
/// 0.02 is 2 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Margins {
    /// The least difference that may be called faster or slower; by default 0.02.
    pub decided: f64,
    /// The greatest difference that may be called equivalent; by default 0.05.
    pub equivalent: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self { decided: 0.02, equivalent: 0.05 }
    }
}

impl Margins {
    /// The decision threshold as a ln ratio. A difference above it, in either direction, is
    /// decided. It is the greater of ln(1 + `decided`) and the noise floor, which is also a ln
    /// ratio. `None` if one of them is negative or not finite.
    #[must_use]
    pub fn decision_threshold(&self, floor: f64) -> Option<f64> {
        let usable = |value: f64| value.is_finite() && value >= 0.0;
        (usable(self.decided) && usable(floor)).then(|| self.decided.ln_1p().max(floor))
    }
}

/// The verdict on B. `interval` is the interval of its ln ratio to A, `floor` the cell's noise
/// floor as a ln ratio.
///
/// 1. Faster or slower, if the whole interval lies above [`Margins::decision_threshold`] or below
///    its negative.
/// 2. Otherwise equivalent, if the whole interval lies within ±ln(1 + `margins.equivalent`), ends
///    included.
/// 3. Otherwise inconclusive.
///
/// If both 1 and 2 are true (for example from 3 % to 4 %), the verdict is faster or slower. A
/// difference is the stronger statement, and the interval shows that it is small.
///
/// Margins are compared as logarithms, so +5 % and -4.8 % (1/1.05) are the two sides of one margin.
/// Swapping A and B therefore always swaps the verdict.
///
/// Without an interval or a floor the verdict is inconclusive, even for equivalence. Without a
/// control, a cell has not shown how well it can measure. The verdict is also inconclusive if a
/// value is not usable: not finite, a negative floor or decision margin, or ends in the wrong
/// order.
#[must_use]
pub fn verdict(interval: Option<&Interval>, floor: Option<f64>, margins: Margins) -> Verdict {
    let threshold = floor.and_then(|floor| margins.decision_threshold(floor));
    let (Some(&Interval { low, high, .. }), Some(threshold)) = (interval, threshold) else {
        return Verdict::Inconclusive;
    };
    let within = margins.equivalent.ln_1p();
    if !(low.is_finite() && high.is_finite() && low <= high) {
        Verdict::Inconclusive
    } else if low > threshold {
        Verdict::Faster
    } else if high < -threshold {
        Verdict::Slower
    } else if -within <= low && high <= within {
        Verdict::Equivalent
    } else {
        Verdict::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An interval from `low` to `high`, given as ratios.
    fn between(low: f64, high: f64) -> Interval {
        Interval { estimate: f64::midpoint(low.ln(), high.ln()), low: low.ln(), high: high.ln(), coverage: 0.95 }
    }

    fn judge(low: f64, high: f64, floor: f64) -> Verdict {
        verdict(Some(&between(low, high)), Some(floor), Margins::default())
    }

    #[test]
    fn the_four_verdicts() {
        assert_eq!(judge(1.03, 1.20, 0.0), Verdict::Faster);
        assert_eq!(judge(1.01, 1.20, 0.0), Verdict::Inconclusive, "reaches below 2 %");
        assert_eq!(judge(0.80, 0.97, 0.0), Verdict::Slower);
        assert_eq!(judge(0.97, 1.04, 0.0), Verdict::Equivalent);
        assert_eq!(judge(0.97, 1.06, 0.0), Verdict::Inconclusive);
        assert_eq!(judge(0.94, 1.04, 0.0), Verdict::Inconclusive);
        assert_eq!(judge(0.50, 2.00, 0.0), Verdict::Inconclusive);
    }

    #[test]
    fn the_floor_raises_the_threshold() {
        let floor = 1.10_f64.ln();
        assert_eq!(judge(1.08, 1.20, floor), Verdict::Inconclusive);
        assert_eq!(judge(1.11, 1.20, floor), Verdict::Faster);
        assert_eq!(judge(0.80, 0.92, floor), Verdict::Inconclusive);
        assert_eq!(judge(0.80, 0.90, floor), Verdict::Slower);
        assert_eq!(judge(1.03, 1.04, 0.001), Verdict::Faster, "a floor below 2 % changes nothing");
        assert_eq!(judge(1.01, 1.03, 0.001), Verdict::Equivalent, "a floor below 2 % changes nothing");
    }

    #[test]
    fn a_small_difference_is_decided_if_it_is_above_the_floor() {
        assert_eq!(judge(1.03, 1.04, 0.0), Verdict::Faster);
        assert_eq!(judge(0.96, 0.97, 0.0), Verdict::Slower);
        assert_eq!(judge(1.03, 1.04, 1.035_f64.ln()), Verdict::Equivalent);
    }

    #[test]
    fn ends_exactly_at_a_margin() {
        let margins = Margins::default();
        let (decided, equivalent) = (0.02_f64.ln_1p(), 0.05_f64.ln_1p());
        let judge =
            |low, high| verdict(Some(&Interval { estimate: low, low, high, coverage: 0.95 }), Some(0.0), margins);
        assert_eq!(judge(decided, 1.0), Verdict::Inconclusive, "a low end at the threshold is not above it");
        assert_eq!(judge(decided.next_up(), 1.0), Verdict::Faster);
        assert_eq!(judge(-1.0, -decided), Verdict::Inconclusive);
        assert_eq!(judge(-1.0, -decided.next_up()), Verdict::Slower);
        assert_eq!(judge(-equivalent, equivalent), Verdict::Equivalent, "ends at the margin are within it");
        assert_eq!(judge(-equivalent, equivalent.next_up()), Verdict::Inconclusive);
        assert_eq!(judge(-equivalent.next_up(), equivalent), Verdict::Inconclusive);
    }

    #[test]
    fn without_an_interval_or_a_floor_the_verdict_is_inconclusive() {
        let margins = Margins::default();
        assert_eq!(verdict(None, Some(0.0), margins), Verdict::Inconclusive);
        for interval in [between(1.5, 1.6), between(0.99, 1.01)] {
            assert_eq!(verdict(Some(&interval), None, margins), Verdict::Inconclusive);
        }
    }

    #[test]
    fn with_unusable_values_the_verdict_is_inconclusive() {
        let margins = Margins::default();
        let fine = between(1.5, 1.6);
        for floor in [f64::NAN, f64::INFINITY, -0.1] {
            assert_eq!(verdict(Some(&fine), Some(floor), margins), Verdict::Inconclusive, "{floor}");
        }
        for decided in [f64::NAN, f64::INFINITY, -0.1, -2.0] {
            let margins = Margins { decided, ..margins };
            assert_eq!(verdict(Some(&fine), Some(0.0), margins), Verdict::Inconclusive, "{decided}");
        }
        for equivalent in [f64::NAN, -0.1, -2.0] {
            let margins = Margins { equivalent, ..margins };
            assert_eq!(verdict(Some(&between(1.0, 1.0)), Some(0.0), margins), Verdict::Inconclusive, "{equivalent}");
        }
        let reversed = Interval { low: fine.high, high: fine.low, ..fine };
        assert_eq!(verdict(Some(&reversed), Some(0.0), margins), Verdict::Inconclusive);
        let infinite = Interval { high: f64::INFINITY, ..fine };
        assert_eq!(verdict(Some(&infinite), Some(0.0), margins), Verdict::Inconclusive);
    }

    #[test]
    fn verdicts_have_the_same_names_in_text_and_records() {
        assert_eq!(Verdict::Faster.to_string(), "faster");
        assert_eq!(format!("[{:>8}]", Verdict::Slower), "[  slower]");
        assert_eq!(Verdict::Equivalent.to_string(), "equivalent");
        assert_eq!(Verdict::Inconclusive.to_string(), "inconclusive");
        let schema = schemars::schema_for!(Verdict).to_value().to_string();
        for word in ["faster", "slower", "equivalent", "inconclusive"] {
            assert!(schema.contains(&format!("\"{word}\"")), "in records too: {word} in {schema}");
        }
        assert_eq!(Margins::default(), Margins { decided: 0.02, equivalent: 0.05 });
    }

    proptest! {
        #[test]
        fn swapping_a_and_b_swaps_the_verdict(one in -0.15..0.15, other in -0.15..0.15, floor in 0.0..0.08) {
            let (low, high) = (f64::min(one, other), f64::max(one, other));
            let plain = Interval { estimate: one, low, high, coverage: 0.95 };
            let swapped = Interval { estimate: -one, low: -high, high: -low, coverage: 0.95 };
            prop_assert_eq!(plain.inverse(), swapped);
            let margins = Margins::default();
            prop_assert_eq!(
                verdict(Some(&swapped), Some(floor), margins),
                verdict(Some(&plain), Some(floor), margins).inverse()
            );
        }

        #[test]
        fn a_higher_floor_never_decides_more(low in -0.15..0.15, width in 0.0..0.1, one in 0.0..0.1, other in 0.0..0.1) {
            let interval = Interval { estimate: low, low, high: low + width, coverage: 0.95 };
            let judge = |floor| verdict(Some(&interval), Some(floor), Margins::default());
            let (lesser, greater) = (judge(f64::min(one, other)), judge(f64::max(one, other)));
            if matches!(greater, Verdict::Faster | Verdict::Slower) {
                prop_assert_eq!(lesser, greater);
            }
        }

        #[test]
        fn arbitrary_values_do_not_panic(
            low in any::<f64>(), high in any::<f64>(), floor in any::<f64>(),
            decided in any::<f64>(), equivalent in any::<f64>(),
        ) {
            let interval = Interval { estimate: low, low, high, coverage: 0.95 };
            let _ = verdict(Some(&interval), Some(floor), Margins { decided, equivalent });
        }
    }
}
