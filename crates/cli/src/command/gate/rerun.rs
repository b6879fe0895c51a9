//! `gate --rerun`: measures the mechanisms of another build of this program beside this build's,
//! and judges this build.
//!
//! Both builds take turns in the same slices and rounds. So their rounds are pairs, and a change of
//! the machine concerns both. A case is slower if two things hold: the median change is more than
//! is allowed, and a one-sided signed-rank test over the rounds rejects that nothing changed.
//! Holm's correction over all cases keeps the probability that any unchanged case is called slower
//! at 5 %.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use estafette_measure::Registry;
use estafette_measure::core_distance::Comparable;
use estafette_measure::pairs::log_ratios;
use estafette_measure::plan::{Entrant, Plan, Precision};
use estafette_measure::ranking::{Ranking, loss_without_p99, losses, no_result, rank};
use estafette_measure::record::{InstanceRecord, Outcome, Record};
use estafette_measure::run::Completion;
use estafette_measure::stats::{CONFIDENCE, holm, median, median_interval, signed_rank_above_p};
use estafette_measure::suite::Profile;
use estafette_measure::variant::{BASE, Variant};

use super::judgement::{Judged, Judgement, Problems, judge, judgement_of};
use crate::allocator::{self, Allocator};
use crate::args::{Args, Bench, Command, Gate};
use crate::command::bench::plan;
use crate::comparison::{Compared, loss};
use crate::measurement::{Measurement, RunOptions, measure, report_interrupt};
use crate::progress::View;
use crate::terminal::report_to_stderr;

/// The number of rounds, unless the user asks for another. With fifty cases, Holm's correction
/// finds no slower case in fewer than 10 rounds. The test of the error rates has figures.
pub(super) const ROUNDS: usize = 36;
/// How many rounds the cells have at most that do not yet show a change as small as is allowed.
const MAX_ROUNDS: usize = 2 * ROUNDS;
/// The time after which no such round starts.
const BUDGET: Duration = Duration::from_secs(20 * 60);

/// Measures both builds. `None` if the user interrupts.
pub(super) fn run(registry: &Registry, args: &Gate, program: &Path) -> Result<Option<Judgement>> {
    let bench = bench(registry, args)?;
    if bench.hosts.to.is_some() {
        bail!(
            "two builds are not compared between hosts: measure twice with `bench --to`, and give both records to `gate`"
        );
    }
    if !bench.allocator.is_empty() {
        bail!("two builds are compared with the system's allocator: leave out --allocator");
    }
    allocator::use_first(&[Allocator::System])?;
    let registry = with_base(registry, program)?;
    let plan = with_enough_rounds(paired(plan(&registry, &bench)?)?, &bench, args.allow);
    let measured = measure(&registry, plan, &bench.out, RunOptions::new(View::of(bench.live)))?;
    let Some(Measurement { record, files, end }) = measured else { return Ok(None) };
    files.finish(&record)?;
    report_to_stderr(&format!("record: {}", files.record.display()));
    match end? {
        Completion::Complete => {
            check_base_ran(&record, program)?;
            Ok(Some(judgement(&record, args.allow)))
        }
        Completion::Interrupted => {
            report_interrupt(&record);
            Ok(None)
        }
    }
}

/// The arguments of `bench` that select the cases. Without a mechanism, the program's own are
/// compared.
fn bench(registry: &Registry, args: &Gate) -> Result<Bench> {
    let own = registry.own().map(|entry| entry.spec().name.clone());
    let what: Vec<String> = if args.what.is_empty() { own.collect() } else { args.what.clone() };
    ensure!(
        !what.is_empty(),
        "nothing is named to compare: name mechanisms, such as `estafette gate --rerun OLD 'process/*'`"
    );
    let words = ["estafette", "bench"].map(String::from).into_iter();
    let words = words.chain(what.iter().cloned()).chain(args.bench.iter().cloned());
    let parsed = Args::try_parse_from(words);
    match parsed.map_err(|error| anyhow::anyhow!("after `--` come options of `bench`: {error}"))?.command {
        Command::Bench(bench) => Ok(*bench),
        _ => bail!("after `--` come options of `bench`"),
    }
}

/// The registry with the mechanisms of the other build.
fn with_base(registry: &Registry, program: &Path) -> Result<Registry> {
    let remedy = || {
        format!("cannot use {} as the other build: give the path of a program that was built before", program.display())
    };
    let program = fs::canonicalize(program).with_context(remedy)?;
    ensure!(program.is_file(), remedy());
    let entries: Vec<_> = registry.iter().cloned().collect();
    let add = |registry: Registry, entry| registry.register(Variant::of_other_build(entry, program.clone()));
    Ok(entries.into_iter().fold(registry.clone(), add))
}

