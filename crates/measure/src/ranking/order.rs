//! The order of the mechanisms of a cell, by their paired ratios: which is the best, and which
//! share a rank.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{Rank, Row};
use crate::pairs::{cross_check_log_ratios, log_ratios};
use crate::record::Record;
use crate::stats::{CONFIDENCE, Interval, Margins, Verdict, median, median_interval, verdict};

/// The confidence of the interval that contradicts a verdict. Lower than that of a verdict, because
/// a contradiction does not decide the opposite: doubt is enough to decide nothing.
const CROSS_CHECK_CONFIDENCE: f64 = 0.75;

/// The comparison of two mechanisms.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The ln ratio. Positive if the second mechanism is better. `None` with too few rounds.
    pub interval: Option<Interval>,
    /// The verdict on the second mechanism, from the interval and the cell's noise floor: `Slower`
    /// means that the second is slower. Inconclusive if it is contradicted.
    pub verdict: Verdict,
    /// Whether the slices and the unpaused runs put the two mechanisms in opposite orders: one of
    /// them decided, and the other's 75 % interval lies wholly beyond the margin of equivalence on
    /// the other side of 1. Only rounds in which they shared a heat say so, and at least six.
    pub is_contradicted: bool,
}

/// The ln ratios of all pairs of some entrants, by round.
pub(super) struct Ratios {
    compared: BTreeMap<(usize, usize), Vec<f64>>,
    /// Those of the unpaused runs of pairs that are compared by slices, and of the slices of pairs
    /// that are compared by unpaused runs.
    cross_check: BTreeMap<(usize, usize), Vec<f64>>,
}

impl Ratios {
    pub(super) fn of(record: &Record, entrants: &[usize]) -> Ratios {
        let pairs = entrants.iter().flat_map(|a| entrants.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b);
        let pairs: Vec<(usize, usize)> = pairs.collect();
        let of = |ratios: fn(&Record, usize, usize) -> Vec<f64>| {
            pairs.iter().map(|&(a, b)| ((a, b), ratios(record, a, b))).collect()
        };
        Ratios { compared: of(log_ratios), cross_check: of(cross_check_log_ratios) }
    }

    /// The median ln ratio. Positive if `b` is better. `None` without common rounds.
    fn median(&self, a: usize, b: usize) -> Option<f64> {
        if a > b {
            return self.median(b, a).map(|median| -median);
        }
        median(self.compared.get(&(a, b))?)
    }

    /// The interval of the ln ratio. Positive if `b` is better. `None` with too few common rounds.
    fn interval(&self, a: usize, b: usize) -> Option<Interval> {
        interval(&self.compared, a, b, CONFIDENCE)
    }

    /// Whether two entrants have enough common rounds for an interval.
    fn is_comparable(&self, a: usize, b: usize) -> bool {
        a != b && self.interval(a, b).is_some()
    }

    /// The interval by which a verdict may be contradicted. `None` with fewer rounds than a verdict
    /// needs.
    fn cross_check(&self, a: usize, b: usize) -> Option<Interval> {
        interval(&self.cross_check, a, b, CONFIDENCE)?;
        interval(&self.cross_check, a, b, CROSS_CHECK_CONFIDENCE)
    }

    pub(super) fn compare(&self, above: usize, below: usize, floor: Option<f64>) -> Comparison {
        let interval = self.interval(above, below);
        let verdict = verdict(interval.as_ref(), floor, Margins::default());
        let is_contradicted = is_contradicted(verdict, self.cross_check(above, below).as_ref());
        let verdict = if is_contradicted { Verdict::Inconclusive } else { verdict };
        Comparison { interval, verdict, is_contradicted }
    }
}

/// See [`Comparison::is_contradicted`].
fn is_contradicted(decided: Verdict, cross_check: Option<&Interval>) -> bool {
    let margin = Margins::default().equivalent.ln_1p();
    cross_check.is_some_and(|other| match decided {
        Verdict::Slower => other.low > margin,
        Verdict::Faster => other.high < -margin,
        Verdict::Equivalent | Verdict::Inconclusive => false,
    })
}

