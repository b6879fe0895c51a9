//! A heat: a group of instances of one cell that are open at the same time and are measured in
//! turns, in short slices.
//!
//! The speed of a shared machine drifts within tenths of a second. Two mechanisms that are measured
//! one after the other for that long see different conditions. Two slices of some milliseconds next
//! to each other see the same conditions.
//!
//! 1. All instances are opened and stopped.
//! 2. In the first lap every instance has an unpaused run: its warm-up and a part of its window.
//! 3. In each further lap every instance runs for one slice, in a newly shuffled order. Between its
//!    slices its processes are stopped (`SIGSTOP`), so that none of them runs while others are
//!    measured.
//! 4. Between the laps the state of the machine is read: stolen time, and the round trip of a cache
//!    line between the cores.
//! 5. An instance that has reported leaves the heat. The last one runs to its end without pauses.
//! 6. All instances are closed.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::failure::{Failure, FailureKind};
use super::instance::{Instance, Measured};
use super::setup::Setup;
use super::{Interrupt, Scratch};
use crate::case::{Cell, Place};
use crate::clock::now_ns;
use crate::entry::Entry;
use crate::laps::{HeatRecord, UNPAUSED_LAP};
use crate::limits::{end_cpus, line_round_trip_ns};
use crate::pauses::{Turn, TurnWriter};
use crate::plan::slice_length;
use crate::usage::Steal;
use crate::window::{TAIL_NS, Window};

/// The time beyond its window in which an instance still runs in slices, to send its end marks and
/// to report. After that it runs to its end without pauses.
const EXTRA: Duration = Duration::from_nanos(TAIL_NS + 20_000_000);
/// How long the cache line's round trip is measured between two laps.
const LINE_TIME: Duration = Duration::from_micros(50);

/// An instance before it is opened.
pub(crate) struct PlannedInstance<'a> {
    pub(crate) entry: &'a dyn Entry,
    pub(crate) setup: Setup,
}

/// The result of a heat.
pub(crate) struct HeatResult {
    /// The result of each instance, in the order of the planned.
    pub(crate) measured: Vec<Result<Measured, Failure>>,
    /// The state of the machine around its laps.
    pub(crate) laps: HeatRecord,
}

