//! A short run for a question: only the cells that answer it, and only the mechanisms that may be
//! the answer.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use estafette_measure::Registry;
use estafette_measure::case::{Cell, Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::entry::Entry;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, MAX_ROUNDS, Plan, Precision, SLICE, TIMEOUT, combine};
use estafette_measure::spec::{Scope, Standing, Tier, Wait};
use estafette_measure::suite::{self, Axes, Profile, Suite};

use super::exclusion::{Excluded, Why};
use super::question::Question;
use crate::args::{Choose, Need};
use crate::build_features::with_peers;
use crate::hosts;
use crate::measurement::{random_seed, time_window};

/// A table that detects differences this small gets no more rounds.
const RESOLUTION: f64 = 0.03;
/// The window of an instance, in nanoseconds. At a low rate it is longer, up to the maximum.
const WINDOW_NS: u64 = 30_000_000;
const MAX_WINDOW_NS: u64 = 500_000_000;
/// How many messages of a rate a window should have, so that there is a 99th percentile.
const MESSAGES: u64 = 1_000;
/// What an instance takes beyond its warm-up and its window: processes start and end.
const OVERHEAD: Duration = Duration::from_millis(40);
/// The number of rounds from which differences are decided.
const MIN_ROUNDS: usize = 6;
/// The default length of messages that every mechanism of a kind carries, in bytes.
const MESSAGE_LEN: usize = 1024;
const SHARED_LEN: usize = 1200;

/// The plan of a run that answers a question.
pub(super) struct ShortRun {
    /// `None` if no mechanism can be the answer.
    pub(super) plan: Option<Plan>,
    /// The mechanisms that are not measured, each with the reason.
    pub(super) excluded: Vec<Excluded>,
    /// What was decided for the user.
    pub(super) notes: Vec<String>,
}

impl ShortRun {
    /// Plans a run.
    ///
    /// # Errors
    /// If the question does not say how far messages travel, or names an unknown mechanism, or if
    /// no suite has a cell for it.
    pub(super) fn plan(registry: &Registry, args: &Choose, question: &Question) -> Result<ShortRun> {
        hosts::check_place(args.place.as_slice())?;
        let scopes = scopes(registry, args, question)?;
        let cpus = available_cpus();
        let cells = cells(&scopes, question, cpus.len());
        ensure!(
            !cells.is_empty(),
            "no suite has a case for this: choose another --pattern or --payload, such as --pattern ping-pong"
        );
        let window_ns = window_ns(question.load);
        let mut notes = Vec::new();
        let most = max_entrants(args.budget, window_ns);
        let wants = |entry: &dyn Entry, cell: &Cell, tier: Tier| {
            let spec = entry.spec();
            question.concerns(spec) && question.unmet(spec, cell.producers).is_none() && spec.tier <= tier
        };
        let combined = |tier| combine(registry, &cells, |entry, cell| wants(entry, cell, tier), cpus.len());
        let (mut entrants, mut refusals) = combined(Tier::Standard);
        for tier in [Tier::Suite, Tier::Overview] {
            if entrants.len() <= most || !question.names.is_empty() {
                break;
            }
            (entrants, refusals) = combined(tier);
            let left_out = "The run would take too long with every mechanism, so the rarer ones are left out";
            notes = vec![format!("{left_out}: name some, or give a longer --budget.")];
        }
        let is_run = |name: &str| entrants.iter().any(|entrant| entrant.case.mechanism == name);
        let mut excluded = unmet(registry, &scopes, question, &cells);
        excluded.extend(Excluded::of_refusals(&refusals, question, is_run));
        if entrants.is_empty() {
            if excluded.is_empty() {
                excluded = refusals.iter().map(Excluded::refused).collect();
                excluded.dedup();
            }
            return Ok(ShortRun { plan: None, excluded, notes });
        }
        let rounds = (most * MIN_ROUNDS / entrants.len()).clamp(1, MIN_ROUNDS);
        let plan = Plan {
            window: time_window(window_ns),
            rounds,
            precision: Some(Precision { resolution: RESOLUTION.ln_1p(), max_rounds: MAX_ROUNDS, budget: args.budget }),
            seed: args.seed.unwrap_or_else(random_seed),
            entrants,
            refusals,
            cpus,
            slice: Some(SLICE),
            timeout: TIMEOUT,
            count_timeout: COUNT_TIMEOUT,
            other_host: None,
        };
        Ok(ShortRun { plan: Some(plan), excluded, notes })
    }
}

/// The scopes of a question: those that it names, or else those of the mechanisms that it names.
fn scopes(registry: &Registry, args: &Choose, question: &Question) -> Result<Vec<Scope>> {
    let mut of_names = Vec::new();
    for name in &args.what {
        let found = registry.matching(name).map_err(with_peers)?;
        let found = found.iter().map(|entry| entry.spec());
        let candidates: Vec<_> = found.filter(|spec| spec.standing == Standing::Candidate).collect();
        ensure!(
            !candidates.is_empty(),
            "{name} is there to check the measurement and is nothing that a program can choose: name another, see `estafette list`"
        );
        of_names.extend(candidates.iter().map(|spec| spec.scope));
    }
    if !question.scopes.is_empty() {
        return Ok(question.scopes.clone());
    }
    if of_names.is_empty() {
        bail!(
            "say how far messages travel: --scope task, thread, process, network, sandbox, same-process or same-host; \
             or name mechanisms; or answer from a record with --record or --dir"
        );
    }
    Ok(Scope::ALL.into_iter().filter(|scope| of_names.contains(scope)).collect())
}

