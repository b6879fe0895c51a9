//! Whether a mechanism loses more of an open loop's messages than before.
//!
//! A mechanism that loses 1 % or more has no 99th percentile. The limit is sharp: 0.99 % and 1.01 %
//! are on two sides of it. So a loss beyond it is worse than another only if it is at least twice
//! as large, and a one-sided rank-sum test of the shares that the instances lost says so.

use estafette_measure::stats::{mean, shift_below_p};

/// The largest probability of an error.
pub(crate) const MAX_P: f64 = 0.025;
/// How many times as much must be lost.
pub(crate) const LEAST_RATIO: f64 = 2.0;

/// The probability that such shares are lost if `new` loses no more than `base`. 1 if it does not
/// lose twice as much on average.
pub(crate) fn p_value(base: &[f64], new: &[f64]) -> f64 {
    match (mean(base), mean(new)) {
        (Some(before), Some(after)) if after >= LEAST_RATIO * before => {
            let better = |losses: &[f64]| losses.iter().map(|loss| -loss).collect::<Vec<_>>();
            shift_below_p(&better(base), &better(new), 0.0)
        }
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_and_steady_rise_is_improbable() {
        let few = [0.009, 0.010, 0.008, 0.0095, 0.0099, 0.009];
        let little_more = few.map(|loss| loss * 1.2);
        let much_more = few.map(|loss| loss * 3.0);
        assert!(p_value(&few, &much_more) <= MAX_P);
        assert_eq!(p_value(&few, &little_more), 1.0);
        assert!(p_value(&few, &[0.0, 0.0, 0.0, 0.0, 0.0, 0.4]) > MAX_P, "one instance");
        assert_eq!(p_value(&[], &much_more), 1.0);
    }
}
