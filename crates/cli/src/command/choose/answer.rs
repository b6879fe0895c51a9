//! The answer of one cell to a question.

use estafette_measure::case::Cell;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::{Ordering, Ownership, Standing};
use estafette_measure::units;
use serde::Serialize;

use super::question::Question;
use crate::args::Need;
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::table::{capitalised, outcome_among, percent, ratio, short};

/// The maximum number of mechanisms in a table.
const MAX_ROWS: usize = 6;

/// The answer of one cell.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) cell: Cell,
    /// The answer in words.
    pub(super) words: String,
    /// The fastest that meets the needs, and those that are not known to be slower.
    pub(super) best: Vec<String>,
    pub(super) certainty: Certainty,
    /// The mechanisms that meet the needs, fastest first.
    pub(super) mechanisms: Vec<Candidate>,
    /// The mechanisms that do not, each with the need that it does not meet.
    pub(super) excluded: Vec<(String, Need)>,
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
    /// No mechanism meets the needs.
    Nothing,
}

/// A mechanism that meets the needs.
#[derive(Debug, Serialize)]
pub(super) struct Candidate {
    pub(super) mechanism: String,
    pub(super) version: String,
    pub(super) implementation: String,
    pub(super) ownership: Ownership,
    pub(super) ordering: Ordering,
    /// Nanoseconds per message, or the median round trip.
    pub(super) time_ns: f64,
    pub(super) p99_ns: Option<f64>,
    /// Processor time per message of all its processes, in nanoseconds.
    pub(super) cpu_ns: Option<f64>,
    /// How many messages may wait between the ends. `None` if unknown.
    pub(super) capacity: Option<u64>,
}

