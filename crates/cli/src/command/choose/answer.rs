//! The answer of one cell to a question.

use estafette_measure::case::{Cell, Load};
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::record::Record;
use estafette_measure::spec::{Ordering, Ownership};
use estafette_measure::units;
use serde::Serialize;

use super::exclusion::{self, Excluded, Why};
use super::question::Question;
use super::start::start;
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::table::{capitalised, difference, outcome_among, ratio, short, time};

/// The maximum number of mechanisms in a table.
const MAX_ROWS: usize = 6;
/// The maximum number of names with one reason below a table that has an answer.
pub(super) const MAX_NAMES: usize = 8;
/// The maximum number of mechanisms with a line to start with.
const MAX_STARTS: usize = 3;

/// What the column of memory says.
const MEMORY_NOTE: &str = "memory: by how much the memory of all processes grew after the mechanism was opened; shared memory \
    counts once; mapped files and the kernel's buffers of pipes and sockets are not counted; some hundred KiB of each process \
    are the command's own";

/// The answer of one cell.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) cell: Cell,
    /// The answer in words.
    pub(super) words: String,
    /// The fastest that meets the needs, and those that are not known to be slower. Empty if
    /// nothing could be compared.
    pub(super) best: Vec<String>,
    pub(super) certainty: Certainty,
    /// The rounds that count for the fastest.
    pub(super) rounds: usize,
    /// The smallest difference that the cell detects, as a fraction: 0.2 is 20 %. `None` if its
    /// noise is unknown.
    pub(super) detects: Option<f64>,
    /// The mechanisms that meet the needs, fastest first.
    pub(super) mechanisms: Vec<Candidate>,
    /// The mechanisms that are excluded.
    pub(super) excluded: Vec<Excluded>,
}

/// How certain an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Certainty {
    /// One mechanism is the fastest.
    Decided,
    /// Several are equal within 5 %.
    Equivalent,
    /// Only one mechanism meets the needs.
    OnlyOne,
    /// The measurement does not tell the fastest.
    Undecided,
    /// No mechanism that meets the needs has a result.
    NoResult,
    /// No mechanism meets the needs.
    Nothing,
}

impl Certainty {
    pub(super) fn is_decided(self) -> bool {
        matches!(self, Certainty::Decided | Certainty::Equivalent | Certainty::OnlyOne)
    }
}

/// A mechanism that meets the needs.
#[derive(Debug, Serialize)]
pub(super) struct Candidate {
    pub(super) mechanism: String,
    pub(super) version: String,
    pub(super) implementation: String,
    pub(super) ownership: Ownership,
    pub(super) ordering: Ordering,
    /// What is compared, in nanoseconds: the time per message, the median round trip, or at a rate
    /// the 99th percentile of the latency.
    pub(super) time_ns: f64,
    pub(super) p50_ns: Option<f64>,
    pub(super) p99_ns: Option<f64>,
    /// Processor time per message of all its processes, in nanoseconds.
    pub(super) cpu_ns: Option<f64>,
    /// How many messages may wait between the ends. `None` if unknown.
    pub(super) capacity: Option<u64>,
    /// The memory of all processes in bytes beyond what they had before it was opened, without the
    /// kernel's buffers. `None` if the record does not have it.
    pub(super) memory: Option<f64>,
    /// The memory of the channel in bytes when it holds a burst, from another table of the record.
    /// `None` if the record does not have it.
    pub(super) burst_memory: Option<f64>,
    /// What to start with: the crate to add, or the calls to make.
    pub(super) start: String,
}

/// What is advised.
struct ChoiceAdvice {
    words: String,
    best: Vec<String>,
    certainty: Certainty,
}