/// Runs instances of one cell in turns. Calls `on_open` with the index of each instance before it
/// is opened.
///
/// # Errors
/// When the user interrupts the run. The failure of an instance is in that instance's result.
pub(crate) fn run(
    planned: &[PlannedInstance<'_>],
    slice: Duration,
    random: &mut fastrand::Rng,
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
    mut on_open: impl FnMut(usize),
) -> Result<HeatResult, Failure> {
    let mut members = Vec::new();
    for (at, planned) in planned.iter().enumerate() {
        on_open(at);
        members.push(Member::open(planned, slice, scratch, interrupt)?);
    }
    let laps = match planned.first() {
        Some(PlannedInstance { setup, .. }) => {
            run_laps(&mut members, &setup.case.cell, &setup.cpus, random, interrupt)?
        }
        None => HeatRecord::default(),
    };
    Ok(HeatResult { measured: members.into_iter().map(Member::close).collect(), laps })
}

fn run_laps(
    members: &mut [Member<'_>],
    cell: &Cell,
    cpus: &[usize],
    random: &mut fastrand::Rng,
    interrupt: &mut Interrupt,
) -> Result<HeatRecord, Failure> {
    let mut heat = HeatRecord::default();
    let ends = end_cpus(cpus);
    let has_two_cores = cell.place != Place::SameCore && ends.len() > 1;
    loop {
        // While all instances are stopped.
        if has_two_cores {
            let line_ns = line_round_trip_ns(&ends, LINE_TIME);
            heat.line_ns.push(line_ns.map(|ns| (ns * 10.0).round() / 10.0));
        }
        let mut order: Vec<usize> = (0..members.len()).filter(|&at| members[at].is_unfinished()).collect();
        if order.is_empty() {
            return Ok(heat);
        }
        heat.laps += 1;
        let is_stolen = if let [last] = order[..] {
            is_stolen_during(cpus, || members[last].run_to_end(heat.laps, interrupt))?
        } else {
            random.shuffle(&mut order);
            if heat.laps == UNPAUSED_LAP && members[order[0]].planned.setup.unpaused_run_ns > 0 {
                take_unpaused_runs(members, &order, cpus, interrupt)?;
                false
            } else {
                is_stolen_during(cpus, || order.iter().try_for_each(|&at| members[at].take_turn(heat.laps, interrupt)))?
            }
        };
        if is_stolen {
            heat.stolen_laps.push(heat.laps);
        }
    }
}

/// Runs the lap of the unpaused runs. They take seconds together, so stolen time counts against the
/// turn in which it happened, and not against the lap.
fn take_unpaused_runs(
    members: &mut [Member<'_>],
    order: &[usize],
    cpus: &[usize],
    interrupt: &mut Interrupt,
) -> Result<(), Failure> {
    for &at in order {
        let member = &mut members[at];
        member.is_unpaused_run_stolen = is_stolen_during(cpus, || member.take_turn(UNPAUSED_LAP, interrupt))?;
    }
    Ok(())
}

/// Whether the hypervisor takes time from the cores while `turns` run.
fn is_stolen_during(cpus: &[usize], turns: impl FnOnce() -> Result<(), Failure>) -> Result<bool, Failure> {
    let before = Steal::now(cpus);
    turns()?;
    Ok(before.zip(Steal::now(cpus)).is_some_and(|(before, after)| after.since(&before) > 0.0))
}

/// An instance in a heat, and its state.
struct Member<'a> {
    planned: &'a PlannedInstance<'a>,
    /// The length of its turns.
    turns: Turns,
    state: State,
    /// Whether the hypervisor took time from the cores during its unpaused run.
    is_unpaused_run_stolen: bool,
}

/// The lengths of an instance's turns.
#[derive(Clone, Copy)]
struct Turns {
    first: Duration,
    later: Duration,
}

enum State {
    /// Opened, and stopped at the barrier.
    Opened(Instance),
    /// Stopped between two turns.
    Paused {
        instance: Instance,
        active: Duration,
        paused_ns: u64,
        stopped_ns: u64,
    },
    /// All children have reported, or the instance ended at a damaged or lost message.
    Finished(Instance),
    Failed(Failure),
}

impl<'a> Member<'a> {
    fn open(
        planned: &'a PlannedInstance<'a>,
        slice: Duration,
        scratch: &mut Scratch,
        interrupt: &mut Interrupt,
    ) -> Result<Member<'a>, Failure> {
        let setup = &planned.setup;
        let mut open = || -> Result<Instance, Failure> {
            let turns = TurnWriter::new().map_err(|error| Failure::from(anyhow::Error::from(error)))?;
            let mut instance = Instance::open(planned.entry, setup, scratch, interrupt, Some(turns))?;
            instance.pause();
            Ok(instance)
        };
        let state = State::of(open().map(State::Opened))?;
        Ok(Member { planned, turns: Turns::new(slice, setup), state, is_unpaused_run_stolen: false })
    }

    fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Opened(_) | State::Paused { .. })
    }

    /// Runs the instance for one slice. If it has used up its time, runs it to its end.
    fn take_turn(&mut self, lap: u64, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let planned = self.planned;
        let (instance, active, paused_ns) = match self.state.take() {
            State::Opened(instance) => (instance, None, 0),
            State::Paused { instance, active, paused_ns, stopped_ns } => {
                (instance, Some(active), paused_ns + now_ns() - stopped_ns)
            }
            state => {
                self.state = state;
                return Ok(());
            }
        };
        let setup = &planned.setup;
        if active.is_some_and(|active| active > longest(setup)) {
            self.state = State::of(finish(instance, Turn { lap, paused_ns }, setup, interrupt))?;
            return Ok(());
        }
        let turn = Turn { lap, paused_ns };
        let length = if active.is_none() { self.turns.first } else { self.turns.later };
        self.state = State::of(slice(instance, turn, active, length, setup, interrupt))?;
        Ok(())
    }

    /// Runs the instance to its end without a pause.
    fn run_to_end(&mut self, lap: u64, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let setup = &self.planned.setup;
        let state = match self.state.take() {
            State::Opened(mut instance) => {
                instance.begin().and_then(|()| finish(instance, Turn { lap, paused_ns: 0 }, setup, interrupt))
            }
            State::Paused { instance, paused_ns, stopped_ns, .. } => {
                let paused_ns = paused_ns + now_ns() - stopped_ns;
                finish(instance, Turn { lap, paused_ns }, setup, interrupt)
            }
            state => Ok(state),
        };
        self.state = State::of(state)?;
        Ok(())
    }

    fn close(self) -> Result<Measured, Failure> {
        match self.state {
            State::Finished(instance) => {
                let measured = instance.close(self.planned.entry, &self.planned.setup)?;
                Ok(Measured { is_unpaused_run_stolen: self.is_unpaused_run_stolen, ..measured })
            }
            State::Failed(failure) => Err(failure),
            State::Opened(_) | State::Paused { .. } => unreachable!("every instance has reported or failed"),
        }
    }
}

