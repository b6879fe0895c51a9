//! The answer over several tables: which scope, or which wait mode, has the fastest mechanism.
//!
//! Mechanisms are ranked within a table. Tables that differ only in the scope and in how the ends
//! wait answer one question, so the fastest of each are compared too: by their ratios in common
//! rounds, with the larger noise floor of the two tables. They did not take turns in slices, so
//! this detects larger differences only.

use estafette_measure::case::{Cell, Load, Pattern};
use estafette_measure::core_distance::Comparable;
use estafette_measure::pairs::log_ratios;
use estafette_measure::ranking::Ranking;
use estafette_measure::record::Record;
use estafette_measure::stats::{CONFIDENCE, Interval, Margins, Verdict, median_interval, verdict};
use serde::Serialize;

use super::answer::{Answer, Candidate, Certainty};
use crate::columns::{plain, wrapped};
use crate::table::{list, ratio, shortened_list};

/// The answer over several tables.
#[derive(Debug, Serialize)]
pub(super) struct Together {
    /// The answer in words.
    pub(super) words: String,
    /// The best mechanisms of the tables that are not known to be slower, with their cells.
    pub(super) best: Vec<Best>,
    pub(super) certainty: Certainty,
    /// What its tables have in common.
    #[serde(skip)]
    key: Key,
}

/// A mechanism in its cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Best {
    pub(super) mechanism: String,
    pub(super) cell: Cell,
}

/// The fastest of one table.
struct First<'a> {
    answer: &'a Answer,
    candidate: &'a Candidate,
    /// Its number in the record.
    entrant: usize,
    floor: Option<f64>,
}

/// What a table has in common with those that answer the same question.
type Key = (Pattern, usize, usize, usize, Load);

fn key(cell: &Cell) -> Key {
    (cell.pattern, cell.payload.len(), cell.producers, cell.capacity, cell.load)
}

impl Together {
    /// Compares the answers of tables that differ in the scope and the wait mode only. There is
    /// one result for each group of such tables.
    pub(super) fn all(answers: &[Answer], rankings: &[&Ranking], record: &Record) -> Vec<Together> {
        let record = &Comparable::of(record).record;
        let firsts: Vec<First<'_>> =
            answers.iter().zip(rankings).filter_map(|(answer, ranking)| First::of(answer, ranking, record)).collect();
        let mut keys: Vec<Key> = Vec::new();
        for first in &firsts {
            if !keys.contains(&key(&first.answer.cell)) {
                keys.push(key(&first.answer.cell));
            }
        }
        let groups = keys.iter().map(|wanted| firsts.iter().filter(|first| key(&first.answer.cell) == *wanted));
        groups.filter_map(|group| Together::of(&group.collect::<Vec<_>>(), record)).collect()
    }

