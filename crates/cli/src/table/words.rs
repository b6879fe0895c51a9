//! Words and figures that several tables have.

use estafette_measure::ranking::{NoResult, Row};
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
    } else if let Some(why) = row.no_result {
        match why {
            NoResult::LosesTooMuch(_) => "loses too much",
            NoResult::LongerThanSlice(_) => "see below",
        }
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
    let all = [interval.estimate, interval.high, interval.low].map(|ln| (-ln).exp());
    let mut texts = all.map(units::three_digits);
    // A narrow interval shows its width.
    for decimals in 3..=5 {
        if texts[1] != texts[2] || interval.low == interval.high {
            break;
        }
        texts = all.map(|times| format!("{times:.decimals$}"));
    }
    let [estimate, low, high] = texts;
    format!("{estimate} [{low} - {high}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_interval_shows_its_width() {
        let times = |low: f64, high: f64| {
            times(&Interval { estimate: -1.35_f64.ln(), low: -high.ln(), high: -low.ln(), coverage: 0.96 })
        };
        assert_eq!(times(1.31, 1.39), "1.35 [1.31 - 1.39]");
        assert_eq!(times(1.348, 1.3512), "1.350 [1.348 - 1.351]");
        assert_eq!(times(1.35, 1.35), "1.35 [1.35 - 1.35]");
    }

    #[test]
    fn a_large_difference_is_a_factor() {
        assert_eq!([0.04_f64.ln_1p(), 5.05_f64.ln()].map(difference), ["4.00 %", "a factor of 5.05"]);
    }
}
