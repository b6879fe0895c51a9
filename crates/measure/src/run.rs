//! A run: executes the rounds of a plan, instance by instance, and fills the record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use crate::bound::Handling;
use crate::case::{Case, Cell, Load, Place};
use crate::coordinator::heat::{self, PlannedInstance};
use crate::coordinator::{Failure, FailureKind, Instance, Interrupt, Scratch, Setup};
use crate::core_distance::rounds_at_other_distances;
use crate::discarded::Discarded;
pub use crate::discarded::MAX_STEAL;
use crate::entry::{Entry, Registry};
use crate::figures::{Disturbance, figures};
use crate::fingerprint::Fingerprint;
use crate::heats::{heats, max_open_bytes};
use crate::laps::HeatRecord;
use crate::limits::{Limits, end_cpus, line_round_trip_ns};
use crate::other_load::OtherLoad;
use crate::plan::{Entrant, MAX_ROUNDS, Plan, Precision, SLICE, shuffled};
use crate::ranking::rank;
use crate::record::{self, Figures, InstanceRecord, Outcome, Record};
use crate::spec::Spec;

/// How long the round trip of a cache line is measured before each cell.
const LINE_TIME: Duration = Duration::from_millis(2);
/// The maximum number of processes of an instance that is measured in slices.
const MAX_CHILDREN: usize = 16;

/// Receives the progress of a run. Never called while an instance runs.
pub trait Observer {
    /// An instance is about to be opened. `done` of `of` instances are finished, or opened and wait
    /// for their turn.
    fn instance_starts(&mut self, done: usize, of: usize, entrant: &Entrant);
    /// An instance failed, or its mechanism broke a promise. `what` says how.
    fn instance_failed(&mut self, entrant: &Entrant, what: &str);
    /// A round is complete.
    ///
    /// # Errors
    /// When the record cannot be saved. The run then ends.
    fn round_finished(&mut self, record: &Record, kind: RoundKind) -> Result<()>;
}

/// Why a round was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundKind {
    /// It is one of the planned rounds.
    Planned,
    /// Repeats the cells that lack complete rounds, because instances were discarded. With the
    /// number of instances in this round.
    MakeUp(usize),
    /// To detect smaller differences ([`Plan::precision`]). With the number of cells.
    Refinement(usize),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// All rounds are done.
    Complete,
    /// The user interrupted it.
    Interrupted,
}

/// Creates the record of a plan without instances. Reads the description of the machine, and
/// measures what filling and checking each payload costs. Blocks for some milliseconds per payload.
pub fn new_record(registry: &Registry, plan: &Plan, limits: Option<Limits>) -> Record {
    let mut mechanisms: Vec<Spec> = Vec::new();
    let mut payloads = Vec::new();
    for Entrant { case, .. } in &plan.entrants {
        if let Some(entry) = registry.get(&case.mechanism)
            && !mechanisms.iter().any(|spec| spec.name == case.mechanism)
        {
            mechanisms.push(entry.described());
        }
        if !payloads.contains(&case.payload) {
            payloads.push(case.payload);
        }
    }
    Record {
        format: record::FORMAT.to_owned(),
        version: record::VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        provenance: None,
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        seed: plan.seed,
        window: plan.window,
        slice_ns: plan.slice.map(|slice| slice.as_nanos() as u64),
        rounds_planned: plan.rounds,
        rounds: 0,
        fingerprint: Fingerprint::take(),
        peer: plan.other_host.as_ref().map(|host| host.peer().clone()),
        limits,
        other_load: None,
        handling: payloads.into_iter().map(Handling::measure).collect(),
        mechanisms,
        entrants: plan.entrants.clone(),
        refusals: plan.refusals.clone(),
        heats: Vec::new(),
        instances: Vec::new(),
    }
}