    fn of(group: &[&First<'_>], record: &Record) -> Option<Together> {
        let way = |first: &First<'_>| (first.answer.cell.scope, first.answer.cell.wait);
        let is_repeated = |at: usize| group[..at].iter().any(|before| way(before) == way(group[at]));
        if group.len() < 2 || (0..group.len()).any(is_repeated) {
            return None;
        }
        let best = best(group, record);
        let (mut leaders, mut next, mut are_equivalent) = (vec![best], None::<(&First<'_>, Interval)>, true);
        for first in group.iter().copied().filter(|first| first.entrant != best.entrant) {
            match compare(best, first, record) {
                (Verdict::Slower, Some(interval)) => {
                    if next.as_ref().is_none_or(|(_, other)| interval.estimate > other.estimate) {
                        next = Some((first, interval));
                    }
                }
                (verdict, _) => {
                    are_equivalent &= verdict == Verdict::Equivalent;
                    leaders.push(first);
                }
            }
        }
        let certainty = match (&*leaders, are_equivalent) {
            ([one], _) => one.answer.certainty,
            _ if !leaders.iter().all(|leader| leader.answer.is_decided()) => Certainty::Undecided,
            (_, true) => Certainty::Equivalent,
            (_, false) => Certainty::Undecided,
        };
        let best = leaders.iter().flat_map(|leader| {
            let cell = &leader.answer.cell;
            // Of a table in which nothing could be compared, the one with the shortest time.
            let names = match &*leader.answer.best {
                [] => std::slice::from_ref(&leader.candidate.mechanism),
                best => best,
            };
            names.iter().map(|name| Best { mechanism: name.clone(), cell: cell.clone() })
        });
        Some(Together {
            words: words(&leaders, certainty, next.as_ref()),
            best: best.collect(),
            certainty,
            key: key(&group[0].answer.cell),
        })
    }

    /// Whether it answers for this table too.
    pub(super) fn covers(&self, answer: &Answer) -> bool {
        self.key == key(&answer.cell)
    }

    pub(super) fn text(&self) -> String {
        format!("{}\n", wrapped("", &plain(&self.words)))
    }
}

impl<'a> First<'a> {
    fn of(answer: &'a Answer, ranking: &Ranking, record: &Record) -> Option<First<'a>> {
        let candidate = answer.mechanisms.first()?;
        let is_it = |entrant: &estafette_measure::plan::Entrant| {
            !entrant.control && entrant.case.cell == answer.cell && entrant.case.mechanism == candidate.mechanism
        };
        let entrant = record.entrants.iter().position(is_it)?;
        Some(First { answer, candidate, entrant, floor: ranking.floor })
    }
}

/// The one that no other is known to be faster than; of several, the one with the shortest time.
fn best<'a>(group: &[&'a First<'a>], record: &Record) -> &'a First<'a> {
    let mut by_time = group.to_vec();
    by_time.sort_by(|a, b| a.candidate.time_ns.total_cmp(&b.candidate.time_ns));
    let is_beaten = |one: &First<'_>| {
        group.iter().any(|other| other.entrant != one.entrant && compare(one, other, record).0 == Verdict::Faster)
    };
    by_time.iter().copied().find(|one| !is_beaten(one)).unwrap_or(by_time[0])
}

/// The verdict on `b` against `a`, over their common rounds.
fn compare(a: &First<'_>, b: &First<'_>, record: &Record) -> (Verdict, Option<Interval>) {
    let interval = median_interval(&log_ratios(record, a.entrant, b.entrant), CONFIDENCE);
    let floor = a.floor.zip(b.floor).map(|(a, b)| a.max(b));
    (verdict(interval.as_ref(), floor, Margins::default()), interval)
}

fn words(leaders: &[&First<'_>], certainty: Certainty, next: Option<&(&First<'_>, Interval)>) -> String {
    let named = |first: &First<'_>| format!("{} ({})", first.candidate.mechanism, first.answer.cell.wait);
    let names: Vec<String> = leaders.iter().map(|first| named(first)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cell = &leaders[0].answer.cell;
    let of = format!("Of all these tables of {}, {}", cell.pattern, cell.payload);
    let mut words = match certainty {
        Certainty::Equivalent if names.len() > 1 => format!("{of}: use {}, equal within 5 %.", list(&names, "or")),
        _ if names.len() == 1 => format!("{of}: {} is the fastest.", best_of(leaders[0])),
        _ => format!("{of}: not decided between {}.", list(&names, "and")),
    };
    if let Some((next, interval)) = next {
        words.push_str(&format!(" The next table's best, {}, takes {} times as long.", named(next), ratio(interval)));
    }
    words
}

/// The fastest of a table, with those that are equal or not decided to be slower.
fn best_of(first: &First<'_>) -> String {
    let Answer { best, cell, certainty, .. } = first.answer;
    let name = &first.candidate.mechanism;
    let others: Vec<&str> = best.iter().filter(|other| *other != name).map(String::as_str).collect();
    if others.is_empty() {
        return format!("{name} ({})", cell.wait);
    }
    let why = if *certainty == Certainty::Equivalent { "equal within 5 %" } else { "not decided between them" };
    format!("{name} ({}) or {}, {why},", cell.wait, shortened_list(&others, "or"))
}
