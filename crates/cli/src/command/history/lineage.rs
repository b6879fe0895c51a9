//! Lineages: runs that can be compared with each other, and how their common cases changed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use estafette_measure::case::{Case, Cell};
use estafette_measure::ranking::{Ranking, rank};
use estafette_measure::record::Record;
use estafette_measure::spec::Standing;
use estafette_measure::stats::{Interval, Verdict, median};
use glob::Pattern as Glob;
use serde::Serialize;

use super::folder::Loaded;
use crate::comparison::{Comparison, differences};
use crate::table::{best_candidate, outcome};

/// Runs of one machine with one plan, oldest first, and the cases that all of them have.
#[derive(Debug, Serialize)]
pub(super) struct Lineage {
    /// How the machine or the plan differs from those of the newest run. Empty for the newest run's
    /// own lineage.
    pub(super) differs: Vec<String>,
    pub(super) runs: Vec<PastRun>,
    /// The number of cases that all runs have.
    pub(super) common: usize,
    /// The cases that are shown.
    pub(super) cases: Vec<CaseHistory>,
    /// What else changed: versions, the first of a table, a machine whose drift is unknown.
    pub(super) notes: Vec<String>,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct PastRun {
    pub(super) file: PathBuf,
    pub(super) started: String,
    pub(super) tool: String,
    pub(super) commit: Option<String>,
    /// The arguments of the command line. Empty in records of older versions.
    pub(super) arguments: Vec<String>,
    pub(super) machine: String,
    pub(super) rounds: usize,
    pub(super) rounds_planned: usize,
    /// How much a mechanism differs from itself, in the median table, as a ln ratio.
    pub(super) noise: Option<f64>,
    /// The number of comparisons within the run, and of those that are inconclusive.
    pub(super) comparisons: usize,
    pub(super) inconclusive: usize,
    /// How the common cases changed since the run before. `None` for the first.
    pub(super) changes: Option<Changes>,
}

/// How many cases changed from one run to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Changes {
    pub(super) slower: usize,
    pub(super) faster: usize,
    pub(super) equivalent: usize,
    pub(super) inconclusive: usize,
}

/// A mechanism in a cell, over the runs.
#[derive(Debug, Serialize)]
pub(super) struct CaseHistory {
    pub(super) mechanism: String,
    pub(super) cell: Cell,
    /// One for each run.
    pub(super) points: Vec<Moment>,
    /// The change from the first run to the last. `None` with a single run.
    pub(super) since_first: Option<Change>,
}

/// A case in one run.
#[derive(Debug, Serialize)]
pub(super) struct Moment {
    /// Nanoseconds per message or round trip. `None` without a valid instance.
    pub(super) ns: Option<f64>,
    /// The change since the run before. `None` for the first run.
    pub(super) change: Option<Change>,
}

/// How a case changed from one run to a later one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Change {
    /// How much longer a message takes, as a ln ratio; negative is faster. The drift of the machine
    /// is subtracted. `None` with too few instances.
    pub(super) time: Option<Interval>,
    pub(super) verdict: Verdict,
}

/// The records of a lineage, and the cases that they have in common.
struct LineageGroup<'a> {
    loaded: Vec<&'a Loaded>,
    common: BTreeSet<&'a Case>,
}

/// Sorts records, which are in the order of time, into lineages. The one with the newest run is the
/// first.
pub(super) fn lineages(loaded: &[Loaded], names: &[Glob]) -> Result<Vec<Lineage>> {
    let mut groups: Vec<LineageGroup<'_>> = Vec::new();
    for one in loaded {
        let cases = cases(&one.record, names);
        if cases.is_empty() {
            continue;
        }
        match groups.iter_mut().rev().find(|group| group.continues_with(&one.record, &cases)) {
            Some(group) => {
                group.common.retain(|case| cases.contains(case));
                group.loaded.push(one);
            }
            None => groups.push(LineageGroup { loaded: vec![one], common: cases }),
        }
    }
    groups.sort_by(|a, b| b.newest().record.started.cmp(&a.newest().record.started));
    let newest = groups.first().map(LineageGroup::newest);
    let differs = |group: &LineageGroup<'_>| match newest {
        Some(newest) if !std::ptr::eq(newest, group.newest()) => {
            let differences = differences(&newest.record, &group.newest().record);
            if differences.is_empty() { vec![String::from("too few cases in common")] } else { differences }
        }
        _ => Vec::new(),
    };
    groups.iter().map(|group| Lineage::of(group, differs(group), names)).collect()
}