/// Runs a plan. However the run ends, `record` has everything measured so far.
///
/// # Errors
/// When the run cannot continue, for example because the observer cannot save the record. The
/// failure of a mechanism is not an error; the record has it.
pub fn run(
    registry: &Registry,
    plan: &Plan,
    record: &mut Record,
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
    observer: &mut dyn Observer,
) -> Result<Completion> {
    let started = Instant::now();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    // A separate generator, so that repeated instances do not change the order of later rounds.
    let seeds = random.fork();
    let repeats = plan.rounds * plan.entrants.len() / 2;
    let mut rounds = Rounds {
        registry,
        plan,
        record,
        scratch,
        interrupt,
        observer,
        seeds,
        repeats,
        heats: 0,
        max_open_bytes: max_open_bytes(),
        hung: BTreeMap::new(),
    };
    for round in 0..plan.rounds + record::MAKE_UP_ROUNDS {
        let order = if round < plan.rounds {
            shuffled(&plan.entrants, &mut random)
        } else {
            make_up(plan, rounds.record, &mut random)
        };
        if order.is_empty() {
            break;
        }
        if rounds.play(round, &order)? == Completion::Interrupted {
            return Ok(Completion::Interrupted);
        }
        rounds.record.rounds = (round + 1).min(plan.rounds);
        let kind = if round < plan.rounds { RoundKind::Planned } else { RoundKind::MakeUp(order.len()) };
        rounds.observer.round_finished(rounds.record, kind)?;
    }
    match plan.precision {
        Some(precision) => rounds.refine(precision, started, &mut random),
        None => Ok(Completion::Complete),
    }
}

/// The cells that cannot yet show a difference as small as requested, and that may have more
/// rounds, coarsest first.
fn imprecise_cells(record: &Record, precision: &Precision) -> Vec<Cell> {
    let rankings = rank(record).into_iter();
    let compared = rankings
        .filter(|ranking| ranking.cell.pattern.is_ranked() && ranking.control.is_some() && ranking.rows.len() > 1);
    let rounds = rounds_by_cell(record);
    let may_go_on = |cell: &Cell| rounds.get(cell).is_none_or(|rounds| rounds.len() < precision.max_rounds);
    let mut imprecise: Vec<(f64, Cell)> = compared
        .map(|ranking| (ranking.resolution().unwrap_or(f64::INFINITY), ranking.cell))
        .filter(|(resolution, cell)| *resolution > precision.resolution && may_go_on(cell))
        .collect();
    imprecise.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    imprecise.into_iter().map(|(_, cell)| cell).collect()
}

/// The rounds in which each cell was measured.
fn rounds_by_cell(record: &Record) -> BTreeMap<&Cell, BTreeSet<usize>> {
    let mut rounds: BTreeMap<&Cell, BTreeSet<usize>> = BTreeMap::new();
    for instance in &record.instances {
        rounds.entry(&record.entrants[instance.entrant].case.cell).or_default().insert(instance.round);
    }
    rounds
}

/// The rounds of a run.
struct Rounds<'a> {
    registry: &'a Registry,
    plan: &'a Plan,
    record: &'a mut Record,
    scratch: &'a mut Scratch,
    interrupt: &'a mut Interrupt,
    observer: &'a mut dyn Observer,
    seeds: fastrand::Rng,
    /// The number of instances that may still be repeated because they were disturbed.
    repeats: usize,
    /// The number of heats so far.
    heats: usize,
    /// The number of bytes that the channels of all open instances may hold together.
    max_open_bytes: usize,
    /// The entrants that timed out, and the round in which they did. They are not started again.
    hung: BTreeMap<usize, usize>,
}

/// The position of an instance in its run.
#[derive(Clone, Copy)]
struct Position {
    round: usize,
    line_ns: Option<f64>,
    heat: Option<usize>,
}

