//! The noise floor of a cell, computed from its A/A control: the same mechanism measured twice in
//! each round.

use super::sample::{mean, real};
use super::{CONFIDENCE, median_interval};

/// The confidence of the control's interval. With 9 rounds the interval extends from the 3rd to the
/// 7th pair, so no single pair determines the floor.
const FLOOR_CONFIDENCE: f64 = 0.75;

/// The noise floor of a cell, as a ln ratio: the larger absolute value of the two ends of the
/// control's interval (order statistics, at 75 %).
///
/// `control` has the ratios of two entrants with the same mechanism, so their true difference is
/// zero. If the cell shows a difference between them, it may show the same difference between other
/// mechanisms. Both a bias between the two and their scatter raise the floor.
///
/// `None` (the floor is unknown) if the control has fewer than 6 rounds, or a value that is not
/// finite.
#[must_use]
pub fn noise_floor(control: &[f64]) -> Option<f64> {
    let enough = median_interval(control, CONFIDENCE).is_some();
    median_interval(control, FLOOR_CONFIDENCE)
        .filter(|_| enough)
        .map(|interval| interval.low.abs().max(interval.high.abs()))
}

/// The sample standard deviation (divided by n - 1), as a ln ratio. If it is small, it is about the
/// relative standard deviation of the ratio. `None` with fewer than two samples, or if one is not
/// finite.
#[must_use]
pub fn log_ratio_sd(samples: &[f64]) -> Option<f64> {
    let degrees = samples.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    let mean = mean(samples)?;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let sd = (squares / real(degrees)).sqrt();
    sd.is_finite().then_some(sd)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn the_floor_is_the_farther_end_of_the_control_s_interval() {
        assert_eq!(noise_floor(&[0.0; 5]), None);
        assert_eq!(noise_floor(&[0.0; 6]), Some(0.0));
        assert_eq!(noise_floor(&[-1.0, 0.0, 300.0, 1.0, 0.5, 0.25]), Some(1.0), "2nd to 5th");
        let twelve: Vec<f64> = (1..=12).map(f64::from).collect();
        assert_eq!(noise_floor(&twelve), Some(9.0), "4th to 9th");
    }

    #[test]
    fn known_standard_deviations() {
        assert_eq!(log_ratio_sd(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some((32.0_f64 / 7.0).sqrt()));
        assert_eq!(log_ratio_sd(&[1.0, 1.0]), Some(0.0));
        for none in [&[][..], &[1.0], &[1.0, f64::NAN], &[f64::MAX, -f64::MAX]] {
            assert_eq!(log_ratio_sd(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn swapping_the_two_entrants_changes_nothing(control in vec(-1.0..1.0, 6..30)) {
            let swapped: Vec<f64> = control.iter().map(|sample| -sample).collect();
            prop_assert_eq!(noise_floor(&control), noise_floor(&swapped));
            prop_assert!((log_ratio_sd(&control).unwrap() - log_ratio_sd(&swapped).unwrap()).abs() < 1e-12);
        }

        #[test]
        fn a_bias_between_the_two_entrants_raises_the_floor(control in vec(-1.0..1.0, 6..30), bias in 2.0..3.0) {
            let biased: Vec<f64> = control.iter().map(|sample| sample + bias).collect();
            prop_assert!(noise_floor(&biased).unwrap() > noise_floor(&control).unwrap());
        }

        #[test]
        fn arbitrary_values_do_not_panic_and_a_floor_is_never_negative(control in vec(any::<f64>(), 0..30)) {
            prop_assert!(noise_floor(&control).is_none_or(|floor| floor >= 0.0));
            prop_assert!(log_ratio_sd(&control).is_none_or(|sd| sd >= 0.0));
        }
    }
}
