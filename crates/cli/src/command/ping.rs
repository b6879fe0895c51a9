//! The command `ping`: measures one mechanism's round trip in one instance, with output like that
//! of ping(8).

use anyhow::{Context, Result, bail};
use estafette_measure::admission::can_run;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::coordinator::{Failure, FailureKind, Interrupt, Scratch, calls};
use estafette_measure::limits::{self, Limits, available_cpus};
use estafette_measure::other_load::OtherLoad;
use estafette_measure::plan::{Entrant, Plan, TIMEOUT};
use estafette_measure::record::Figures;
use estafette_measure::spec::Runtime;
use estafette_measure::window::Window;
use estafette_measure::{Registry, bound, run, units};
use serde::Serialize;

use crate::args::Ping;
use crate::build_features::with_peers;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::terminal::{print, print_json, report_to_stderr};
use crate::{hosts, other_load};

/// The number of warm-up round trips: a tenth of the measured ones, within these bounds.
const WARMUP: std::ops::RangeInclusive<u64> = 100..=10_000;
/// The most bytes that are sent for the warm-up. Long messages need fewer round trips.
const WARMUP_BYTES: u64 = 64 << 20;

/// The message size if none is given.
const DEFAULT_SIZE: Payload = Payload::Bytes(64);

#[derive(Serialize)]
struct Summary<'a> {
    mechanism: &'a str,
    size: usize,
    count: u64,
    total_ns: u64,
    round_trips_per_second: f64,
    /// System calls per round trip, of both ends; `None` if they were not counted.
    system_calls: Option<f64>,
    bound: Option<LeastTime>,
    /// The part of the processor time that other processes used before, from 0 to 1. `None` if
    /// unknown.
    other_load: Option<f64>,
    figures: &'a Figures,
}

#[derive(Serialize)]
struct LeastTime {
    name: String,
    ns: f64,
}

/// Runs `ping`.
pub(crate) fn run(registry: &Registry, args: &Ping) -> Result<Exit> {
    let exit = measure(registry, args)?;
    if exit == Exit::Interrupted {
        report_to_stderr("interrupted before all round trips were made: there is no result");
    }
    Ok(exit)
}

/// Measures the round trips, and prints their summary.
fn measure(registry: &Registry, args: &Ping) -> Result<Exit> {
    let cpus = available_cpus();
    let case = case(registry, args, cpus.len())?;
    let entry = registry.get(&case.mechanism).with_context(|| format!("no mechanism `{}`", case.mechanism))?;
    if let Err(why) = can_run(entry.as_ref(), &case, cpus.len()) {
        bail!("{}: {why}", case.mechanism);
    }
    let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
    let mut scratch = Scratch::new()?;
    let mut progress = Progress::plain();
    let others = OtherLoad::watch(&cpus);
    let Some(limits) = progress.limits(&cpus, limits::DEFAULT_BUDGET / 2, &mut interrupt)? else {
        return Ok(Exit::Interrupted);
    };
    let other_load = others.and_then(|others| others.share(&cpus));
    other_load::warning(other_load).iter().for_each(|warning| progress.message(warning));
    progress.stage("preparing", "system calls");
    let Ok(calls) = calls(registry, &case, &cpus, &mut scratch, &mut interrupt) else { return Ok(Exit::Interrupted) };
    progress.stage("measuring", "round trips");
    let entrant = Entrant::new(case, false);
    let plan = plan(&entrant, args, cpus);
    let outcome = run::run_instance(registry, &plan, &entrant, plan.seed, &mut scratch, &mut interrupt)?;
    progress.finish();
    let Some(figures) = figures(outcome, &entrant.case.mechanism)? else { return Ok(Exit::Interrupted) };
    let summary = Summary {
        mechanism: &entrant.case.mechanism,
        size: entrant.case.payload.len(),
        count: figures.messages,
        total_ns: figures.window_ns,
        round_trips_per_second: figures.per_second(),
        system_calls: calls,
        bound: least_time(&entrant.case.cell, &limits),
        other_load,
        figures: &figures,
    };
    report(&summary, &entrant.case.cell, args.json)
}

/// Returns the case that a ping of this mechanism measures.
fn case(registry: &Registry, args: &Ping, cores: usize) -> Result<Case> {
    let Some(entry) = registry.get(&args.mechanism) else {
        registry.matching(&args.mechanism).map_err(with_peers)?;
        bail!("`{}` is a pattern: ping measures one mechanism", args.mechanism);
    };
    hosts::check_place(args.place.as_slice())?;
    let spec = entry.spec();
    let first = |what: &str| format!("{} declares no {what}", spec.name);
    let runtime = *spec.runtimes.first().with_context(|| first("runtime"))?;
    let place = match runtime {
        Runtime::Thread if cores < 2 => Place::SameCore,
        Runtime::Thread => Place::OtherCore,
        _ => Place::Free,
    };
    let cell = Cell {
        scope: spec.scope,
        pattern: Pattern::PingPong,
        payload: args.size.unwrap_or(DEFAULT_SIZE),
        producers: 1,
        capacity: Cell::CAPACITY,
        runtime,
        wait: args.wait.or(spec.waits.first().copied()).with_context(|| first("wait mode"))?,
        place: args.place.unwrap_or(place),
        load: Load::Saturated,
    };
    // A mechanism that carries only words or no bytes has no sizes. If no size is given, its first
    // payload is used. A given size applies to the bytes that are sent.
    let messages_only = spec.payloads.iter().all(|kind| *kind == PayloadKind::Message);
    let payload = match (args.size, spec.payloads.first()) {
        _ if messages_only => Payload::Message(cell.payload.len()),
        (None, Some(PayloadKind::None)) if !spec.payloads.contains(&PayloadKind::Bytes) => Payload::None,
        (None, Some(PayloadKind::U64)) if !spec.payloads.contains(&PayloadKind::Bytes) => Payload::U64,
        _ => cell.payload,
    };
    Ok(Case { mechanism: spec.name.clone(), cell: Cell { payload, ..cell } })
}