/// The patterns of a question that names none: a round trip and a stream, or what a rate or several
/// producers need.
fn patterns(question: &Question) -> Vec<Pattern> {
    let has_rate = question.load.is_some_and(|load| load != Load::Saturated);
    match (question.pattern, question.producers) {
        (Some(pattern), _) => vec![pattern],
        (None, Some(2..)) => vec![Pattern::FanIn],
        (None, _) if has_rate => vec![Pattern::Stream],
        (None, _) => vec![Pattern::PingPong, Pattern::Stream],
    }
}

/// The cells that answer a question.
fn cells(scopes: &[Scope], question: &Question, cores: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &scope in scopes {
        for pattern in patterns(question) {
            cells.extend(of_pattern(scope, pattern, question));
        }
    }
    if cores < 2 {
        // Both ends share the only core. Spinning there is refused, so such cells are not moved.
        for cell in cells.iter_mut().filter(|cell| cell.place == Place::OtherCore && cell.wait != Wait::Spin) {
            cell.place = Place::SameCore;
        }
    }
    cells
}

/// The cells of one scope and pattern, with the values of the question in place of the usual ones.
fn of_pattern(scope: Scope, pattern: Pattern, question: &Question) -> Vec<Cell> {
    let kind = kind(scope, pattern, question);
    let Some(base) = base(scope, pattern, kind) else { return Vec::new() };
    let size = question.size.map(Payload::len);
    let payload = match (kind, size) {
        (None, size) => size.map(Payload::Bytes),
        (Some(PayloadKind::Bytes), size) => Some(Payload::Bytes(size.unwrap_or(MESSAGE_LEN))),
        (Some(PayloadKind::Message), size) => size.map(Payload::Message),
        (Some(PayloadKind::Shared), size) => Some(Payload::Shared(size.unwrap_or(SHARED_LEN))),
        (Some(PayloadKind::Unread), size) => Some(Payload::Unread(size.unwrap_or(SHARED_LEN))),
        (Some(PayloadKind::None), _) => Some(Payload::None),
        (Some(PayloadKind::U64), _) => Some(Payload::U64),
        (Some(PayloadKind::Inline), _) => Some(Payload::Inline),
    };
    let waits = match question.wait {
        Some(wait) => vec![wait],
        // Each channel between threads has its own way to wait, so one table would leave most out.
        None if scope == Scope::Thread && !pattern.is_one_thread() => vec![Wait::Adaptive, Wait::Spin, Wait::Block],
        None if scope == Scope::Thread => Vec::new(),
        None => vec![Wait::Block],
    };
    let axes = Axes {
        patterns: Vec::new(),
        payloads: payload.into_iter().collect(),
        producers: question.producers.into_iter().collect(),
        capacities: question.capacity.into_iter().collect(),
        runtimes: question.runtime.into_iter().collect(),
        waits,
        places: question.place.into_iter().collect(),
        loads: question.load.into_iter().collect(),
        arrivals: Vec::new(),
    };
    suite::replace(vec![base], &axes)
}

/// The kind of payload: what the question names, or a struct between processes if values of a type
/// are needed. `None` leaves it to the suite.
fn kind(scope: Scope, pattern: Pattern, question: &Question) -> Option<PayloadKind> {
    let is_typed = question.needs.contains(&Need::Typed) && !scope.in_process();
    let default = (is_typed || pattern == Pattern::Codec).then_some(PayloadKind::Message);
    question.payload.or(default)
}

/// The usual cell of a scope and a pattern: of the first suite that has one, or else the first
/// cell of the overview with this pattern.
fn base(scope: Scope, pattern: Pattern, kind: Option<PayloadKind>) -> Option<Cell> {
    let is_message = kind == Some(PayloadKind::Message);
    let fits = |cell: &Cell| cell.scope == scope && (cell.payload.kind() == PayloadKind::Message) == is_message;
    let all = || {
        let profiles = [Profile::Quick, Profile::Standard].into_iter();
        profiles.flat_map(|profile| Suite::ALL.into_iter().flat_map(move |suite| suite.cells(profile))).filter(fits)
    };
    let own = all().find(|cell| cell.pattern == pattern && cell.load == Load::Saturated);
    own.or_else(|| {
        let axes = Axes { patterns: vec![pattern], ..Axes::default() };
        suite::replace(all().collect(), &axes).into_iter().next()
    })
}

/// The mechanisms of the question that do not meet a need in any of the cells.
fn unmet(registry: &Registry, scopes: &[Scope], question: &Question, cells: &[Cell]) -> Vec<Excluded> {
    let specs = registry.iter().map(|entry| entry.spec());
    let specs = specs.filter(|spec| scopes.contains(&spec.scope) && question.concerns(spec));
    let excluded = specs.filter_map(|spec| {
        let mut of_scope = cells.iter().filter(|cell| cell.scope == spec.scope).map(|cell| cell.producers);
        let need = question.unmet(spec, of_scope.next()?)?;
        Some(Excluded { mechanism: spec.name.clone(), why: Why::Need(need) })
    });
    excluded.collect()
}

/// The window of an instance: long enough for a 99th percentile of a rate.
fn window_ns(load: Option<Load>) -> u64 {
    let rate = load.and_then(Load::rate);
    rate.map_or(WINDOW_NS, |rate| (MESSAGES * 1_000_000_000 / rate).clamp(WINDOW_NS, MAX_WINDOW_NS))
}

/// How many entrants have enough rounds within a budget.
fn max_entrants(budget: Duration, window_ns: u64) -> usize {
    // The warm-up and the unpaused run take half a window each.
    let instance = Duration::from_nanos(2 * window_ns) + OVERHEAD;
    (budget.as_nanos() / (instance.as_nanos() * MIN_ROUNDS as u128)) as usize
}
