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
    let mut text = capitalised(&outcome.words());
    if let (false, Some(ln)) = (outcome.is_decided(), ranking.resolution()) {
        text.push_str(&format!("; differences from {} show", percent(ln.exp_m1())));
    }
    text.push('.');
    if let Some((row, interval)) = &outcome.next {
        text.push_str(&format!(" The next, {}, takes {} times as long.", short(row), ratio(interval)));
    }
    text.push_str(&other_data(ranking, &outcome));
    text
}

impl Outcome<'_> {
    /// Whether the best is known, or several that are equal.
    pub(crate) fn is_decided(&self) -> bool {
        self.leaders.len() == 1 || self.level
    }

    /// `use a`, `use a or b, equal within 5 %`, `not decided between a, b and 3 more`.
    pub(super) fn words(&self) -> String {
        let names: Vec<&str> = self.leaders.iter().map(|row| short(row)).collect();
        match &*names {
            [one] => format!("use {one}"),
            names if self.level => format!("use {}, equal within 5 %", few(names, "or")),
            names => format!("not decided between {}", few(names, "and")),
        }
    }
}

/// The best of each other way to hand data over, where the leaders have one way only, with what it costs.
fn other_data(ranking: &Ranking, outcome: &Outcome<'_>) -> String {
    let first = outcome.leaders[0].spec.ownership;
    if outcome.leaders.iter().any(|row| row.spec.ownership != first) {
        return String::new();
    }
    let mut text = String::new();
    for (ownership, words) in [
        (Ownership::Owned, "Of those that move values"),
        (Ownership::Borrowed, "Of those that copy bytes"),
        (Ownership::Loaned, "Of those whose messages are written in place"),
    ] {
        let is_of_class = |at: &usize| {
            let row = &ranking.rows[*at];
            row.spec.ownership == ownership && row.spec.standing == Standing::Candidate && row.result.is_some()
        };
        let class: Vec<usize> = (0..ranking.rows.len()).filter(is_of_class).collect();
        let Some(&best) = class.first().filter(|_| ownership != first) else { continue };
        let row = &ranking.rows[best];
        // If it is the next one anyway, that has been said.
        if outcome.next.as_ref().is_some_and(|(next, _)| next.spec.name == row.spec.name) {
            continue;
        }
        let is_leader = |at: &&usize| **at == best || ranking.comparison(best, **at).verdict != Verdict::Slower;
        let names: Vec<&str> = class.iter().filter(is_leader).map(|at| short(&ranking.rows[*at])).collect();
        let times = row.result.as_ref().and_then(|result| result.versus.as_ref());
        let times =
            times.map_or(String::new(), |interval| format!(" ({} times)", three_digits((-interval.estimate).exp())));
        text.push_str(&format!(" {words}: {}{times}.", few(&names, "or")));
    }
    text
}

/// As [`list`], with at most [`MOST_NAMES`] names and one more: `a, b, c, d and 3 more`.
fn few(names: &[&str], word: &str) -> String {
    if names.len() <= MOST_NAMES + 1 {
        return list(names, word);
    }
    format!("{} {word} {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES)
}

/// The words with their first letter as at the start of a sentence.
fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
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
        assert_eq!(few(&["a", "b", "c", "d", "e"], "or"), "a, b, c, d or e");
        assert_eq!(few(&["a", "b", "c", "d", "e", "f"], "and"), "a, b, c, d and 2 more");
        assert_eq!(capitalised("use a"), "Use a");
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
