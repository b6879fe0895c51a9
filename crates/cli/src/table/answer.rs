//! The sentences above a table: which mechanism to use, how certain that is, and how much slower
//! the next one is.

use std::iter;

use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::{Ownership, Standing};
use estafette_measure::stats::{Interval, Verdict};
use estafette_measure::units::three_digits;

use super::words::{difference, short};

/// The outcome of a cell for the candidates: the mechanisms that a program might choose.
pub(crate) struct TableOutcome<'a> {
    /// The candidates that no other candidate is decided to beat: the fastest first, the others in
    /// the order of the table. A candidate without a rank, which has too few rounds in common with
    /// the others, is among them only if its time is shorter than that of the fastest.
    pub(crate) leaders: Vec<&'a Row>,
    /// Whether all leaders are known to be equivalent to the fastest.
    pub(crate) are_equivalent: bool,
    /// Of the other candidates that are decided to be slower than the fastest, one that none of
    /// them beats: that with the smallest ratio to the fastest, and this ratio.
    pub(crate) next: Option<(&'a Row, Interval)>,
}

/// Returns the outcome of a cell.
///
/// It is `None` without a noise floor, which needs a control, and if fewer than two candidates have
/// a rank.
pub(crate) fn outcome(ranking: &Ranking) -> Option<TableOutcome<'_>> {
    outcome_among(ranking, |_| true)
}

/// Returns the outcome of a cell for the mechanisms that a filter lets through.
pub(crate) fn outcome_among(ranking: &Ranking, filter: impl Fn(&Row) -> bool) -> Option<TableOutcome<'_>> {
    ranking.floor?;
    let (ranked, unranked): (Vec<usize>, Vec<usize>) =
        candidates(ranking, filter).into_iter().partition(|at| is_ranked(&ranking.rows[*at]));
    if ranked.len() < 2 {
        return None;
    }
    let unbeaten = ranking.unbeaten(&ranked);
    let best = *unbeaten.first()?;
    let is_slower = |at: &usize| unbeaten.iter().any(|leader| ranking.is_better(*leader, *at));
    let (slower, mut leaders): (Vec<usize>, Vec<usize>) = ranked.into_iter().partition(is_slower);
    let time = |at: usize| ranking.rows[at].metric_ns();
    leaders.extend(unranked.into_iter().filter(|at| time(*at) < time(best)));
    let others = || leaders.iter().copied().filter(|at| *at != best);
    let slower_than_best: Vec<usize> = slower.into_iter().filter(|at| ranking.is_better(best, *at)).collect();
    let next = closest(ranking, best, &slower_than_best).map(|(at, interval)| (&ranking.rows[at], interval));
    Some(TableOutcome {
        are_equivalent: others().all(|at| ranking.comparison(best, at).verdict == Verdict::Equivalent),
        leaders: iter::once(best).chain(others()).map(|at| &ranking.rows[at]).collect(),
        next,
    })
}

/// Of the rows that no other of `rows` is decided to beat, returns the one with the smallest ratio
/// to `best`, and its comparison with that. `None` if none is compared with it. `best` must not be
/// among `rows`.
fn closest(ranking: &Ranking, best: usize, rows: &[usize]) -> Option<(usize, Interval)> {
    let compared = |at: usize| Some((at, ranking.comparison(best, at).interval?));
    let compared = ranking.unbeaten(rows).into_iter().filter_map(compared);
    compared.min_by(|(_, a), (_, b)| b.estimate.total_cmp(&a.estimate))
}

/// Whether a row has a rank. Without one, it has too few rounds in common with the others.
pub(super) fn is_ranked(row: &Row) -> bool {
    row.result.as_ref().is_some_and(|result| result.rank.is_some())
}

/// Returns the fastest of the candidates that have a result.
pub(crate) fn best_candidate(ranking: &Ranking) -> Option<&Row> {
    ranking.best_of(&candidates(ranking, |_| true)).map(|at| &ranking.rows[at])
}

