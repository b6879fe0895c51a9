//! The noise floor of a cell, read from its A/A control: one mechanism, enrolled twice.

use super::sample::{mean, real};
use super::{CONFIDENCE, median_interval};

/// The confidence of the control's interval. With 9 rounds it is from the third to the seventh pair, so that no single pair sets
/// the floor of a cell.
const FLOOR_CONFIDENCE: f64 = 0.75;

/// A cell's noise floor, in ln ratio: how far from zero the order-statistic interval (at 75 %) of its control
/// reaches, on the side where it reaches farther.
///
/// The control is two instances of one mechanism, whose true difference is zero. A difference that the cell shows between them, it may
/// show between others too. A bias between the two counts as much as their scatter.
/// `None`, an unknown floor, when the control has too few rounds for the interval (fewer than 6) or a value that is not
/// finite.
#[must_use]
pub fn noise_floor(control: &[f64]) -> Option<f64> {
    let enough = median_interval(control, CONFIDENCE).is_some();
    median_interval(control, FLOOR_CONFIDENCE)
        .filter(|_| enough)
        .map(|interval| interval.low.abs().max(interval.high.abs()))
}

/// The sample standard deviation (divided by n - 1), in ln ratio: about the relative standard deviation of the ratio
/// when it is small. `None` with fewer than two samples, or when one is not finite.
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
    fn the_floor_is_how_far_the_control_s_interval_reaches() {
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
        fn which_self_came_first_does_not_matter(control in vec(-1.0..1.0, 6..30)) {
            let swapped: Vec<f64> = control.iter().map(|sample| -sample).collect();
            prop_assert_eq!(noise_floor(&control), noise_floor(&swapped));
            prop_assert!((log_ratio_sd(&control).unwrap() - log_ratio_sd(&swapped).unwrap()).abs() < 1e-12);
        }

        #[test]
        fn a_bias_between_the_selves_raises_it(control in vec(-1.0..1.0, 6..30), bias in 2.0..3.0) {
            let biased: Vec<f64> = control.iter().map(|sample| sample + bias).collect();
            prop_assert!(noise_floor(&biased).unwrap() > noise_floor(&control).unwrap());
        }

        #[test]
        fn nothing_panics_and_a_floor_is_never_negative(control in vec(any::<f64>(), 0..30)) {
            prop_assert!(noise_floor(&control).is_none_or(|floor| floor >= 0.0));
            prop_assert!(log_ratio_sd(&control).is_none_or(|sd| sd >= 0.0));
        }
    }
}