/// The interval of the ln ratio of a pair. Positive if `b` is better. `None` with too few rounds.
fn interval(ratios: &BTreeMap<(usize, usize), Vec<f64>>, a: usize, b: usize, confidence: f64) -> Option<Interval> {
    if a > b {
        return interval(ratios, b, a, confidence).as_ref().map(Interval::inverse);
    }
    median_interval(ratios.get(&(a, b))?, confidence)
}

/// Sorts rows, best first, by their paired ratios, from which the verdicts follow too. The order of
/// the medians may differ from this on a machine that drifts between rounds.
pub(super) fn sort(ratios: &Ratios, rows: &mut [(usize, Row)]) {
    let contender = |(at, row): &(usize, Row)| Contender { at: *at, metric_ns: row.metric_ns() };
    let measured: Vec<Contender> = rows.iter().filter(|(_, row)| row.result.is_some()).map(contender).collect();
    // One with few rounds may have been lucky in them, so it does not order the others.
    let is_comparable = |one: &Contender| measured.iter().any(|other| ratios.is_comparable(one.at, other.at));
    let comparable: Vec<Contender> = measured.iter().copied().filter(is_comparable).collect();
    let Some(first) = best(ratios, if comparable.is_empty() { measured } else { comparable }) else { return };
    let key = |row: &(usize, Row)| {
        let other = contender(row);
        (row.1.result.is_none(), other.at != first.at, -advantage(ratios, first, other))
    };
    rows.sort_by(|a, b| {
        let ((a_none, a_other, a_worse), (b_none, b_other, b_worse)) = (key(a), key(b));
        (a_none, a_other).cmp(&(b_none, b_other)).then(a_worse.total_cmp(&b_worse))
    });
}

/// Compares every row with every row above it.
pub(super) fn compare_all(ratios: &Ratios, rows: &[(usize, Row)], floor: Option<f64>) -> Vec<Vec<Comparison>> {
    // What has no result is not compared, although it may have valid instances: see `Row::no_result`.
    let of = |(a, above): &(usize, Row), (b, below): &(usize, Row)| match (&above.result, &below.result) {
        (Some(_), Some(_)) => ratios.compare(*a, *b, floor),
        _ => Comparison { interval: None, verdict: Verdict::Inconclusive, is_contradicted: false },
    };
    let with_others = |above: usize| rows[above + 1..].iter().map(|below| of(&rows[above], below)).collect();
    (0..rows.len()).map(with_others).collect()
}

/// Which rows are decided to be better than which others: by their comparison, or through rows in
/// between. If A is decided to be better than B and B than C, then A is better than C, even if A
/// and C have too few common rounds. So a row that is hardly compared is not ranked above one that
/// beats it.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    /// `better[a][b]`: row `a` is better than row `b`.
    better: Vec<Vec<bool>>,
    /// The pairs that are contradicted, in both directions. Between them nothing is decided, also
    /// not through rows in between.
    contradicted: BTreeSet<(usize, usize)>,
}

impl Decided {
    /// `pairs[i][j - i - 1]` compares row `j` with row `i`. Computes the transitive closure
    /// (Warshall 1962).
    pub(super) fn of(pairs: &[Vec<Comparison>]) -> Decided {
        let mut better = vec![vec![false; pairs.len()]; pairs.len()];
        let mut contradicted = BTreeSet::new();
        for (above, pairs) in pairs.iter().enumerate() {
            for (below, pair) in (above + 1..).zip(pairs) {
                better[above][below] = pair.verdict == Verdict::Slower;
                better[below][above] = pair.verdict == Verdict::Faster;
                if pair.is_contradicted {
                    contradicted.extend([(above, below), (below, above)]);
                }
            }
        }
        for between in 0..better.len() {
            let beyond = better[between].clone();
            for of_row in better.iter_mut().filter(|of_row| of_row[between]) {
                of_row.iter_mut().zip(&beyond).for_each(|(is_better, is_beyond)| *is_better |= is_beyond);
            }
        }
        Decided { better, contradicted }
    }