/// The cases of the named mechanisms, or of all that a program can choose.
fn cases<'a>(record: &'a Record, names: &[Glob]) -> BTreeSet<&'a Case> {
    let is_wanted = |case: &Case| match names {
        [] => record.spec(&case.mechanism).is_some_and(|spec| spec.standing == Standing::Candidate),
        names => names.iter().any(|name| name.matches(&case.mechanism)),
    };
    let entrants = record.entrants.iter().filter(|entrant| !entrant.control);
    entrants.map(|entrant| &entrant.case).filter(|case| is_wanted(case)).collect()
}

impl<'a> LineageGroup<'a> {
    /// Whether a record is of the same machine and plan: it can be compared, and has at least half
    /// of the common cases.
    fn continues_with(&self, record: &Record, cases: &BTreeSet<&'a Case>) -> bool {
        let shared = self.common.intersection(cases).count();
        2 * shared >= self.common.len() && differences(&self.newest().record, record).is_empty()
    }

    fn newest(&self) -> &'a Loaded {
        self.loaded[self.loaded.len() - 1]
    }
}

impl Lineage {
    fn of(group: &LineageGroup<'_>, differs: Vec<String>, names: &[Glob]) -> Result<Lineage> {
        let rankings: Vec<Vec<Ranking>> = group.loaded.iter().map(|one| rank(&one.record)).collect();
        let newest = rankings.last().map_or(&[][..], Vec::as_slice);
        let shown = group.common.iter().filter(|case| !names.is_empty() || is_first(case, newest));
        let (steps, since_first) = (LineageStep::all(group)?, LineageStep::since_first(group)?);
        let cases = shown.map(|case| CaseHistory::of(case, &rankings, &steps, since_first.as_ref()));
        let mut notes: Vec<String> = Vec::new();
        for (number, step) in (2..).zip(&steps) {
            let of_step =
                step.notes(number).into_iter().chain(new_firsts(group, &rankings[number - 2..number], number));
            for note in of_step {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let runs = group.loaded.iter().zip(&rankings).enumerate().map(|(at, (one, rankings))| {
            let changes = at.checked_sub(1).map(|step| steps[step].changes(&group.common));
            PastRun::of(one, rankings, changes)
        });
        let (runs, cases) = (runs.collect(), cases.collect());
        Ok(Lineage { differs, runs, common: group.common.len(), cases, notes })
    }
}

/// Whether a case is the fastest candidate of its table.
fn is_first(case: &Case, rankings: &[Ranking]) -> bool {
    let ranking = rankings.iter().find(|ranking| ranking.cell == case.cell);
    ranking.and_then(best_candidate).is_some_and(|row| row.spec.name == case.mechanism)
}

/// The tables in which no mechanism that was fastest before is among the fastest of the next run.
fn new_firsts(group: &LineageGroup<'_>, rankings: &[Vec<Ranking>], number: usize) -> Vec<String> {
    let leaders = |ranking: &Ranking| -> Option<Vec<String>> {
        Some(outcome(ranking)?.leaders.iter().map(|row| row.spec.name.clone()).collect())
    };
    let cells: BTreeSet<&Cell> = group.common.iter().map(|case| &case.cell).collect();
    let [before, after] = rankings else { return Vec::new() };
    let changed = cells.into_iter().filter_map(|cell| {
        let of = |rankings: &[Ranking]| leaders(rankings.iter().find(|ranking| ranking.cell == *cell)?);
        let (before, after) = (of(before)?, of(after)?);
        let is_new = !after.iter().any(|name| before.contains(name));
        is_new.then(|| {
            format!(
                "run {number}: the fastest in {cell} is {}, before it was {}",
                after.join(" or "),
                before.join(" or ")
            )
        })
    });
    changed.collect()
}

/// The comparison of a run with an earlier one.
struct LineageStep(Comparison);

impl LineageStep {
    /// The comparison of each run with the one before.
    fn all(group: &LineageGroup<'_>) -> Result<Vec<LineageStep>> {
        group.loaded.windows(2).map(|pair| LineageStep::of(pair[0], pair[1])).collect()
    }

    /// The comparison of the last run with the first, if there are several.
    fn since_first(group: &LineageGroup<'_>) -> Result<Option<LineageStep>> {
        match &*group.loaded {
            [first, .., last] => LineageStep::of(first, last).map(Some),
            _ => Ok(None),
        }
    }

    fn of(before: &Loaded, after: &Loaded) -> Result<LineageStep> {
        Ok(LineageStep(Comparison::of(&before.record, &after.record, ["the run before", "this one"])?))
    }

    /// The change of a case. `None` if it is an anchor, whose change is the machine's.
    fn change(&self, mechanism: &str, cell: &Cell) -> Option<Change> {
        let case = self.0.cases.iter().find(|case| case.mechanism == mechanism && case.cell == *cell)?;
        // A comparison says by how much the later run is better.
        let time = case.change.map(|change| Interval {
            estimate: -change.estimate,
            low: -change.high,
            high: -change.low,
            ..change
        });
        Some(Change { time, verdict: case.verdict? })
    }

    fn changes(&self, common: &BTreeSet<&Case>) -> Changes {
        let mut changes = Changes::default();
        for change in common.iter().filter_map(|case| self.change(&case.mechanism, &case.cell)) {
            *match change.verdict {
                Verdict::Slower => &mut changes.slower,
                Verdict::Faster => &mut changes.faster,
                Verdict::Equivalent => &mut changes.equivalent,
                Verdict::Inconclusive => &mut changes.inconclusive,
            } += 1;
        }
        changes
    }

    fn notes(&self, number: usize) -> Vec<String> {
        let mut notes: Vec<String> = self.0.notes.iter().map(|note| format!("run {number}: {note}")).collect();
        match &self.0.drift {
            None => notes.push(format!(
                "run {number}: no reference ring is in both runs, so a change of the machine itself counts as a change of the mechanisms"
            )),
            Some(drift) if drift.is_unsteady() => notes.push(format!(
                "run {number}: the speed of the machine changed unevenly since the run before, so little can be decided"
            )),
            Some(_) => {}
        }
        notes
    }
}

impl CaseHistory {
    fn of(
        case: &Case,
        rankings: &[Vec<Ranking>],
        steps: &[LineageStep],
        since_first: Option<&LineageStep>,
    ) -> CaseHistory {
        let Case { mechanism, cell } = case;
        let ns = |rankings: &[Ranking]| {
            let ranking = rankings.iter().find(|ranking| ranking.cell == *cell)?;
            let row = ranking.rows.iter().find(|row| row.spec.name == *mechanism)?;
            Some(row.result.as_ref()?.metric_ns)
        };
        let moment = |(at, rankings): (usize, &Vec<Ranking>)| {
            let step = at.checked_sub(1).map(|step| &steps[step]);
            Moment { ns: ns(rankings), change: step.and_then(|step| step.change(mechanism, cell)) }
        };
        CaseHistory {
            mechanism: mechanism.clone(),
            cell: cell.clone(),
            points: rankings.iter().enumerate().map(moment).collect(),
            since_first: since_first.and_then(|step| step.change(mechanism, cell)),
        }
    }
}

impl PastRun {
    fn of(loaded: &Loaded, rankings: &[Ranking], changes: Option<Changes>) -> PastRun {
        let record = &loaded.record;
        let noise: Vec<f64> = rankings.iter().filter_map(|ranking| ranking.noise).collect();
        let ranked = rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked());
        let verdicts: Vec<Verdict> =
            ranked.flat_map(|ranking| &ranking.rows).filter_map(|row| row.result.as_ref()?.verdict).collect();
        let provenance = record.provenance.as_ref();
        PastRun {
            file: loaded.file.clone(),
            started: record.started.clone(),
            tool: record.tool.clone(),
            commit: provenance.and_then(|provenance| provenance.commit.clone()),
            arguments: provenance.map_or(Vec::new(), |provenance| provenance.arguments.clone()),
            machine: record.fingerprint.cpu.clone(),
            rounds: record.rounds,
            rounds_planned: record.rounds_planned,
            noise: median(&noise),
            comparisons: verdicts.len(),
            inconclusive: verdicts.iter().filter(|verdict| **verdict == Verdict::Inconclusive).count(),
            changes,
        }
    }
}