impl State {
    /// Takes the state, and leaves a placeholder that the caller overwrites.
    fn take(&mut self) -> State {
        std::mem::replace(self, State::Failed(Failure::new(FailureKind::Error, "its turn was not finished")))
    }

    /// Turns a failure into a state, unless the user interrupts the run.
    fn of(state: Result<State, Failure>) -> Result<State, Failure> {
        match state {
            Err(failure) if failure.kind != FailureKind::Interrupted => Ok(State::Failed(failure)),
            state => state,
        }
    }
}

impl Turns {
    /// Slices take `shortest`, or longer for long messages. The first turn also has the warm-up, if
    /// the window is a time.
    fn new(shortest: Duration, setup: &Setup) -> Turns {
        let (sliced, first) = match setup.window {
            Window::Time { warmup_ns, measure_ns } => {
                let sliced = Duration::from_nanos(measure_ns - setup.unpaused_run_ns);
                (Some(sliced), Duration::from_nanos(warmup_ns + setup.unpaused_run_ns))
            }
            Window::Count { .. } => (None, Duration::ZERO),
        };
        let later = slice_length(shortest, setup.case.payload.len(), sliced);
        Turns { first: first.max(later), later }
    }
}

/// The maximum time that an instance runs in slices.
fn longest(setup: &Setup) -> Duration {
    match setup.window {
        Window::Time { .. } => Duration::from_nanos(setup.window.length_ns()) + EXTRA,
        Window::Count { .. } => setup.count_timeout,
    }
}

/// Runs an instance for one slice. `active` is how long it has run so far, or `None` before the
/// first slice.
fn slice(
    mut instance: Instance,
    turn: Turn,
    active: Option<Duration>,
    slice: Duration,
    setup: &Setup,
    interrupt: &mut Interrupt,
) -> Result<State, Failure> {
    if active.is_none() {
        instance.begin()?;
    }
    let resumed = Instant::now();
    instance.resume(turn)?;
    let served = instance.serve(&setup.case, resumed + slice, interrupt)?;
    instance.pause();
    let active = active.unwrap_or_default() + resumed.elapsed();
    Ok(match served {
        ControlFlow::Break(()) => State::Finished(instance),
        ControlFlow::Continue(()) => {
            State::Paused { instance, active, paused_ns: turn.paused_ns, stopped_ns: now_ns() }
        }
    })
}

/// Runs an instance to its end without a pause.
fn finish(mut instance: Instance, turn: Turn, setup: &Setup, interrupt: &mut Interrupt) -> Result<State, Failure> {
    instance.resume(turn)?;
    instance.serve_to_end(setup, interrupt)?;
    instance.pause();
    Ok(State::Finished(instance))
}