/// The rows of the candidates with a result that a filter lets through, in the order of the table.
fn candidates(ranking: &Ranking, filter: impl Fn(&Row) -> bool) -> Vec<usize> {
    let is_candidate = |row: &Row| row.spec.standing == Standing::Candidate && row.result.is_some() && filter(row);
    (0..ranking.rows.len()).filter(|at| is_candidate(&ranking.rows[*at])).collect()
}

/// Whether the verdict is a difference in one direction.
pub(crate) fn is_different(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

/// The maximum number of mechanisms in a sentence that is shortened with `and 3 more`.
const MAX_NAMES: usize = 4;

/// Returns the sentences.
pub(crate) fn answer(ranking: &Ranking) -> String {
    let Some(outcome) = outcome(ranking) else {
        return format!("{}.", capitalised(without_outcome(ranking)));
    };
    let mut text = capitalised(&outcome.words());
    if !outcome.is_decided() {
        if has_contradiction(ranking, &outcome.leaders) {
            text.push_str("; pauses change which of them is faster");
        }
        if let Some(ln) = ranking.resolution() {
            text.push_str(&format!("; the table detects differences from {}", difference(ln)));
        }
    }
    text.push('.');
    if let Some((row, interval)) = &outcome.next {
        text.push_str(&format!(" The next, {}, takes {} times as long.", short(row), ratio(interval)));
    }
    text.push_str(&other_data(ranking, &outcome));
    text
}

/// Whether slices and runs without pauses order two of some rows differently.
fn has_contradiction(ranking: &Ranking, rows: &[&Row]) -> bool {
    let index = |row: &&Row| ranking.rows.iter().position(|other| other.spec.name == row.spec.name);
    let rows: Vec<usize> = rows.iter().filter_map(index).collect();
    let mut pairs = rows.iter().flat_map(|a| rows.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b);
    pairs.any(|(a, b)| ranking.comparison(a, b).is_contradicted)
}

/// Says why a cell has no outcome.
pub(super) fn without_outcome(ranking: &Ranking) -> &'static str {
    let candidates = ranking.rows.iter().filter(|row| row.spec.standing == Standing::Candidate && row.result.is_some());
    match candidates.count() {
        0 => "no mechanism has a result",
        1 => "only one mechanism took part: nothing to compare",
        _ if ranking.floor.is_some() => "not decided: fewer than 6 rounds that two mechanisms have in common",
        _ => "not decided: fewer than 6 valid rounds of the control",
    }
}

impl TableOutcome<'_> {
    /// Whether the fastest is known, or several that are equivalent.
    pub(crate) fn is_decided(&self) -> bool {
        self.leaders.len() == 1 || self.are_equivalent
    }

    /// Returns the advice: `use a`, `use a or b, equal within 5 %`, `not decided between a and b`.
    pub(crate) fn words(&self) -> String {
        let names: Vec<&str> = self.leaders.iter().map(|row| short(row)).collect();
        match &*names {
            [one] => format!("use {one}"),
            names if self.are_equivalent => format!("use {}, equal within 5 %", shortened_list(names, "or")),
            names => format!("not decided between {}", shortened_list(names, "and")),
        }
    }
}

