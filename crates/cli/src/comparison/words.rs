//! A comparison in words: figures, changes, and what the drift and the verdicts mean.

use estafette_measure::case::{Cell, Load};
use estafette_measure::stats::{Interval, Verdict};
use estafette_measure::units;

use super::drift::Drift;
use super::{Compared, Comparison};

/// Formats the metric of a cell: the time of a round trip or of an open loop, or the rate of a
/// saturated stream; `-` without a valid instance.
pub(crate) fn figure(ns: Option<f64>, cell: &Cell) -> String {
    match ns {
        None => String::from("-"),
        Some(ns) if cell.pattern.is_round_trip() || cell.load != Load::Saturated => units::duration(ns),
        Some(ns) => units::rate(1e9 / ns),
    }
}

/// Formats the metric of a case in A and in B. Where it lost too many messages for one, it is their
/// share: `lost 3.00 %`.
pub(crate) fn figures(case: &Compared) -> [String; 2] {
    [(case.a_ns, case.a_lost), (case.b_ns, case.b_lost)].map(|(ns, lost)| match lost {
        Some(lost) => format!("lost {} %", units::three_digits(lost * 100.0)),
        None => figure(ns, &case.cell),
    })
}

/// Formats a ln ratio as a change in percent: `+3.14`, `-12.3`.
pub(crate) fn percent(ln: f64) -> String {
    let percent = ln.exp_m1() * 100.0;
    format!("{}{}", if percent < 0.0 { '-' } else { '+' }, units::three_digits(percent.abs()))
}

/// Formats an interval of ln ratios in percent: `[+1.20 to +3.40]`.
pub(crate) fn between(interval: &Interval) -> String {
    format!("[{} to {}]", percent(interval.low), percent(interval.high))
}

/// Says how much the machine itself changed, and what follows for the intervals.
pub(crate) fn drift(drift: Option<&Drift>) -> String {
    let Some(drift) = drift else {
        return String::from(
            "Drift: not known, as no reference ring is in both records; what is shown may be the machine's own change.",
        );
    };
    let few = if drift.has_few_anchors() { "; so few may miss an uneven drift" } else { "" };
    let unsteady = if drift.is_unsteady() {
        " The speed of the machine changed unevenly: measure both again while nothing else runs."
    } else {
        ""
    };
    format!(
        "Drift: the machine alone made B better by {} % {}, by {} anchor(s), the reference rings{few}. It is subtracted, and \
         its uncertainty widens every interval.{unsteady}",
        percent(drift.interval.estimate),
        between(&drift.interval),
        drift.anchors
    )
}

/// Counts the verdicts.
pub(crate) fn verdicts(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(verdict);
    let all = comparison.cases.iter().filter(|case| case.verdict.is_some()).count();
    format!(
        "{} of {all} comparisons are inconclusive; {} faster, {} slower, {} equivalent.",
        count(Verdict::Inconclusive),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Equivalent)
    )
}

/// Says how many cases have no verdict because their cell has no noise floor. `None` if all have
/// one.
pub(crate) fn without_floor(comparison: &Comparison) -> Option<String> {
    let without = comparison.cases.iter().filter(|case| case.verdict.is_some() && case.floor.is_none()).count();
    (without > 0)
        .then(|| format!("{without} in cells without a noise floor: it takes 6 valid rounds of the control in both."))
}

/// Says in how many cases the clocks decide nothing. `None` if there is none.
pub(crate) fn within_clock_error(comparison: &Comparison) -> Option<String> {
    let within = comparison.cases.iter().filter(|case| case.clock_error.is_none()).count();
    (within > 0)
        .then(|| format!("{within} with times that are not longer than the errors of the clocks of both hosts."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::record;

    #[test]
    fn figures_are_times_or_rates() {
        let cell = |nth: usize| record().entrants[nth].case.cell.clone();
        let (round_trip, stream) = (cell(0), cell(4));
        let open_loop = Cell { load: Load::Rate(1_000), ..stream.clone() };
        let figures = [&round_trip, &stream, &open_loop].map(|cell| figure(Some(2_000.0), cell));
        assert_eq!(figures, ["2.00 us", "500 k/s", "2.00 us"], "an open loop is judged by its latency");
        assert_eq!(figure(None, &stream), "-");
    }
}
