//! Runs a plan for a command: measures the limits, the capacities and the rounds, shows the
//! progress and saves the record.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use estafette_measure::Registry;
use estafette_measure::case::{Case, Place};
use estafette_measure::coordinator::{Interrupt, Scratch, calls, capacities};
use estafette_measure::csv_table;
use estafette_measure::discarded::Discarded;
use estafette_measure::hosts::OtherHost;
use estafette_measure::limits;
use estafette_measure::other_load::OtherLoad;
use estafette_measure::plan::Plan;
use estafette_measure::record::{Outcome, Provenance, Record};
use estafette_measure::run::{self, Completion};
use estafette_measure::window::Window;

use crate::allocator::Allocator;
use crate::exit::Exit;
use crate::other_load;
use crate::progress::{Progress, View};
use crate::terminal::report_to_stderr;

const NOTHING_RECORDED: &str = "interrupted before the first round was complete: nothing is recorded";

/// Whether a run counts the system calls of each case before its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCalls {
    Counted,
    NotCounted,
}

/// How a plan is run and shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOptions {
    pub(crate) system_calls: SystemCalls,
    pub(crate) view: View,
}

impl RunOptions {
    /// Nothing but the rounds.
    pub(crate) fn new(view: View) -> RunOptions {
        RunOptions { system_calls: SystemCalls::NotCounted, view }
    }
}

/// A run that has ended, whose record has at least one round.
pub(crate) struct Measurement {
    pub(crate) record: Record,
    pub(crate) files: Files,
    /// How it ended. The error is about the run; the failure of a mechanism is not one.
    pub(crate) end: Result<Completion>,
}

/// Runs a plan. The folder `out` gets the record after each round.
///
/// Returns `None` if the user interrupts before the first round is complete, and says so on stderr.
///
/// # Errors
/// If the folder cannot be written, the machine cannot be measured, or stderr cannot show `view`.
pub(crate) fn measure(
    registry: &Registry,
    mut plan: Plan,
    out: &Path,
    options: RunOptions,
) -> Result<Option<Measurement>> {
    let begun = Instant::now();
    let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
    let mut scratch = Scratch::new()?;
    let files = Files::open(out)?;
    let mut progress = Progress::of_run(files.record.clone(), options.view)?;
    let others = OtherLoad::watch(&plan.cpus);
    let Some(limits) = progress.limits(&plan.cpus, limits_budget(plan.window), &mut interrupt)? else {
        report_to_stderr(NOTHING_RECORDED);
        return Ok(None);
    };
    let other_load = others.and_then(|others| others.share(&plan.cpus));
    other_load::warning(other_load).iter().for_each(|warning| progress.message(warning));
    progress.stage("preparing", "capacities");
    // Between hosts the capacity also depends on the network.
    let mut probed: Vec<_> =
        plan.entrants.iter_mut().filter(|entrant| entrant.case.place != Place::OtherHost).collect();
    let cases: Vec<Case> = probed.iter().map(|entrant| plain_case(registry, &entrant.case)).collect();
    let capacities = capacities(&cases, &mut scratch, &mut interrupt)?;
    for (entrant, capacity) in probed.iter_mut().zip(capacities) {
        entrant.effective_capacity = capacity;
    }
    if options.system_calls == SystemCalls::Counted {
        progress.stage("preparing", "system calls");
        if !count_calls(registry, &mut plan, &mut scratch, &mut interrupt)? {
            progress.finish();
            report_to_stderr(NOTHING_RECORDED);
            return Ok(None);
        }
    }
    if let Some(precision) = &mut plan.precision {
        // The user waits for the preparation, too.
        precision.budget = precision.budget.saturating_sub(begun.elapsed());
    }
    let mut record = run::new_record(registry, &plan, Some(limits));
    record.provenance = Some(provenance());
    record.other_load = other_load;
    if let Some(host) = &plan.other_host {
        let end = match measure_peer(host, &mut record, &mut progress, &mut interrupt) {
            Ok(Completion::Complete) => compare_clocks(host, &plan, &mut interrupt),
            end => end,
        };
        if !matches!(end, Ok(Completion::Complete)) {
            progress.finish();
            end?;
            report_to_stderr(NOTHING_RECORDED);
            return Ok(None);
        }
    }
    progress.begin();
    let end = run::run(registry, &plan, &mut record, &mut scratch, &mut interrupt, &mut progress);
    progress.finish();
    if record.rounds > 0 {
        return Ok(Some(Measurement { record, files, end }));
    }
    end?;
    report_to_stderr(NOTHING_RECORDED);
    Ok(None)
}