impl Rounds<'_> {
    /// Runs one round, cell by cell. Instances that can be stopped are measured in slices, the
    /// others one after the other.
    fn play(&mut self, round: usize, order: &[usize]) -> Result<Completion> {
        let plan = self.plan;
        let ends = end_cpus(&plan.cpus);
        let later = plan.rounds.saturating_sub(round + 1) * plan.entrants.len();
        let mut left = order.len() + later;
        for cell in order.chunk_by(|a, b| plan.entrants[*a].case.cell == plan.entrants[*b].case.cell) {
            self.check_session()?;
            // No cache line crosses to another host.
            let line_ns = if plan.other_host.is_none() { line_round_trip_ns(&ends, LINE_TIME) } else { None };
            let (mut sliced, mut alone) = (Vec::new(), Vec::new());
            for &at in cell {
                if let Some(before) = self.hung.get(&at) {
                    let why = format!("not started again: it did not finish in round {}", before + 1);
                    let outcome = Outcome::Failed { why, kind: Some(FailureKind::Hang) };
                    self.record.instances.push(InstanceRecord { round, entrant: at, line_ns, heat: None, outcome });
                    left -= 1;
                    continue;
                }
                let is_sliced = self.is_sliced(&plan.entrants[at])?;
                if is_sliced { sliced.push(at) } else { alone.push(at) }
            }
            if sliced.len() < 2 {
                alone.append(&mut sliced);
            }
            for (nth, heat) in heats(&plan.entrants, &sliced, self.max_open_bytes).iter().enumerate() {
                self.heats += 1;
                let position = Position { round, line_ns, heat: Some(self.heats) };
                if self.measure_in_slices(heat, position, left)? == Completion::Interrupted {
                    return Ok(Completion::Interrupted);
                }
                // The anchor of the first heat is measured again in the others.
                left -= heat.len() - usize::from(nth > 0);
            }
            for at in alone {
                if self.measure_alone(at, Position { round, line_ns, heat: None }, left)? == Completion::Interrupted {
                    return Ok(Completion::Interrupted);
                }
                left -= 1;
            }
        }
        self.record.handling.iter_mut().for_each(Handling::update);
        Ok(Completion::Complete)
    }

    /// Checks that the session with the other host, if there is one, is still open.
    ///
    /// # Errors
    /// When it has ended: no further instance can be measured.
    fn check_session(&self) -> Result<()> {
        match self.plan.other_host.as_ref().and_then(|host| Some((host, host.lost()?))) {
            Some((host, why)) => anyhow::bail!(
                "the session with {} has ended: {why}; start the peer there again, and then the run",
                host.peer().address
            ),
            None => Ok(()),
        }
    }

    /// Measures more rounds of the cells that do not yet detect differences as small as requested.
    /// Each round measures the third of these cells with the coarsest resolution. Stops when every
    /// cell has the requested resolution or the maximum number of rounds, or when another round
    /// would probably exceed the budget.
    fn refine(&mut self, precision: Precision, started: Instant, random: &mut fastrand::Rng) -> Result<Completion> {
        let plan = self.plan;
        while self.record.rounds_planned < MAX_ROUNDS {
            let imprecise = imprecise_cells(self.record, &precision);
            let coarsest = &imprecise[..imprecise.len().div_ceil(3)];
            let mut order = shuffled(&plan.entrants, random);
            order.retain(|at| coarsest.contains(&plan.entrants[*at].case.cell) && !self.hung.contains_key(at));
            let elapsed = started.elapsed();
            let per_instance = elapsed.div_f64(self.record.instances.len().max(1) as f64);
            if order.is_empty() || elapsed + per_instance.mul_f64(order.len() as f64) > precision.budget {
                break;
            }
            // The rounds that replace discarded instances have the numbers before this one.
            let round = self.record.rounds_planned + record::MAKE_UP_ROUNDS;
            self.record.rounds_planned += 1;
            if self.play(round, &order)? == Completion::Interrupted {
                return Ok(Completion::Interrupted);
            }
            self.record.rounds = self.record.rounds_planned;
            self.observer.round_finished(self.record, RoundKind::Refinement(coarsest.len()))?;
        }
        Ok(Completion::Complete)
    }

    /// Whether an instance can be stopped and resumed without changing its result, so that it can
    /// be measured in slices.
    ///
    /// It cannot if it keeps to set times (open loops, paced mechanisms), or if its own loops read
    /// a clock that runs during a pause.
    fn is_sliced(&self, entrant: &Entrant) -> Result<bool> {
        let case = &entrant.case;
        let entry = entry(self.registry, case)?;
        if self.plan.slice.is_none()
            // Processes of two hosts cannot be stopped in step.
            || case.place == Place::OtherHost
            || !case.pattern.rules().can_pause()
            || !entry.can_pause()
            || case.load != Load::Saturated
            || entry.spec().is_paced(case)
        {
            return Ok(false);
        }
        Ok(entry.mechanism().roles(case).len() <= MAX_CHILDREN)
    }

    /// Measures the instances of one heat in slices. They take turns.
    fn measure_in_slices(&mut self, heat: &[usize], position: Position, left: usize) -> Result<Completion> {
        let (registry, plan) = (self.registry, self.plan);
        let mut planned = Vec::new();
        for &at in heat {
            let seed = self.seeds.u64(..1 << 53);
            let case = &plan.entrants[at].case;
            let setup = setup(plan, case, seed, registry)?;
            let (window, unpaused_run_ns) = setup.window.with_unpaused_run();
            let setup = Setup { window, unpaused_run_ns, ..setup };
            planned.push(PlannedInstance { entry: entry(registry, case)?.as_ref(), setup });
        }
        let mut random = self.seeds.fork();
        let watch = OtherLoad::watch(&plan.cpus);
        let (observer, done) = (&mut *self.observer, self.record.instances.len());
        let on_open = |nth: usize| observer.instance_starts(done + nth, done + left, &plan.entrants[heat[nth]]);
        let result = match heat::run(
            &planned,
            plan.slice.unwrap_or(SLICE),
            &mut random,
            self.scratch,
            self.interrupt,
            on_open,
        ) {
            Ok(result) => result,
            Err(_) => return Ok(Completion::Interrupted),
        };
        let other_load = watch.and_then(|watch| watch.share(&plan.cpus));
        let discarded_laps = result.laps.discarded_laps();
        let cores_moved = result.laps.has_moved();
        let disturbance = Disturbance { discarded_laps: &discarded_laps, cores_moved, other_load };
        self.record.heats.push(HeatRecord { heat: self.heats, ..result.laps });
        for ((&at, planned), measured) in heat.iter().zip(&planned).zip(result.measured) {
            let entrant = &plan.entrants[at];
            let (spec, window) = (planned.entry.spec(), planned.setup.window);
            let outcome = measured.and_then(|measured| figures(spec, &entrant.case, window, &measured, disturbance));
            self.note(at, position, outcome);
        }
        Ok(Completion::Complete)
    }

    /// Measures one instance by itself. Repeats it immediately if it was disturbed.
    fn measure_alone(&mut self, at: usize, position: Position, left: usize) -> Result<Completion> {
        let (plan, entrant) = (self.plan, &self.plan.entrants[at]);
        let done = self.record.instances.len();
        self.observer.instance_starts(done, done + left, entrant);
        for repeat in 0..=record::REPEATS {
            // Below 2^53, because larger integers are not exact in JSON.
            let seed = self.seeds.u64(..1 << 53);
            let outcome = run_instance(self.registry, plan, entrant, seed, self.scratch, self.interrupt)?;
            // ssh ends at the same Ctrl-C, and its instance may fail before the interrupt is seen.
            if outcome.is_err() && self.interrupt.is_requested() {
                return Ok(Completion::Interrupted);
            }
            self.note(at, position, outcome);
            let is_disturbed = self.record.instances.last().is_some_and(is_disturbed);
            if repeat == record::REPEATS || self.repeats == 0 || !is_disturbed {
                break;
            }
            self.repeats -= 1;
        }
        Ok(Completion::Complete)
    }

    /// Adds an instance to the record, and reports a failure or a breach to the observer.
    fn note(&mut self, at: usize, position: Position, outcome: Result<Figures, Failure>) {
        let entrant = &self.plan.entrants[at];
        let outcome = match outcome {
            Err(failure) => {
                if failure.kind == FailureKind::Hang {
                    self.hung.entry(at).or_insert(position.round);
                }
                self.observer.instance_failed(entrant, &failure.text);
                Outcome::Failed { why: failure.text, kind: Some(failure.kind) }
            }
            Ok(figures) => {
                if let Some(breach) = &figures.breach {
                    // If no message arrives, each further instance may also wait until its timeout.
                    if figures.messages == 0 {
                        self.hung.entry(at).or_insert(position.round);
                    }
                    self.observer.instance_failed(entrant, &breach.to_string());
                }
                Outcome::Measured(Box::new(figures))
            }
        };
        let Position { round, line_ns, heat } = position;
        self.record.instances.push(InstanceRecord { round, entrant: at, line_ns, heat, outcome });
    }
}