/// Leaves out the cases that only one of the builds can run.
fn paired(mut plan: Plan) -> Result<Plan> {
    let has_partner = |entrant: &Entrant| {
        let partner = partner(&entrant.case.mechanism);
        plan.entrants.iter().any(|other| other.case.cell == entrant.case.cell && other.case.mechanism == partner)
    };
    let kept: Vec<Entrant> = plan.entrants.iter().filter(|entrant| has_partner(entrant)).cloned().collect();
    ensure!(
        !kept.is_empty(),
        "no mechanism can run in both builds; programs in other languages do not depend on the build"
    );
    plan.entrants = kept;
    Ok(plan)
}

/// Plans [`ROUNDS`] rounds, and more for noisy cells, unless the user asks for another number, a
/// profile or a precision.
fn with_enough_rounds(plan: Plan, bench: &Bench, allow: f64) -> Plan {
    let is_default = bench.rounds.is_none() && bench.until_decided.is_none() && bench.profile == Profile::Quick;
    if !is_default {
        return plan;
    }
    let precision = Precision { resolution: allow.ln_1p(), max_rounds: MAX_ROUNDS, budget: BUDGET };
    Plan { rounds: ROUNDS, precision: Some(precision), ..plan }
}

/// Checks that the other build has a result.
///
/// # Errors
/// If each of its instances failed, with the first reason.
fn check_base_ran(record: &Record, program: &Path) -> Result<()> {
    let is_base = |instance: &&InstanceRecord| record.entrants[instance.entrant].case.mechanism.ends_with(BASE);
    let mut first = None;
    for instance in record.instances.iter().filter(is_base) {
        match &instance.outcome {
            Outcome::Measured(_) => return Ok(()),
            Outcome::Failed { why, .. } => first = first.or(Some(why)),
        }
    }
    let why = first.map_or("it was not measured", String::as_str);
    bail!("the other build, {}, failed in every case: {why}", program.display())
}

/// The name of a mechanism in the other of the two builds.
fn partner(mechanism: &str) -> String {
    mechanism.strip_suffix(BASE).map_or_else(|| format!("{mechanism}{BASE}"), str::to_owned)
}

/// Judges a record of both builds.
pub(super) fn judgement(record: &Record, allow: f64) -> Judgement {
    let comparable = Comparable::of(record).record;
    let rankings = rank(record);
    let pairs: Vec<(Compared, Vec<f64>)> = of_new(record).map(|at| compared(&comparable, &rankings, at)).collect();
    let p_values: Vec<f64> = pairs.iter().map(|(case, changes)| p_value(case, changes, allow.ln_1p())).collect();
    let slower = holm(&p_values, 1.0 - CONFIDENCE);
    let problems = Problems::of(&of_build(record, true), &of_build(record, false));
    let cases = pairs
        .iter()
        .zip(slower)
        .map(|((case, _), is_slower)| problems.of_case(case).unwrap_or_else(|| judge(case, is_slower, allow.ln_1p())));
    let cases: Vec<Judged> = cases.collect();
    Judgement { is_paired: true, ..judgement_of(cases, allow) }
}

/// The entrants of this build, without controls.
fn of_new(record: &Record) -> impl Iterator<Item = usize> {
    let entrants = record.entrants.iter().enumerate();
    entrants.filter(|(_, entrant)| !entrant.control && !entrant.case.mechanism.ends_with(BASE)).map(|(at, _)| at)
}

/// The comparison of an entrant of this build with the base, and how much longer a message takes in
/// each round, as a ln ratio.
fn compared(record: &Record, rankings: &[Ranking], new: usize) -> (Compared, Vec<f64>) {
    let case = &record.entrants[new].case;
    let name = partner(&case.mechanism);
    let base = record
        .entrants
        .iter()
        .position(|entrant| !entrant.control && entrant.case.cell == case.cell && entrant.case.mechanism == name);
    let [a_lost, b_lost] = [base, Some(new)].map(|at| loss_without_p99(record, at?));
    // What arrived says nothing of what did not, nor a slice of timers between slices.
    let compared = base.filter(|base| [*base, new].into_iter().all(|at| no_result(record, at).is_none()));
    let gains = compared.map_or_else(Vec::new, |base| log_ratios(record, base, new));
    let ranking = rankings.iter().find(|ranking| ranking.cell == case.cell);
    let ns = |name: &str| {
        let row = ranking?.rows.iter().find(|row| row.spec.name == name)?;
        Some(row.result.as_ref()?.metric_ns)
    };
    let compared = Compared {
        cell: case.cell.clone(),
        mechanism: case.mechanism.clone(),
        a_ns: ns(&name),
        b_ns: ns(&case.mechanism),
        a_lost,
        b_lost,
        anchor: false,
        // Both builds are measured on one host.
        clock_error: Some(0.0),
        change: median_interval(&gains, CONFIDENCE),
        floor: ranking.and_then(|ranking| ranking.floor),
        verdict: None,
        values_a: Vec::new(),
        values_b: Vec::new(),
        loss_p: base.filter(|_| b_lost.is_some()).map(|base| {
            let [base, new] = [base, new].map(|at| losses(record, at));
            loss::p_value(&base, &new)
        }),
    };
    (compared, gains.into_iter().map(|gain| -gain).collect())
}