/// The same case with the name by which this program's children know the mechanism.
fn plain_case(registry: &Registry, case: &Case) -> Case {
    let name = registry.get(&case.mechanism).map_or(&*case.mechanism, |entry| entry.name_in_program());
    Case { mechanism: name.to_owned(), ..case.clone() }
}

/// Measures the link to the other host and its load, for the record. What fails is a warning. On
/// the same machine, this process itself is what the peer sees as the load of others.
///
/// # Errors
/// If the session has ended.
fn measure_peer(
    host: &OtherHost,
    record: &mut Record,
    progress: &mut Progress,
    interrupt: &mut Interrupt,
) -> Result<Completion> {
    let Some(peer) = &mut record.peer else { return Ok(Completion::Complete) };
    progress.stage("preparing", "the link to the other host");
    let is_same_machine = peer.fingerprint.machine.is_some() && peer.fingerprint == record.fingerprint;
    match host.measure_link(interrupt) {
        Ok(Some(link)) => peer.link = Some(link),
        Ok(None) => return Ok(Completion::Interrupted),
        Err(error) if host.lost().is_some() => return Err(error),
        Err(error) => progress.message(&format!("warning: the link to the other host is not measured: {error:#}")),
    }
    match host.other_load() {
        Ok(load) => peer.other_load = load.filter(|_| !is_same_machine),
        Err(error) if host.lost().is_some() => return Err(error),
        Err(error) => progress.message(&format!("warning: the load of the other host is not known: {error:#}")),
    }
    other_load::warning_of_peer(peer.other_load, &peer.address).iter().for_each(|warning| progress.message(warning));
    Ok(Completion::Complete)
}

/// Compares the clocks of both hosts, if an open loop needs that.
///
/// # Errors
/// If they cannot be compared.
fn compare_clocks(host: &OtherHost, plan: &Plan, interrupt: &mut Interrupt) -> Result<Completion> {
    if plan.entrants.iter().all(|entrant| entrant.case.load.rate().is_none()) {
        return Ok(Completion::Complete);
    }
    let error = host.compare_clocks(interrupt).context("open loops (--load) need the clocks of both hosts")?;
    Ok(if error.is_some() { Completion::Complete } else { Completion::Interrupted })
}

/// Counts the system calls of each case, once for a case and its control. Returns false if the user
/// interrupts.
fn count_calls(registry: &Registry, plan: &mut Plan, scratch: &mut Scratch, interrupt: &mut Interrupt) -> Result<bool> {
    let mut counted: Vec<(Case, Option<f64>)> = Vec::new();
    for entrant in &mut plan.entrants {
        let before = counted.iter().find(|(case, _)| *case == entrant.case).map(|(_, calls)| *calls);
        entrant.calls = match before {
            Some(calls) => calls,
            None => match calls(registry, &entrant.case, &plan.cpus, scratch, interrupt) {
                Ok(calls) => calls,
                Err(_) => return Ok(false),
            },
        };
        counted.push((entrant.case.clone(), entrant.calls));
    }
    Ok(true)
}

/// Returns the build of this command, and its arguments.
fn provenance() -> Provenance {
    Provenance {
        commit: option_env!("ESTAFETTE_COMMIT").map(str::to_owned),
        compiler: env!("ESTAFETTE_COMPILER").to_owned(),
        allocator: Allocator::current().name().to_owned(),
        arguments: std::env::args().skip(1).map(without_user).collect(),
    }
}