    /// Whether row `a` is decided to be better than row `b`. Between rows of a cycle, of which each
    /// beats the next, nothing is decided.
    pub(super) fn is_better(&self, a: usize, b: usize) -> bool {
        self.better[a][b] && !self.better[b][a] && !self.contradicted.contains(&(a, b))
    }

    /// The number of other rows that are decided to be better.
    fn number_of_better(&self, row: usize) -> usize {
        (0..self.better.len()).filter(|&other| self.is_better(other, row)).count()
    }
}

/// Gives each sorted row its rank. It depends on how many rows are decided to be better. Rows with
/// the same number share a rank and are adjacent. A row that cannot be compared with the first, not
/// even through others, has no rank, and comes after those that have one.
pub(super) fn assign_ranks(ratios: &Ratios, rows: &mut [(usize, Row)], floor: Option<f64>) {
    let decided = Decided::of(&compare_all(ratios, rows, floor));
    let better: Vec<usize> = (0..rows.len()).map(|row| decided.number_of_better(row)).collect();
    let mut order = connected_with_first(ratios, rows);
    order.sort_by_key(|at| better[*at]);
    for (index, &at) in order.iter().enumerate() {
        let group = order.iter().filter(|other| better[**other] == better[at]).count();
        let first = order[..index].iter().filter(|other| better[**other] != better[at]).count();
        if let Some(result) = rows[at].1.result.as_mut().filter(|_| floor.is_some()) {
            result.rank = Some(Rank { number: first + 1, tied: group > 1 });
        }
    }
    // The sort is stable, so the best row of a rank stays first.
    rows.sort_by_key(|(_, row)| {
        row.result.as_ref().and_then(|result| result.rank).map_or(usize::MAX, |rank| rank.number)
    });
}

/// The indices, in order, of the first row and of those that are comparable with it, or with one
/// that is, and so on.
fn connected_with_first(ratios: &Ratios, rows: &[(usize, Row)]) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..rows.len()).filter(|index| rows[*index].1.result.is_some()).collect();
    let mut connected: Vec<usize> = rest.drain(..rest.len().min(1)).collect();
    let mut next = 0;
    while let Some(&index) = connected.get(next) {
        connected.extend(rest.extract_if(.., |other| ratios.is_comparable(rows[index].0, rows[*other].0)));
        next += 1;
    }
    connected.sort_unstable();
    connected
}

/// Compares each row with the first.
pub(super) fn compare_with_first(rows: &mut [(usize, Row)], pairs: &[Vec<Comparison>]) {
    for (index, (_, row)) in rows.iter_mut().enumerate().skip(1) {
        if let Some(result) = &mut row.result {
            let comparison = &pairs[0][index - 1];
            (result.versus, result.verdict) = (comparison.interval, Some(comparison.verdict));
        }
    }
}

/// An entrant with its median metric.
#[derive(Clone, Copy)]
struct Contender {
    at: usize,
    metric_ns: f64,
}

/// The median ln ratio of `a` and `b`; without common rounds, the ln ratio of their metrics.
/// Positive if `b` is better.
fn advantage(ratios: &Ratios, a: Contender, b: Contender) -> f64 {
    ratios.median(a.at, b.at).unwrap_or_else(|| (a.metric_ns / b.metric_ns).ln())
}

/// The best of some entrants, by their paired ratios. The metric decides between equals.
fn best(ratios: &Ratios, mut entrants: Vec<Contender>) -> Option<Contender> {
    entrants.sort_by(|a, b| a.metric_ns.total_cmp(&b.metric_ns));
    let indices: Vec<usize> = (0..entrants.len()).collect();
    minimax(&indices, |a, b| advantage(ratios, entrants[a], entrants[b])).map(|at| entrants[at])
}

