//! Words and figures that several tables have.

use estafette_measure::ranking::Row;
use estafette_measure::stats::Interval;
use estafette_measure::units;

/// A mechanism's name without its scope, which the heading contains.
pub(crate) fn short(row: &Row) -> &str {
    row.spec.name.split_once('/').map_or(row.spec.name.as_str(), |(_, name)| name)
}

/// Returns why a row has no figures.
pub(crate) fn without_result(row: &Row) -> &'static str {
    if row.breach.is_some() {
        "broke its promise"
    } else if row.lost.is_some() {
        "loses too much"
    } else if row.failed.is_some() {
        "failed"
    } else {
        "no valid instance"
    }
}

/// Formats a fraction: `3.2 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{} %", units::three_digits(part * 100.0))
}

/// Formats the smallest difference that a table detects, a ln ratio: `4.02 %`, or `a factor of
/// 5.05`.
pub(crate) fn difference(ln: f64) -> String {
    let part = ln.exp_m1();
    if part < 1.0 { percent(part) } else { format!("a factor of {}", units::three_digits(ln.exp())) }
}

/// Formats a ln ratio as a multiple of the other's time: `1.43 [1.38 - 1.50]`.
pub(crate) fn times(interval: &Interval) -> String {
    let [estimate, low, high] =
        [interval.estimate, interval.high, interval.low].map(|ln| units::three_digits((-ln).exp()));
    format!("{estimate} [{low} - {high}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_difference_is_a_factor() {
        assert_eq!([0.04_f64.ln_1p(), 5.05_f64.ln()].map(difference), ["4.00 %", "a factor of 5.05"]);
    }
}