/// Names the fastest of each other ownership class, and how many times as long as the fastest of
/// all they take. Returns no text if the leaders have several classes.
fn other_data(ranking: &Ranking, outcome: &TableOutcome<'_>) -> String {
    let first = outcome.leaders[0].spec.ownership;
    if outcome.leaders.iter().any(|row| row.spec.ownership != first) {
        return String::new();
    }
    let is_fastest = |row: &Row| row.spec.name == outcome.leaders[0].spec.name;
    let Some(fastest) = ranking.rows.iter().position(is_fastest) else { return String::new() };
    let mut text = String::new();
    for (ownership, words) in [
        (Ownership::Owned, "Of those that move values"),
        (Ownership::Borrowed, "Of those that copy bytes"),
        (Ownership::Loaned, "Of those whose messages are written in place"),
    ] {
        // The leaders have the first class, so the fastest is not in another.
        if ownership == first {
            continue;
        }
        let class = candidates(ranking, |row| row.spec.ownership == ownership);
        let closest = closest(ranking, fastest, &class).map(|(at, _)| at);
        let Some(best) = closest.or_else(|| ranking.best_of(&class)) else { continue };
        let row = &ranking.rows[best];
        // The sentence about the next mechanism already names it.
        if outcome.next.as_ref().is_some_and(|(next, _)| next.spec.name == row.spec.name) {
            continue;
        }
        let others = class.into_iter().filter(|at| *at != best && is_ranked(&ranking.rows[*at]));
        let equal = others.filter(|at| !ranking.is_better(best, *at));
        let names: Vec<&str> = iter::once(best).chain(equal).map(|at| short(&ranking.rows[at])).collect();
        let times = ranking.comparison(fastest, best).interval;
        let times =
            times.map_or(String::new(), |interval| format!(" ({} times)", three_digits((-interval.estimate).exp())));
        text.push_str(&format!(" {words}: {}{times}.", shortened_list(&names, "or")));
    }
    text
}

/// Like [`list`], but with more than [`MAX_NAMES`] + 1 names the rest is a number:
/// `a, b, c, d and 3 more`.
pub(crate) fn shortened_list(names: &[&str], word: &str) -> String {
    if names.len() <= MAX_NAMES + 1 {
        return list(names, word);
    }
    format!("{} {word} {} more", names[..MAX_NAMES].join(", "), names.len() - MAX_NAMES)
}

/// Capitalises the first letter.
pub(crate) fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Formats a ratio of times: `4.6`, or with its interval if that is wide, `2.00 (1.50 to 3.00)`.
pub(crate) fn ratio(interval: &Interval) -> String {
    let [estimate, low, high] = [interval.estimate, interval.high, interval.low].map(|ln| three_digits((-ln).exp()));
    if (interval.high - interval.low) < 0.1 { estimate } else { format!("{estimate} ({low} to {high})") }
}

/// Joins names with a conjunction: `a`, `a or b`, `a, b or c`.
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
    fn lists_of_names() {
        assert_eq!(list(&["a"], "or"), "a");
        assert_eq!(list(&["a", "b", "c"], "or"), "a, b or c");
        assert_eq!(shortened_list(&["a", "b", "c", "d", "e"], "or"), "a, b, c, d or e");
        assert_eq!(shortened_list(&["a", "b", "c", "d", "e", "f"], "and"), "a, b, c, d and 2 more");
        assert_eq!(capitalised("use a"), "Use a");
    }

    #[test]
    fn the_next_is_the_closest_of_those_that_are_not_beaten_by_another() {
        use estafette_measure::ranking::rank;
        let record = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/overview-quick.json.gz");
        let rankings = rank(&estafette_measure::record::Record::load(&record).unwrap());
        let mut tables = 0;
        for ranking in &rankings {
            let Some(TableOutcome { leaders, next: Some((_, next)), .. }) = outcome(ranking) else { continue };
            tables += 1;
            let at = |row: &Row| ranking.rows.iter().position(|other| other.spec.name == row.spec.name).unwrap();
            let best = at(leaders[0]);
            let slower: Vec<usize> =
                candidates(ranking, |_| true).into_iter().filter(|&row| ranking.is_better(best, row)).collect();
            for row in ranking.unbeaten(&slower) {
                let ratio = ranking.comparison(best, row).interval.map(|interval| interval.estimate);
                assert!(ratio.is_none_or(|ratio| ratio <= next.estimate), "{}", ranking.cell);
            }
        }
        assert!(tables > 5, "{tables}");
    }

    #[test]
    fn a_ratio_has_its_interval_if_that_is_wide() {
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