/// Returns the plan of one instance that measures the case.
fn plan(entrant: &Entrant, args: &Ping, cpus: Vec<usize>) -> Plan {
    let most = (WARMUP_BYTES / entrant.case.payload.len().max(1) as u64).max(1);
    let warmup = (args.count / 10).clamp(*WARMUP.start(), *WARMUP.end()).min(most);
    Plan {
        window: Window::Count { warmup, messages: args.count },
        rounds: 1,
        precision: None,
        seed: fastrand::u64(..1 << 53),
        entrants: vec![entrant.clone()],
        refusals: Vec::new(),
        cpus,
        slice: None,
        timeout: TIMEOUT,
        count_timeout: args.timeout,
        other_host: None,
    }
}

/// Returns the figures of an instance; `None` if the user interrupted it.
///
/// # Errors
///
/// If the instance failed, or its round trips were discarded.
fn figures(outcome: Result<Figures, Failure>, mechanism: &str) -> Result<Option<Figures>> {
    match outcome {
        Ok(figures) if figures.messages == 0 && figures.breach.is_none() => {
            let why = figures.discarded.map(|why| format!(": {why}")).unwrap_or_default();
            bail!("{mechanism} was not measured{why}")
        }
        Ok(figures) => Ok(Some(figures)),
        Err(failure) if failure.kind == FailureKind::Interrupted => Ok(None),
        Err(failure) => bail!("{mechanism} failed: {}", failure.text),
    }
}

/// Returns the bound of a cell, if there is one.
fn least_time(cell: &Cell, limits: &Limits) -> Option<LeastTime> {
    let handling = [bound::Handling::measure(cell.payload)];
    let bound = bound::bound_of(cell, limits, None, &handling, None, None)?;
    Some(LeastTime { name: bound.cost().to_string(), ns: bound.ns() })
}

/// Prints the summary, and a message if the mechanism broke its promise.
fn report(summary: &Summary<'_>, cell: &Cell, json: bool) -> Result<Exit> {
    if json {
        print_json(summary)?;
    } else {
        print(&block(summary, cell)?)?;
    }
    match &summary.figures.breach {
        Some(breach) => {
            report_to_stderr(&format!("estafette: {} broke its promise: {breach}", summary.mechanism));
            Ok(Exit::Breach)
        }
        None => Ok(Exit::Fine),
    }
}

fn block(summary: &Summary<'_>, cell: &Cell) -> Result<String> {
    let latency = summary.figures.latency.as_ref().context("a ping without round-trip times")?;
    let mut lines = vec![
        (String::from("Mechanism"), summary.mechanism.to_owned()),
        (String::from("Case"), cell.to_string()),
        (String::from("Message size"), units::size(summary.size)),
        (String::from("Message count"), units::grouped(summary.count)),
        (String::from("Total duration"), units::duration(summary.total_ns as f64)),
        (String::from("Average round trip"), units::duration(latency.mean_ns)),
        (String::from("Minimum round trip"), units::duration(latency.min_ns as f64)),
        (String::from("Maximum round trip"), units::duration(latency.max_ns as f64)),
        (String::from("Standard deviation"), units::duration(latency.stddev_ns)),
        (
            String::from("p50 · p99 · p99.9"),
            // Few round trips give no high percentiles.
            [Some(latency.p50_ns), latency.p99_ns, latency.p999_ns]
                .map(|ns| ns.map_or(String::from("-"), |ns| units::duration(ns as f64)))
                .join(" · "),
        ),
        (String::from("Round trips"), units::rate(summary.round_trips_per_second)),
    ];
    if latency.batch > 1 {
        lines.push((String::from("Timed in batches of"), latency.batch.to_string()));
    }
    if let Some(cpu) = summary.figures.cpu_ns_per_message {
        lines
            .push((String::from("Processor time"), format!("{} a round trip, of all processes", units::duration(cpu))));
    }
    if let Some(calls) = summary.system_calls {
        lines.push((
            String::from("System calls"),
            format!("{calls:.1} a round trip, of all processes, counted in a separate run"),
        ));
    }
    if summary.figures.faults.lost > 0 {
        lines.push((String::from("Lost"), summary.figures.faults.lost.to_string()));
    }
    if let Some(bound) = &summary.bound {
        let ratio = latency.p50_ns as f64 / bound.ns;
        lines.push((
            String::from("Bound"),
            format!("{} {}; the median is {ratio:.1} times that", bound.name, units::duration(bound.ns)),
        ));
    }
    Ok(lines.into_iter().map(|(name, value)| format!("{:<20} {value}\n", format!("{name}:"))).collect())
}
