//! The first line of a table, in plain words: what to use, how sure that is, and what the next one costs.

use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::{Ownership, Standing};
use estafette_measure::stats::{Interval, Verdict};
use estafette_measure::units::three_digits;

use super::{percent, short};

/// What a cell says about the mechanisms that a program might choose.
pub(crate) struct Outcome<'a> {
    /// The best, and those that are not known to be slower than it, best first.
    pub(crate) leaders: Vec<&'a Row>,
    /// Whether all of the leaders are known to be as good as the best.
    pub(crate) level: bool,
    /// The best of those that are known to be slower, and how it compares with the best of all.
    pub(crate) next: Option<(&'a Row, Interval)>,
}

/// Who leads a cell; none where nothing is decided, as without a control, or where fewer than two candidates have a result.
pub(crate) fn outcome(ranking: &Ranking) -> Option<Outcome<'_>> {
    ranking.floor?;
    let is_candidate = |at: &usize| {
        let row = &ranking.rows[*at];
        row.spec.standing == Standing::Candidate && row.result.is_some()
    };
    let mut candidates = (0..ranking.rows.len()).filter(is_candidate);
    let best = candidates.next()?;
    let mut outcome = Outcome { leaders: vec![&ranking.rows[best]], level: true, next: None };
    let mut others = 0;
    for at in candidates {
        let comparison = ranking.comparison(best, at);
        others += 1;
        match (comparison.verdict, comparison.interval) {
            (Verdict::Slower, Some(interval)) => {
                outcome.next.get_or_insert((&ranking.rows[at], interval));
            }
            (verdict, _) => {
                outcome.level &= verdict == Verdict::Equivalent;
                outcome.leaders.push(&ranking.rows[at]);
            }
        }
    }
    (others > 0).then_some(outcome)
}

/// The most mechanisms that a sentence names.
const MOST_NAMES: usize = 4;

/// The sentence.
pub(super) fn answer(ranking: &Ranking) -> String {
    let candidates = ranking.rows.iter().filter(|row| row.spec.standing == Standing::Candidate && row.result.is_some());
    let Some(outcome) = outcome(ranking) else {
        return match (candidates.count(), ranking.floor) {
            (0, _) => String::from("No mechanism has a result."),
            (1, _) => String::from("Only one mechanism took part: nothing to compare."),
            _ => String::from("Not decided: fewer than 6 valid rounds of the control."),
        };
    };
    let mut text = leaders(&outcome, ranking.resolution());
    if let Some((row, interval)) = &outcome.next {
        text.push_str(&format!(" The next, {}, takes {} times as long.", short(row), ratio(interval)));
    }
    text.push_str(&other_data(ranking, &outcome));
    text
}

fn leaders(outcome: &Outcome<'_>, resolution: Option<f64>) -> String {
    let names: Vec<&str> = outcome.leaders.iter().map(|row| short(row)).collect();
    match &*names {
        [one] => format!("Use {one}."),
        names if outcome.level => format!("Use {}: equal within 5 %.", list(names, "or")),
        names => {
            let hidden = if names.len() > MOST_NAMES + 1 { names.len() - MOST_NAMES } else { 0 };
            let more = format!("{hidden} more");
            let mut names: Vec<&str> = names[..names.len() - hidden].to_vec();
            names.extend((hidden > 0).then_some(&*more));
            let shown =
                resolution.map_or(String::new(), |ln| format!("; differences from {} show", percent(ln.exp_m1())));
            format!("Not decided between {}{shown}.", list(&names, "and"))
        }
    }
}

/// The best of each other way to hand data over, where the leaders have one way only.
fn other_data(ranking: &Ranking, outcome: &Outcome<'_>) -> String {
    let first = outcome.leaders[0].spec.ownership;
    if outcome.leaders.iter().any(|row| row.spec.ownership != first) {
        return String::new();
    }
    let mut text = String::new();
    for (ownership, words) in [
        (Ownership::Owned, "If the receiver must own the value"),
        (Ownership::Borrowed, "If bytes must be copied out of your buffer and into it"),
        (Ownership::Loaned, "If messages can be written in place"),
    ] {
        let is_best = |row: &&Row| {
            row.spec.ownership == ownership && row.spec.standing == Standing::Candidate && row.result.is_some()
        };
        let best = ranking.rows.iter().find(is_best).filter(|_| ownership != first);
        // Where it is the next anyway, that has been said.
        let best = best.filter(|row| outcome.next.as_ref().is_none_or(|(next, _)| next.spec.name != row.spec.name));
        if let Some(row) = best {
            text.push_str(&format!(" {words}: {}.", short(row)));
        }
    }
    text
}

/// How many times as long: `4.6`, or with what it may be where the interval is wide.
fn ratio(interval: &Interval) -> String {
    let [estimate, low, high] = [interval.estimate, interval.high, interval.low].map(|ln| three_digits((-ln).exp()));
    if (interval.high - interval.low) < 0.1 { estimate } else { format!("{estimate} ({low} to {high})") }
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn list(names: &[&str], word: &str) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} {word} {last}", before.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_row() {
        assert_eq!(list(&["a"], "or"), "a");
        assert_eq!(list(&["a", "b", "c"], "or"), "a, b or c");
    }

    #[test]
    fn a_ratio_says_its_interval_where_it_is_wide() {
        let interval = |low: f64, high: f64| Interval {
            estimate: -2.0_f64.ln(),
            low: -high.ln(),
            high: -low.ln(),
            coverage: 0.95,
        };
        assert_eq!(ratio(&interval(1.98, 2.02)), "2.00");
        assert_eq!(ratio(&interval(1.5, 3.0)), "2.00 (1.50 to 3.00)");
    }
}