/// Removes the name of a user from an argument that names a host for ssh.
fn without_user(argument: String) -> String {
    let is_host = |text: &str| text.starts_with("ssh://") || text.starts_with("--to=ssh://");
    match argument.split_once('@') {
        Some((before, host)) if is_host(before) => {
            let scheme = before.find("ssh://").map_or("", |at| &before[..at + "ssh://".len()]);
            format!("{scheme}{host}")
        }
        _ => argument,
    }
}

/// Returns how long the limits are measured: 25 windows, but at most the default budget, which is
/// enough for steady figures. A run with short windows then does not spend most of its time on
/// them.
fn limits_budget(window: Window) -> Duration {
    match window {
        Window::Time { measure_ns, .. } => limits::DEFAULT_BUDGET.min(25 * Duration::from_nanos(measure_ns)),
        Window::Count { .. } => limits::DEFAULT_BUDGET,
    }
}

/// Returns a window of this length after a warm-up of half the length, but at most 100 ms.
pub(crate) fn time_window(measure_ns: u64) -> Window {
    Window::Time { warmup_ns: (measure_ns / 2).min(100_000_000), measure_ns }
}

/// Returns a random seed. Below 2^53, because JSON numbers are exact up to there.
pub(crate) fn random_seed() -> u64 {
    fastrand::u64(..1 << 53)
}

/// A mechanism whose instances in a cell were all discarded.
struct WithoutResult<'a> {
    case: &'a Case,
    instances: usize,
    reason: Discarded,
}

/// How many of them are named that have one cause.
const MAX_NAMED: usize = 3;

/// Describes the mechanisms whose instances in a cell were all discarded, by cause.
pub(crate) fn without_result(record: &Record) -> Vec<String> {
    by_cause(all_discarded(record))
}

fn by_cause(mut all: Vec<WithoutResult<'_>>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(first) = all.first() {
        let cause = first.reason.cause().to_owned();
        let (of_cause, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| one.reason.cause() == cause);
        lines.extend(of_cause.iter().take(MAX_NAMED).map(|WithoutResult { case, instances, reason }| {
            format!("{} in {}: all instances ({instances}) were discarded: {reason}", case.mechanism, case.cell)
        }));
        if let more @ 1.. = of_cause.len().saturating_sub(MAX_NAMED) {
            let is_external = of_cause[0].reason.is_external();
            let remedy = if is_external { "; measure again while nothing else runs, or for longer" } else { "" };
            lines.push(format!("all instances of {more} more cases were discarded: {cause}{remedy}"));
        }
        all = others;
    }
    lines
}

/// The mechanisms whose instances in a cell were all discarded.
fn all_discarded(record: &Record) -> Vec<WithoutResult<'_>> {
    let reasons = |at| {
        let mut reasons = Vec::new();
        for instance in record.instances.iter().filter(|instance| instance.entrant == at) {
            match &instance.outcome {
                Outcome::Measured(figures) => reasons.push(figures.discarded.clone()?),
                // Failures were reported during the run.
                Outcome::Failed { .. } => return None,
            }
        }
        Some((reasons.len(), reasons.pop()?))
    };
    let entrants = record.entrants.iter().enumerate();
    entrants
        .filter_map(|(at, entrant)| {
            let (instances, reason) = reasons(at)?;
            Some(WithoutResult { case: &entrant.case, instances, reason })
        })
        .collect()
}

/// Returns the most severe exit code of a record's outcomes.
pub(crate) fn exit(record: &Record) -> Exit {
    let outcomes = || record.instances.iter().map(|instance| &instance.outcome);
    if outcomes().any(|outcome| matches!(outcome, Outcome::Measured(figures) if figures.breach.is_some())) {
        Exit::Breach
    } else if outcomes().any(|outcome| matches!(outcome, Outcome::Failed { .. })) || lacks_results(record) {
        Exit::Usage
    } else {
        Exit::Fine
    }
}

