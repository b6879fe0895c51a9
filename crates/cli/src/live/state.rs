//! What the live view shows, from the record so far.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use estafette_measure::case::{Case, Cell};
use estafette_measure::ranking::{Ranking, rank};
use estafette_measure::record::{Outcome, Record};

use crate::summary::discarded_by_cause;
use crate::table::{against_first, capitalised, outcome, percent, short, times};

/// What the view shows.
#[derive(Default)]
pub(super) struct State {
    pub(super) step: Step,
    /// The complete rounds, and those planned so far.
    pub(super) rounds: [usize; 2],
    /// Why the last round was measured, if it was not planned.
    pub(super) why: Option<String>,
    pub(super) tables: Vec<TableState>,
    /// The causes of discarded instances, and how many each discarded, most first.
    pub(super) discarded: Vec<(String, usize)>,
    /// Warnings, in the order of their time.
    pub(super) messages: Vec<String>,
}

/// What the run does.
#[derive(Debug)]
pub(crate) enum Step {
    /// It prepares the rounds: a stage and a part of it, such as `limits` and `copy`.
    Preparing { stage: String, part: String },
    /// It measures.
    Measuring {
        /// The number of instances that are done.
        done: usize,
        /// The number of all instances.
        of: usize,
        /// The estimated remaining time.
        left: Option<Duration>,
        /// The case of the instance that is next.
        case: Case,
    },
}

impl Default for Step {
    fn default() -> Step {
        Step::Preparing { stage: String::from("starting"), part: String::new() }
    }
}

/// One cell, whose mechanisms are compared.
pub(super) struct TableState {
    pub(super) cell: Cell,
    /// The number of rounds with a valid instance.
    pub(super) rounds: usize,
    pub(super) certainty: LiveCertainty,
    /// What is known so far: `Use pipe`.
    pub(super) answer: String,
    /// The second mechanism's time relative to the first's, with its interval.
    pub(super) second: String,
    /// The time of the control relative to the same mechanism's other instance: the noise.
    pub(super) control: String,
    /// The smallest difference that the rounds so far detect.
    pub(super) resolution: String,
    /// The number of discarded instances.
    pub(super) discarded: usize,
}

/// How certain a table's answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiveCertainty {
    /// Too few rounds, or nothing to compare.
    NotKnown,
    /// Several mechanisms may be the fastest.
    Open,
    /// One mechanism is the fastest, or several are equal.
    Decided,
}

impl State {
    /// Takes over what a round has changed.
    pub(super) fn update(&mut self, record: &Record, why: Option<String>) {
        let rounds = valid_rounds(record);
        self.rounds = [record.rounds, record.rounds_planned];
        self.why = why;
        self.tables = rank(record).iter().map(|ranking| table(ranking, &rounds)).collect();
        self.discarded = discarded_by_cause(record);
    }

    /// The place of the table that is measured now.
    pub(super) fn current(&self) -> Option<usize> {
        match &self.step {
            Step::Measuring { case, .. } => self.tables.iter().position(|table| table.cell == case.cell),
            Step::Preparing { .. } => None,
        }
    }
}

fn table(ranking: &Ranking, rounds: &BTreeMap<&Cell, BTreeSet<usize>>) -> TableState {
    let outcome = outcome(ranking);
    let certainty = match &outcome {
        None => LiveCertainty::NotKnown,
        Some(outcome) if outcome.is_decided() => LiveCertainty::Decided,
        Some(_) => LiveCertainty::Open,
    };
    let fallback = || match ranking.rows.first().filter(|row| row.result.is_some()) {
        Some(first) => format!("{} leads", short(first)),
        None => String::from("no result yet"),
    };
    let second = ranking.rows.get(1).and_then(|row| Some((row, row.result.as_ref()?)));
    let second = second.map(|(row, result)| format!("{} {}", short(row), against_first(ranking, result)));
    let control = ranking.control.as_ref().and_then(|row| row.result.as_ref()?.versus.as_ref()).map(times);
    TableState {
        cell: ranking.cell.clone(),
        rounds: rounds.get(&ranking.cell).map_or(0, BTreeSet::len),
        certainty,
        answer: outcome.map_or_else(fallback, |outcome| capitalised(&outcome.words())),
        second: second.unwrap_or_else(|| String::from("-")),
        control: control.unwrap_or_else(|| String::from("-")),
        resolution: ranking.resolution().map_or(String::from("-"), |ln| percent(ln.exp_m1())),
        discarded: ranking.discarded,
    }
}

/// The rounds of each cell in which an instance counts.
fn valid_rounds(record: &Record) -> BTreeMap<&Cell, BTreeSet<usize>> {
    let mut rounds: BTreeMap<&Cell, BTreeSet<usize>> = BTreeMap::new();
    for instance in &record.instances {
        if let Outcome::Measured(figures) = &instance.outcome
            && figures.discarded.is_none()
        {
            rounds.entry(&record.entrants[instance.entrant].case.cell).or_default().insert(instance.round);
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use estafette_measure::discarded::Discarded;

    use super::*;
    use crate::comparison::tests::{changed, record};

    #[test]
    fn tables_have_their_answer_ratio_noise_and_rounds() {
        let mut state = State::default();
        state.update(&changed("process/pipe", 2.0), None);
        let table = &state.tables[0];
        assert_eq!((table.rounds, table.certainty, &*table.answer), (6, LiveCertainty::Decided, "Use unix-stream"));
        assert!(table.second.contains(" [") && table.control.contains(" ["), "{} {}", table.second, table.control);
        assert!(table.resolution.ends_with(" %"), "{}", table.resolution);
    }

    #[test]
    fn a_table_without_enough_rounds_is_not_decided() {
        let mut record = record();
        record.instances.retain(|instance| instance.round == 0);
        let mut state = State::default();
        state.update(&record, None);
        assert_eq!((state.tables[0].rounds, state.tables[0].certainty), (1, LiveCertainty::NotKnown));
        assert!(state.tables[0].answer.ends_with(" leads"), "{}", state.tables[0].answer);
    }

    #[test]
    fn discarded_instances_are_counted_by_cause() {
        let mut record = record();
        for (at, instance) in record.instances.iter_mut().take(3).enumerate() {
            if let Outcome::Measured(figures) = &mut instance.outcome {
                let share = 0.1 * (at + 1) as f64;
                figures.discarded = Some(if at == 0 { Discarded::CoresMoved } else { Discarded::StolenTime { share } });
            }
        }
        let mut state = State::default();
        state.update(&record, None);
        let causes: Vec<(&str, usize)> = state.discarded.iter().map(|(cause, count)| (&**cause, *count)).collect();
        assert_eq!(causes, [("the hypervisor took time", 2), ("the hypervisor moved the virtual CPUs", 1)]);
        assert_eq!(state.tables[0].discarded, 3);
    }
}