/// The entrant with the smallest worst defeat (the minimax method of Simpson and Kramer). That is
/// the one that no other beats, if there is one. If the comparisons form a cycle, each is beaten by
/// another. The first of equals.
///
/// `advantage(a, b)` says by how much `b` is better than `a`.
fn minimax(entrants: &[usize], advantage: impl Fn(usize, usize) -> f64) -> Option<usize> {
    let worst_defeat = |a: usize| entrants.iter().filter(|&&b| b != a).map(|&b| advantage(a, b)).fold(0.0, f64::max);
    let defeats: Vec<(usize, f64)> = entrants.iter().map(|&at| (at, worst_defeat(at))).collect();
    defeats.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pairs` has the verdicts on each row's comparisons with the rows below it.
    fn decided(pairs: &[&[Verdict]]) -> Decided {
        let comparison = |verdict: &Verdict| Comparison { interval: None, verdict: *verdict, is_contradicted: false };
        let pairs: Vec<Vec<Comparison>> =
            pairs.iter().map(|verdicts| verdicts.iter().map(comparison).collect()).collect();
        Decided::of(&pairs)
    }

    #[test]
    fn what_is_decided_through_others_counts() {
        use Verdict::{Faster, Inconclusive, Slower};
        // Row 1 is better than row 0, and row 2 than row 1. Row 3 is worse than row 0 only.
        let decided = decided(&[&[Faster, Inconclusive, Slower], &[Faster, Inconclusive], &[Inconclusive], &[]]);
        assert!(decided.is_better(2, 0) && decided.is_better(2, 3) && decided.is_better(1, 3));
        assert!(!decided.is_better(0, 2) && !decided.is_better(3, 0));
        assert_eq!([0, 1, 2, 3].map(|row| decided.number_of_better(row)), [2, 1, 0, 3]);
    }

    #[test]
    fn a_contradicted_pair_is_not_decided_through_others() {
        let comparison = |verdict, is_contradicted| Comparison { interval: None, verdict, is_contradicted };
        // Row 0 is better than row 1, and row 1 than row 2.
        let slower = || comparison(Verdict::Slower, false);
        let of = |last: Comparison| Decided::of(&[vec![slower(), last], vec![slower()], vec![]]);
        assert!(of(comparison(Verdict::Inconclusive, false)).is_better(0, 2));
        let decided = of(comparison(Verdict::Inconclusive, true));
        assert!(!decided.is_better(0, 2) && !decided.is_better(2, 0));
        assert!(decided.is_better(0, 1) && decided.is_better(1, 2));
    }

    #[test]
    fn nothing_is_decided_within_a_cycle() {
        use Verdict::{Faster, Slower};
        // Each of the rows 0, 1 and 2 is better than the next, and all are better than row 3.
        let decided = decided(&[&[Slower, Faster, Slower], &[Slower, Slower], &[Slower], &[]]);
        assert_eq!([0, 1, 2, 3].map(|row| decided.number_of_better(row)), [0, 0, 0, 3]);
        assert!(!decided.is_better(0, 0) && !decided.is_better(0, 1) && decided.is_better(2, 3));
    }

    #[test]
    fn the_best_has_the_smallest_worst_defeat() {
        let best = |advantages: [[f64; 3]; 3]| minimax(&[0, 1, 2], |a, b| advantages[a][b]);
        assert_eq!(best([[0.0, 0.3, -0.1], [-0.3, 0.0, -0.2], [0.1, 0.2, 0.0]]), Some(1));
        // A cycle: 1 is better than 0, 2 than 1, and 0 than 2. The last advantage is the smallest.
        assert_eq!(best([[0.0, 0.3, -0.1], [-0.3, 0.0, 0.2], [0.1, -0.2, 0.0]]), Some(2));
        assert_eq!(best([[0.0; 3]; 3]), Some(0));
        assert_eq!(minimax(&[], |_, _| 0.0), None);
    }
}