/// Whether the run lacks results because instances were discarded. With several rounds, each case
/// must have an instance that counts; in a single round, at least one case.
fn lacks_results(record: &Record) -> bool {
    let without = all_discarded(record).len();
    let started: BTreeSet<usize> = record.instances.iter().map(|instance| instance.entrant).collect();
    without > 0 && (record.rounds_planned > 1 || without == started.len())
}

/// Says on stderr how far an interrupted run came.
pub(crate) fn report_interrupt(record: &Record) {
    report_to_stderr(&format!("interrupted after {} of {} rounds", record.rounds, record.rounds_planned));
}

/// The output files of a run.
pub(crate) struct Files {
    pub(crate) record: PathBuf,
}

impl Files {
    /// Creates the folder and checks that it is writable, before anything is measured.
    fn open(out: &Path) -> Result<Files> {
        let remedy = || format!("cannot write to the folder {}: choose another with --out", out.display());
        fs::create_dir_all(out).with_context(remedy)?;
        // UTC, without colons, which some file systems do not allow.
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "-");
        let record = out.join(format!("{now}-{}.json", std::process::id()));
        let probe = record.with_extension("json.part");
        fs::write(&probe, "").with_context(remedy)?;
        fs::remove_file(&probe).with_context(remedy)?;
        Ok(Files { record })
    }

    /// Writes the record as JSON and as a CSV table.
    pub(crate) fn finish(&self, record: &Record) -> Result<()> {
        record.save(&self.record)?;
        let csv = self.record.with_extension("csv");
        let file = fs::File::create(&csv).with_context(|| format!("cannot write {}", csv.display()))?;
        csv_table::write(record, std::io::BufWriter::new(file))
    }
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::{Cell, Load, Pattern, Payload};
    use estafette_measure::spec::{Runtime, Scope, Wait};

    use super::*;
    use crate::comparison::tests::changed;

    #[test]
    fn a_case_without_result_is_a_failure_in_several_rounds_and_in_one_if_no_case_has_any() {
        let mut record = changed("process/pipe", 1.0);
        record.rounds_planned = 1;
        assert!(!lacks_results(&record));
        let mut discard = |is_discarded: fn(usize) -> bool| {
            for instance in record.instances.iter_mut().filter(|instance| is_discarded(instance.entrant)) {
                let Outcome::Measured(figures) = &mut instance.outcome else { continue };
                figures.discarded = Some(Discarded::CoresMoved);
            }
            let mut lacks = |rounds| {
                record.rounds_planned = rounds;
                lacks_results(&record)
            };
            [lacks(1), lacks(2)]
        };
        assert_eq!(discard(|entrant| entrant == 0), [false, true], "one of the cases has no result");
        assert_eq!(discard(|_| true), [true, true], "no case has a result");
    }

    #[test]
    fn of_many_mechanisms_with_one_cause_some_are_named_and_the_others_counted() {
        let cell = Cell {
            scope: Scope::Process,
            pattern: Pattern::PingPong,
            payload: Payload::Bytes(64),
            producers: 1,
            capacity: 1024,
            runtime: Runtime::Thread,
            wait: Wait::Block,
            place: Place::OtherCore,
            load: Load::Saturated,
        };
        let cases = ["a", "b", "c", "d", "e"].map(|name| Case { mechanism: name.to_owned(), cell: cell.clone() });
        let without = |at: usize, reason| WithoutResult { case: &cases[at], instances: 2, reason };
        let steal = |at| without(at, Discarded::StolenTime { share: 0.1 * at as f64 });
        let lines = by_cause(vec![steal(0), steal(1), without(2, Discarded::CoresMoved), steal(3), steal(4)]);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines[1].starts_with("b in ") && lines[1].ends_with("all instances (2) were discarded: steal 10.0 %"));
        assert!(
            lines[3].starts_with("all instances of 1 more cases were discarded: the hypervisor took time; measure"),
            "{lines:?}"
        );
        assert!(
            lines[4].starts_with("c in ") && lines[4].ends_with("the hypervisor moved the virtual CPUs"),
            "{lines:?}"
        );
    }
}
