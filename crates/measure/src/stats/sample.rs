//! The mean and the median of a sample.

/// The arithmetic mean, in the unit of the samples. `None` if there are no samples, if one is not
/// finite, or if their sum overflows.
#[must_use]
pub fn mean(samples: &[f64]) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / real(samples.len());
    mean.is_finite().then_some(mean)
}

/// The median, in the unit of the samples. With an even number of samples, the mean of the two
/// middle ones. `None` if there are no samples or if one is not finite.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    middle(&in_order(samples)?)
}

/// The samples in ascending order. `None` if one of them is not finite.
pub(super) fn in_order(samples: &[f64]) -> Option<Vec<f64>> {
    if !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The median of sorted values. `None` if there are none.
pub(super) fn middle(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

/// A count as a real number.
#[expect(clippy::cast_precision_loss, reason = "counts of samples stay far below 2^53")]
pub(super) fn real(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_medians() {
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[3.0, -1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn the_mean_is_arithmetic() {
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
    }

    #[test]
    fn no_or_non_finite_samples_have_no_mean_and_no_median() {
        for invalid in [&[][..], &[f64::NAN], &[1.0, f64::INFINITY], &[f64::NEG_INFINITY, f64::INFINITY]] {
            assert_eq!(mean(invalid), None, "{invalid:?}");
            assert_eq!(median(invalid), None, "{invalid:?}");
        }
        assert_eq!(mean(&[f64::MAX, f64::MAX]), None, "the sum overflows");
        assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX), "the median does not");
    }
}