fn entry<'a>(registry: &'a Registry, case: &Case) -> Result<&'a std::sync::Arc<dyn Entry>> {
    registry.get(&case.mechanism).with_context(|| format!("no mechanism `{}`", case.mechanism))
}

/// Whether an instance is discarded for a cause outside of the mechanism, so that it is repeated.
fn is_disturbed(instance: &InstanceRecord) -> bool {
    match &instance.outcome {
        Outcome::Measured(figures) => figures.discarded.as_ref().is_some_and(Discarded::is_external),
        Outcome::Failed { .. } => false,
    }
}

/// An additional round for the cells that have too few complete rounds, because an instance
/// and all its repeats were disturbed.
///
/// Rounds at another distance of the cores are replaced too, unless the plan goes on until cells
/// are precise.
fn make_up(plan: &Plan, record: &Record, random: &mut fastrand::Rng) -> Vec<usize> {
    let elsewhere = match plan.precision {
        None => rounds_at_other_distances(record),
        Some(_) => BTreeSet::new(),
    };
    let lacks_rounds = |cell: &Cell| {
        // For each round and entrant: whether every attempt was disturbed.
        let mut lost: BTreeMap<(usize, usize), bool> = BTreeMap::new();
        for instance in &record.instances {
            if plan.entrants[instance.entrant].case.cell == *cell {
                let key = (instance.round, instance.entrant);
                *lost.entry(key).or_insert(true) &= is_disturbed(instance) || elsewhere.contains(&key);
            }
        }
        let rounds: BTreeSet<usize> = lost.keys().map(|(round, _)| *round).collect();
        let broken: BTreeSet<usize> = lost.iter().filter(|(_, lost)| **lost).map(|((round, _), _)| *round).collect();
        rounds.len() - broken.len() < plan.rounds && !broken.is_empty()
    };
    let cells: BTreeSet<&Cell> = plan.entrants.iter().map(|entrant| &entrant.case.cell).collect();
    let lacking: BTreeSet<&Cell> = cells.into_iter().filter(|cell| lacks_rounds(cell)).collect();
    let order = shuffled(&plan.entrants, random);
    order.into_iter().filter(|&at| lacking.contains(&plan.entrants[at].case.cell)).collect()
}