impl Answer {
    /// Answers from one cell. `rankings` are all of the record.
    pub(super) fn of(ranking: &Ranking, question: &Question, record: &Record, rankings: &[Ranking]) -> Answer {
        let cell = &ranking.cell;
        let excluded = ranking.rows.iter().filter_map(|row| Excluded::of_row(row, record, question, cell.producers));
        let excluded: Vec<Excluded> = excluded.collect();
        let is_fit = |row: &Row| {
            let is_excluded = excluded.iter().any(|excluded| excluded.mechanism == row.spec.name);
            question.concerns(&row.spec) && !is_excluded
        };
        let mut fit: Vec<&Row> = ranking.rows.iter().filter(|row| is_fit(row) && row.result.is_some()).collect();
        let ChoiceAdvice { words, best, certainty } = match &*fit {
            [] => without_candidate(&excluded, cell),
            [one] => {
                let words = format!("Use {}: only this one meets the needs and has a result.", short(one));
                ChoiceAdvice { words, best: vec![one.spec.name.clone()], certainty: Certainty::OnlyOne }
            }
            _ => among(ranking, is_fit),
        };
        if best.is_empty() {
            // Nothing is compared, so only the times are left.
            fit.sort_by(|a, b| a.metric_ns().total_cmp(&b.metric_ns()));
        } else {
            // The best of some mechanisms need not be the first of them in the table of all.
            fit.sort_by_key(|row| best.iter().position(|name| *name == row.spec.name).unwrap_or(usize::MAX));
        }
        Answer {
            cell: cell.clone(),
            words,
            best,
            certainty,
            rounds: fit.first().and_then(|row| row.result.as_ref()).map_or(0, |result| result.rounds),
            detects: ranking.resolution().map(f64::exp_m1),
            mechanisms: fit.iter().filter_map(|row| Candidate::of(row, rankings)).collect(),
            excluded,
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.certainty.is_decided()
    }

    pub(super) fn text(&self) -> String {
        let more = match self.mechanisms.len().saturating_sub(MAX_ROWS) {
            0 => String::new(),
            more if self.best.is_empty() || self.best.len() > MAX_ROWS => format!("  and {more} more\n"),
            more => format!("  and {more} more, slower\n"),
        };
        format!(
            "{}\n{}{}{more}{}{}{}{}\n",
            self.cell,
            wrapped("", &self.words),
            self.table(),
            self.certainty_text(),
            self.memory_text(),
            self.starts(),
            exclusion::text(&self.excluded, if self.mechanisms.is_empty() { usize::MAX } else { MAX_NAMES })
        )
    }

    fn table(&self) -> String {
        let is_open_loop = self.cell.load != Load::Saturated;
        let has_memory = self.shown().any(|candidate| candidate.memory.is_some());
        let has_burst = self.shown().any(|candidate| candidate.burst_memory.is_some());
        // At a rate the 99th percentile is what is compared. The median stands beside it.
        let figures = if is_open_loop { ["p99", "p50"] } else { ["time", "p99"] };
        let mut headers = vec!["mechanism", figures[0], figures[1], "CPU/msg", "capacity"];
        let mut alignment = vec![Left, Right, Right, Right, Right];
        if has_memory {
            headers.push("memory");
            alignment.push(Right);
        }
        if has_burst {
            headers.push("in a burst");
            alignment.push(Right);
        }
        headers.push("data");
        let bytes = |bytes: Option<f64>| bytes.map_or(String::from("-"), units::memory);
        let rows = self.shown().map(|candidate| {
            let second = if is_open_loop { candidate.p50_ns } else { candidate.p99_ns };
            let mut row = vec![
                plain(&candidate.mechanism),
                time(Some(candidate.time_ns)),
                time(second),
                time(candidate.cpu_ns),
                candidate.capacity.map_or(String::from("-"), units::grouped),
            ];
            if has_memory {
                row.push(bytes(candidate.memory));
            }
            if has_burst {
                row.push(bytes(candidate.burst_memory));
            }
            row.push(candidate.ownership.to_string());
            row
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() { String::new() } else { columns(&headers, &alignment, &rows) }
    }

    /// What the answer rests on.
    fn certainty_text(&self) -> String {
        let rounds = if self.rounds == 1 { String::from("1 round") } else { format!("{} rounds", self.rounds) };
        match (self.certainty, self.detects) {
            (Certainty::Nothing | Certainty::NoResult, _) => String::new(),
            (_, Some(detects)) => {
                format!("  from {rounds}; detects differences from {}\n", difference(detects.ln_1p()))
            }
            (_, None) => format!("  from {rounds}\n"),
        }
    }

    /// What the columns of memory say.
    fn memory_text(&self) -> String {
        let has = |of: fn(&Candidate) -> Option<f64>| self.shown().any(|candidate| of(candidate).is_some());
        let mut text = String::new();
        if has(|candidate| candidate.memory) {
            text.push_str(&wrapped("  ", MEMORY_NOTE));
        }
        if has(|candidate| candidate.burst_memory) {
            text.push_str("  in a burst: the memory of the channel with a million messages in it\n");
        }
        text
    }

    /// The mechanisms of the table.
    fn shown(&self) -> impl Iterator<Item = &Candidate> {
        self.mechanisms.iter().take(MAX_ROWS)
    }

    /// What to start with, for the best.
    fn starts(&self) -> String {
        let best = self.mechanisms.iter().filter(|candidate| self.best.contains(&candidate.mechanism));
        let line = |candidate: &Candidate| {
            let name = candidate.mechanism.split_once('/').map_or(&*candidate.mechanism, |(_, name)| name);
            wrapped("  ", &plain(&format!("to start with {name}: {}", candidate.start)))
        };
        best.take(MAX_STARTS).map(line).collect()
    }
}

/// The advice of a cell without a mechanism that meets the needs and has a result.
fn without_candidate(excluded: &[Excluded], cell: &Cell) -> ChoiceAdvice {
    let has_failed = excluded.iter().any(|one| !matches!(one.why, Why::Need(_)));
    let (words, certainty) = match has_failed {
        true => {
            let words = "No mechanism that meets the needs has a valid result; each has its reason below.";
            (format!("{words} {}", remedy(cell)), Certainty::NoResult)
        }
        false => (String::from("No mechanism meets the needs."), Certainty::Nothing),
    };
    ChoiceAdvice { words, best: Vec::new(), certainty }
}

/// What to do about too few valid results.
fn remedy(cell: &Cell) -> &'static str {
    match cell.load {
        Load::Saturated => "Measure longer, while nothing else runs.",
        Load::Rate(_) | Load::Poisson(_) => {
            "The senders could not keep the rate: choose a lower --load, or end other processes."
        }
    }
}

/// The advice of a cell on several mechanisms that meet the needs.
fn among(ranking: &Ranking, is_fit: impl Fn(&Row) -> bool) -> ChoiceAdvice {
    let name = |row: &&Row| row.spec.name.clone();
    let Some(outcome) = outcome_among(ranking, is_fit) else {
        let why = match ranking.floor {
            Some(_) => "fewer than 6 rounds that two of them have in common",
            None => "fewer than 6 valid rounds of the control",
        };
        let words = format!("Not decided: {why}. {}", remedy(&ranking.cell));
        return ChoiceAdvice { words, best: Vec::new(), certainty: Certainty::Undecided };
    };
    let certainty = match (outcome.leaders.len(), outcome.are_equivalent) {
        (1, _) => Certainty::Decided,
        (_, true) => Certainty::Equivalent,
        (_, false) => Certainty::Undecided,
    };
    let mut words = capitalised(&outcome.words());
    words.push('.');
    if let Some((next, interval)) = &outcome.next {
        words.push_str(&format!(" The next, {}, takes {} times as long.", short(next), ratio(interval)));
    }
    ChoiceAdvice { words, best: outcome.leaders.iter().map(name).collect(), certainty }
}

impl Candidate {
    fn of(row: &Row, rankings: &[Ranking]) -> Option<Candidate> {
        let result = row.result.as_ref()?;
        Some(Candidate {
            mechanism: row.spec.name.clone(),
            version: row.spec.version.clone(),
            implementation: row.spec.implementation.clone(),
            ownership: row.spec.ownership,
            ordering: row.spec.ordering,
            time_ns: result.metric_ns,
            p50_ns: result.p50_ns,
            p99_ns: result.p99_ns,
            cpu_ns: result.cpu_ns,
            capacity: row.effective_capacity,
            memory: result.memory,
            burst_memory: burst_memory(&row.spec.name, rankings),
            start: start(&row.spec),
        })
    }
}

/// The memory of a mechanism's channel in bytes when it holds a burst.
fn burst_memory(mechanism: &str, rankings: &[Ranking]) -> Option<f64> {
    let rows = rankings.iter().flat_map(|ranking| &ranking.rows);
    let mut sizes =
        rows.filter(|row| row.spec.name == mechanism).filter_map(|row| row.result.as_ref()?.of_pattern.burst_memory());
    sizes.next().map(|[_, full, _]| full)
}

#[cfg(test)]
pub(super) mod tests {
    use estafette_measure::ranking::rank;
    use estafette_measure::spec::Standing;

    use super::super::questions::{Published, published};
    use super::*;
    use crate::args::Need;

    /// The question whose only answer is this cell.
    pub(in super::super) fn question(cell: &Cell) -> Question {
        Question {
            names: Vec::new(),
            scopes: vec![cell.scope],
            pattern: Some(cell.pattern),
            payload: Some(cell.payload.kind()),
            size: Some(cell.payload),
            producers: Some(cell.producers),
            capacity: Some(cell.capacity),
            wait: Some(cell.wait),
            runtime: Some(cell.runtime),
            place: Some(cell.place),
            load: Some(cell.load),
            needs: Vec::new(),
        }
    }

    /// For each cell of the published records the answer is what the verdicts say.
    #[test]
    fn answers_agree_with_the_verdicts_of_the_published_records() {
        let mut asked = 0;
        for Published { file, record, rankings, .. } in published() {
            for ranking in rankings {
                let found = question(&ranking.cell).find(rankings).unwrap();
                assert!(found.notes.is_empty() && found.rankings.iter().any(|one| one.cell == ranking.cell));
                let answer = Answer::of(ranking, &Question::default(), record, rankings);
                let is_candidate = |row: &&Row| row.spec.standing == Standing::Candidate && row.result.is_some();
                let candidates: Vec<&Row> = ranking.rows.iter().filter(is_candidate).collect();
                assert_eq!(answer.mechanisms.len(), candidates.len());
                let Some(best) = answer.best.first() else { continue };
                assert_eq!(answer.mechanisms[0].mechanism, *best);
                let at = |name: &str| ranking.rows.iter().position(|row| row.spec.name == name).unwrap();
                for other in candidates.iter().map(|row| &row.spec.name).filter(|name| *name != best) {
                    let words = format!("{file}: {}: {best} and {other}", ranking.cell);
                    let is_unranked = ranking.rows[at(other)].result.as_ref().is_some_and(|it| it.rank.is_none());
                    let is_best = ranking.floor.is_none() || answer.best.contains(other);
                    let is_beaten = answer.best.iter().any(|best| ranking.is_better(at(best), at(other)));
                    assert!(if is_best { !is_beaten } else { is_beaten || is_unranked }, "{words}");
                    assert!(!ranking.is_better(at(other), at(best)), "{words}");
                }
                asked += 1;
            }
        }
        assert!(asked >= 50, "{asked} questions");
    }

    fn needing(needs: &[Need]) -> Question {
        Question { needs: needs.to_vec(), ..Question::default() }
    }

    #[test]
    fn needs_exclude_mechanisms_and_say_so() {
        let record = crate::comparison::tests::record();
        let rankings = rank(&record);
        let answer = Answer::of(&rankings[0], &needing(&[Need::InPlace]), &record, &rankings);
        assert_eq!((answer.certainty, answer.excluded.len()), (Certainty::Nothing, 2));
        assert!(answer.text().contains("does not meet --need in-place"), "{}", answer.text());
        let answer = Answer::of(&rankings[0], &needing(&[Need::NoLoss, Need::Order]), &record, &rankings);
        assert_eq!((answer.mechanisms.len(), answer.excluded.len()), (2, 0));
    }

    #[test]
    fn where_nothing_is_compared_the_order_is_that_of_the_times_and_none_is_advised() {
        let record = crate::comparison::tests::record();
        let mut rankings = rank(&record);
        rankings[0].floor = None;
        let answer = Answer::of(&rankings[0], &Question::default(), &record, &rankings);
        assert_eq!((answer.certainty, answer.best.len()), (Certainty::Undecided, 0));
        let times: Vec<f64> = answer.mechanisms.iter().map(|candidate| candidate.time_ns).collect();
        assert!(times.len() == 2 && times.is_sorted(), "{times:?}");
        assert!(!answer.text().contains("to start with") && !answer.text().contains("slower"), "{}", answer.text());
    }

    #[test]
    fn the_nearest_size_answers_and_values_that_no_case_has_are_errors() {
        let record = crate::comparison::tests::record();
        let rankings = rank(&record);
        let size = Question { size: Some("100".parse().unwrap()), ..Question::default() };
        let found = size.find(&rankings).unwrap();
        assert_eq!(
            (found.rankings.len(), &*found.notes[0]),
            (2, "The record has no size of 100B. The nearest is 64B.")
        );
        let scope = Question { scopes: vec![estafette_measure::spec::Scope::Network], ..Question::default() };
        let error = scope.find(&rankings).err().unwrap().to_string();
        assert!(error.contains("no case has --scope network, only process"), "{error}");
    }
}
