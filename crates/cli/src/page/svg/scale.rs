//! Logarithmic scales: from values to positions, and the values at which an axis has a label.

/// A logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// The base-10 logarithms of the lowest and of the highest value.
    low: f64,
    high: f64,
    /// The positions of the lowest and of the highest value.
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale that shows all values, with a margin at both ends as a part of the whole. Values
    /// that have no logarithm are ignored. `None` without any other.
    pub(super) fn of(values: impl Iterator<Item = f64>, margin: f64, (from, to): (f64, f64)) -> Option<Scale> {
        let logarithms = values.map(f64::log10).filter(|logarithm| logarithm.is_finite());
        let (low, high) = logarithms.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), logarithm| {
            (low.min(logarithm), high.max(logarithm))
        });
        if low > high {
            return None;
        }
        // Values that are all alike lie in the middle.
        let pad = if high - low < 0.2 { 0.15 } else { (high - low) * margin };
        Some(Scale { low: low - pad, high: high + pad, from, to })
    }

    /// The position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = (value.log10() - self.low) / (self.high - self.low);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// At most about eight round values, ascending: powers of `base`, or multiples of them.
    pub(super) fn ticks(&self, base: f64) -> Vec<f64> {
        const MOST: f64 = 7.0;
        let digits = base.log10();
        let (first, last) = ((self.low / digits).floor(), (self.high / digits).ceil());
        let powers = (self.high - self.low) / digits;
        let step = (powers / MOST).ceil().max(1.0);
        let multiples: &[f64] = match (powers, base) {
            (powers, _) if powers >= 3.0 => &[1.0],
            (powers, 10.0) if powers >= 0.8 => &[1.0, 2.0, 5.0],
            (_, 10.0) => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            _ => &[1.0, 1.25, 1.5, 1.75],
        };
        let first = (first / step).floor() * step;
        let powers = (0..).map(|at| first + f64::from(at) * step).take_while(|power| *power <= last);
        let values = powers.take(1_000).flat_map(|power| multiples.iter().map(move |times| times * base.powf(power)));
        values.filter(|value| (self.low..=self.high).contains(&value.log10())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(low: f64, high: f64) -> Scale {
        Scale::of([low, high].into_iter(), 0.0, (0.0, 100.0)).unwrap()
    }

    #[test]
    fn a_decade_has_the_same_length_everywhere() {
        let scale = scale(1.0, 1e4);
        assert_eq!([1.0, 10.0, 100.0, 1e4].map(|value| scale.at(value).round()), [0.0, 25.0, 50.0, 100.0]);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(scale(1.0, 1e4).ticks(10.0), [1.0, 10.0, 100.0, 1e3, 1e4]);
        assert_eq!(scale(1.0, 30.0).ticks(10.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        for (low, high) in [(1.0, 1e308), (1e-300, 1e300), (5e-324, f64::MAX), (1.0, 1.0), (1e9, 1.1e9), (3.0, 1e12)] {
            for base in [2.0, 10.0] {
                let ticks = scale(low, high).ticks(base);
                assert!((1..=12).contains(&ticks.len()), "{low} to {high} by {base}: {ticks:?}");
            }
        }
    }

    #[test]
    fn values_without_a_logarithm_are_ignored() {
        assert!(Scale::of([0.0, -1.0, f64::NAN, f64::INFINITY].into_iter(), 0.1, (0.0, 1.0)).is_none());
        let scale = scale(1.0, 100.0);
        assert!(scale.at(f64::INFINITY) <= 100.0 && scale.at(0.0) >= 0.0);
    }
}