/// The probability of such rounds if the build did not become slower. 1 if the median change is
/// within what is allowed or within the cell's noise, so that the case is not called slower.
fn p_value(case: &Compared, changes: &[f64], allowed: f64) -> f64 {
    if let Some(loss_p) = case.loss_p {
        return loss_p;
    }
    let Some(floor) = case.floor else { return 1.0 };
    match median(changes) {
        Some(change) if change > allowed.max(floor) => signed_rank_above_p(changes, 0.0),
        _ => 1.0,
    }
}

/// The part of the record that belongs to one build, with the names of this build.
fn of_build(record: &Record, is_base: bool) -> Record {
    let mut part = record.clone();
    // Only one of the builds has controls, whose failures would count for it.
    let counts = |instance: &InstanceRecord| {
        let is_control = record.entrants[instance.entrant].control;
        !is_control || matches!(instance.outcome, Outcome::Measured(_))
    };
    let is_part = |entrant: usize| record.entrants[entrant].case.mechanism.ends_with(BASE) == is_base;
    part.instances.retain(|instance| is_part(instance.entrant) && counts(instance));
    for entrant in &mut part.entrants {
        if let Some(name) = entrant.case.mechanism.strip_suffix(BASE) {
            entrant.case.mechanism = name.to_owned();
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::Case;
    use estafette_measure::spec::Spec;

    use super::super::judgement::GateOutcome as Verdict;
    use super::*;
    use crate::comparison::tests::{changed, record};

    /// A record of 12 rounds with both builds. `factor` is how many times as long a message through
    /// a pipe takes in the new one.
    fn both(factor: f64) -> Record {
        let (mut both, base) = (changed("process/pipe", factor), record());
        let offset = both.entrants.len();
        for entrant in base.entrants {
            let case = entrant.case;
            let mechanism = format!("{}{BASE}", case.mechanism);
            both.entrants.push(Entrant { case: Case { mechanism, ..case }, ..entrant });
        }
        let of_base = base.instances.into_iter().filter(|instance| !both.entrants[offset + instance.entrant].control);
        let of_base: Vec<_> =
            of_base.map(|instance| InstanceRecord { entrant: instance.entrant + offset, ..instance }).collect();
        both.instances.extend(of_base);
        let again: Vec<_> =
            both.instances.iter().map(|of| InstanceRecord { round: of.round + base.rounds, ..of.clone() }).collect();
        both.instances.extend(again);
        let specs = both.mechanisms.clone();
        both.mechanisms.extend(specs.into_iter().map(|spec| Spec { name: format!("{}{BASE}", spec.name), ..spec }));
        both
    }

    fn outcomes(judgement: &Judgement) -> Vec<(&str, Verdict)> {
        let mut outcomes: Vec<_> = judgement.cases.iter().map(|case| (&*case.mechanism, case.outcome)).collect();
        outcomes.sort();
        outcomes
    }

    #[test]
    fn a_slower_build_fails_in_its_cases_only() {
        let judgement = judgement(&both(1.3), 0.05);
        assert_eq!(judgement.outcome, Verdict::Slower);
        let (fine, slower) = (Verdict::Fine, Verdict::Slower);
        let expected = [
            ("process/pipe", slower),
            ("process/pipe", slower),
            ("process/reference-ring", fine),
            ("process/unix-stream", fine),
            ("process/unix-stream", fine),
        ];
        assert_eq!(outcomes(&judgement), expected);
        assert!(judgement.is_paired && judgement.drift.is_none());
    }

    #[test]
    fn an_unchanged_or_faster_build_passes() {
        assert_eq!(judgement(&both(1.0), 0.05).outcome, Verdict::Fine);
        assert_eq!(judgement(&both(0.7), 0.05).outcome, Verdict::Fine);
        assert_eq!(judgement(&both(1.3), 0.4).outcome, Verdict::Fine, "allowed");
    }

    #[test]
    fn instances_that_fail_in_the_new_build_fail_the_gate() {
        let mut record = both(1.0);
        record.instances[0].outcome = Outcome::Failed { why: String::from("crashed"), kind: None };
        assert_eq!(judgement(&record, 0.05).outcome, Verdict::Failed);
    }

    #[test]
    fn a_build_that_never_ran_leaves_its_cases_undecided() {
        let mut record = both(1.0);
        record.instances.retain(|instance| !record.entrants[instance.entrant].case.mechanism.ends_with(BASE));
        assert_eq!(judgement(&record, 0.05).outcome, Verdict::Undecided);
    }
}