/// Runs one instance of a plan, and blocks until its child processes have ended. A failure of the
/// instance is in the inner result.
///
/// # Errors
/// When the registry does not have the mechanism of the case.
pub fn run_instance(
    registry: &Registry,
    plan: &Plan,
    entrant: &Entrant,
    seed: u64,
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
) -> Result<Result<Figures, Failure>> {
    let case = &entrant.case;
    let setup = setup(plan, case, seed, registry)?;
    let entry = entry(registry, case)?;
    let watch = OtherLoad::watch(&plan.cpus);
    let measured = Instance::run(entry.as_ref(), &setup, scratch, interrupt);
    let other_load = watch.and_then(|watch| watch.share(&plan.cpus));
    let disturbance = Disturbance { other_load, ..Disturbance::default() };
    Ok(measured.and_then(|measured| figures(entry.spec(), case, setup.window, &measured, disturbance)))
}

/// The parameters of an instance of a case.
fn setup(plan: &Plan, case: &Case, seed: u64, registry: &Registry) -> Result<Setup> {
    let Plan { timeout, count_timeout, .. } = *plan;
    let is_paced = entry(registry, case)?.spec().is_paced(case);
    let link_search_ns = plan.other_host.as_ref().map_or(0, |host| host.link_estimate().search_ns(case.payload.len()));
    let window = if is_paced { plan.window.paced(case.consumers(), link_search_ns) } else { plan.window };
    // A mechanism can derive the messages' seed from a tag. It must not derive the secret from it,
    // so both are drawn from another generator.
    let mut random = fastrand::Rng::with_seed(seed);
    let (seed, secret) = (random.u64(..1 << 53), random.u64(..1 << 53));
    let (case, cpus) = (case.clone(), plan.cpus.clone());
    let other_host = plan.other_host.clone();
    Ok(Setup {
        case,
        window,
        unpaused_run_ns: 0,
        seed,
        secret,
        cpus,
        timeout,
        count_timeout,
        traced: false,
        other_host,
    })
}