impl Answer {
    pub(super) fn of(ranking: &Ranking, question: &Question) -> Answer {
        let cell = &ranking.cell;
        let candidates = ranking.rows.iter().filter(|row| row.spec.standing == Standing::Candidate);
        let (fit, unfit): (Vec<&Row>, Vec<&Row>) =
            candidates.partition(|row| question.unmet(row, cell).is_none() && row.breach.is_none());
        let fit: Vec<&Row> = fit.into_iter().filter(|row| row.result.is_some()).collect();
        let name = |row: &Row| row.spec.name.clone();
        let is_fit = |row: &Row| fit.iter().any(|fit| std::ptr::eq(*fit, row));
        let (words, best, certainty) = match (outcome_among(ranking, is_fit), &*fit) {
            (_, []) => (String::from("No mechanism meets the needs."), Vec::new(), Certainty::Nothing),
            (_, [one]) => {
                let words = format!("Use {}: only this one meets the needs.", short(one));
                (words, vec![name(one)], Certainty::OnlyOne)
            }
            (None, _) => {
                let words = "Not decided: fewer than 6 valid rounds of the control. Measure with more rounds.";
                (String::from(words), fit.iter().map(|row| name(row)).collect(), Certainty::Undecided)
            }
            (Some(outcome), _) => {
                let certainty = match (outcome.leaders.len(), outcome.are_equivalent) {
                    (1, _) => Certainty::Decided,
                    (_, true) => Certainty::Equivalent,
                    (_, false) => Certainty::Undecided,
                };
                let mut words = capitalised(&outcome.words());
                if let (Certainty::Undecided, Some(ln)) = (certainty, ranking.resolution()) {
                    words.push_str(&format!("; differences from {} show", percent(ln.exp_m1())));
                }
                words.push('.');
                if let Some((next, interval)) = &outcome.next {
                    words.push_str(&format!(" The next, {}, takes {} times as long.", short(next), ratio(interval)));
                }
                (words, outcome.leaders.iter().map(|row| name(row)).collect(), certainty)
            }
        };
        Answer {
            cell: cell.clone(),
            words,
            best,
            certainty,
            mechanisms: fit.iter().filter_map(|row| Candidate::of(row)).collect(),
            excluded: unfit.iter().filter_map(|row| Some((name(row), question.unmet(row, cell)?))).collect(),
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        matches!(self.certainty, Certainty::Decided | Certainty::Equivalent | Certainty::OnlyOne)
    }

    pub(super) fn text(&self) -> String {
        let time = |ns: Option<f64>| ns.map_or(String::from("-"), units::duration);
        let rows = self.mechanisms.iter().take(MAX_ROWS).map(|candidate| {
            vec![
                plain(&candidate.mechanism),
                time(Some(candidate.time_ns)),
                time(candidate.p99_ns),
                time(candidate.cpu_ns),
                candidate.capacity.map_or(String::from("-"), units::grouped),
                candidate.ownership.to_string(),
                plain(&format!("{} ({})", candidate.implementation, candidate.version)),
            ]
        });
        let headers = ["mechanism", "time", "p99", "CPU/msg", "capacity", "data", "what it is"];
        let alignment = [Left, Right, Right, Right, Right, Left, Left];
        let table = columns(&headers, &alignment, &rows.collect::<Vec<_>>());
        let more = match self.mechanisms.len().saturating_sub(MAX_ROWS) {
            0 => String::new(),
            more => format!("  and {more} more, slower\n"),
        };
        let excluded: Vec<String> =
            self.excluded.iter().map(|(name, need)| format!("{} ({need})", plain(name))).collect();
        let excluded = match &*excluded {
            [] => String::new(),
            names => wrapped("  ", &format!("excluded by a need that they do not meet: {}", names.join(", "))),
        };
        format!("{}\n{}{table}{more}{excluded}\n", self.cell, wrapped("", &self.words))
    }
}

impl Candidate {
    fn of(row: &Row) -> Option<Candidate> {
        let result = row.result.as_ref()?;
        Some(Candidate {
            mechanism: row.spec.name.clone(),
            version: row.spec.version.clone(),
            implementation: row.spec.implementation.clone(),
            ownership: row.spec.ownership,
            ordering: row.spec.ordering,
            time_ns: result.metric_ns,
            p99_ns: result.p99_ns,
            cpu_ns: result.cpu_ns,
            capacity: row.effective_capacity,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use estafette_measure::ranking::rank;
    use estafette_measure::record::Record;
    use estafette_measure::stats::Verdict;

    use super::*;

    /// The question whose only answer is this cell.
    fn question(cell: &Cell) -> Question {
        Question {
            scopes: vec![cell.scope],
            pattern: Some(cell.pattern),
            payload: Some(cell.payload.kind()),
            size: Some(cell.payload),
            producers: Some(cell.producers),
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
        let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        let mut asked = 0;
        for file in fs::read_dir(results)
            .unwrap()
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|end| end == "gz"))
        {
            let record = Record::load(&file.path()).unwrap();
            let rankings = rank(&record);
            for ranking in &rankings {
                let found = question(&ranking.cell).find(&rankings).unwrap();
                assert!(found.notes.is_empty() && found.rankings.iter().any(|one| one.cell == ranking.cell));
                let answer = Answer::of(ranking, &Question::default());
                let is_candidate = |row: &&Row| row.spec.standing == Standing::Candidate && row.result.is_some();
                let candidates: Vec<&Row> = ranking.rows.iter().filter(is_candidate).collect();
                assert_eq!(answer.mechanisms.len(), candidates.len());
                let Some(first) = candidates.first() else { continue };
                assert_eq!(answer.best[0], first.spec.name, "{}: {}", file.path().display(), ranking.cell);
                // Verdicts are comparisons with the first row of the table, which may be a reference.
                if ranking.rows[0].spec.name == first.spec.name && answer.certainty == Certainty::Decided {
                    let is_slower = |row: &&Row| row.result.as_ref().unwrap().verdict == Some(Verdict::Slower);
                    assert!(candidates[1..].iter().all(is_slower), "{}", ranking.cell);
                }
                asked += 1;
            }
        }
        assert!(asked >= 50, "{asked} questions");
    }

    #[test]
    fn needs_exclude_mechanisms_and_say_so() {
        let record = crate::command::compare::comparison::tests::record();
        let rankings = rank(&record);
        let answer = Answer::of(&rankings[0], &Question { needs: vec![Need::InPlace], ..Question::default() });
        assert_eq!((answer.certainty, answer.excluded.len()), (Certainty::Nothing, 2));
        assert!(answer.text().contains("excluded by a need"), "{}", answer.text());
        let answer =
            Answer::of(&rankings[0], &Question { needs: vec![Need::NoLoss, Need::Order], ..Question::default() });
        assert_eq!((answer.mechanisms.len(), answer.excluded.len()), (2, 0));
    }

    #[test]
    fn the_nearest_size_answers_and_values_that_no_case_has_are_errors() {
        let record = crate::command::compare::comparison::tests::record();
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
