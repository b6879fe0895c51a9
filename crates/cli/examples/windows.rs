//! Do slices and long windows agree? Measures mechanisms of different footprint in both ways, in
//! turn.
//!
//!     cargo run --release --example windows        # some minutes; nothing else should run meanwhile
//!
//! In slices, a mechanism stands still 500 times a second while others use the caches. If that
//! changed what is measured, a mechanism with a large footprint would be slower than in a long
//! window of its own. Each round measures every mechanism once in slices, in turn with the others
//! of its cell, and once in one piece. The first column is the time by which a table compares the
//! mechanism (slices, or the unpaused run of one that pauses change), divided by the time in one
//! piece. The second is that of its slices. Both are medians of the rounds' ratios, with their
//! intervals. Windows of a shared machine drift, so the intervals are wide; they should contain 1.
#![forbid(unsafe_code)]

mod origin;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use estafette_measure::Registry;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::core_distance::Comparable;
use estafette_measure::laps::HeatRecord;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan, SLICE, TIMEOUT};
use estafette_measure::record::{InstanceRecord, Outcome, Record};
use estafette_measure::run::{self, Completion, Observer, RoundKind};
use estafette_measure::spec::{Runtime, Scope, Wait};
use estafette_measure::stats::{CONFIDENCE, Interval, median_interval};
use estafette_measure::window::Window;

const ROUNDS: usize = 20;
const WINDOW: Window = Window::Time { warmup_ns: 50_000_000, measure_ns: 150_000_000 };

fn main() -> ExitCode {
    let registry = estafette_contest::registry();
    if std::env::args().nth(1).as_deref() == Some(estafette_measure::child::ARGUMENT) {
        estafette_measure::child::serve(&registry);
    }
    match compare(&registry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windows: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The mechanisms, from a few cache lines to some megabytes, by cell.
fn entrants() -> Vec<Entrant> {
    let process = Cell {
        scope: Scope::Process,
        pattern: Pattern::Stream,
        payload: Payload::Bytes(4096),
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::OtherCore,
        load: Load::Saturated,
    };
    let pingpong = Cell { pattern: Pattern::PingPong, payload: Payload::Bytes(64), ..process.clone() };
    let thread = Cell { scope: Scope::Thread, payload: Payload::U64, wait: Wait::Spin, ..process.clone() };
    let task = Cell {
        scope: Scope::Task,
        payload: Payload::U64,
        runtime: Runtime::TokioMulti,
        place: Place::Free,
        ..process.clone()
    };
    let cells: [(Cell, &[&str]); 4] = [
        (process, &["process/pipe", "process/unix-stream", "process/shm-memfd", "process/estafette-copied"]),
        (pingpong, &["process/pipe", "process/shm-memfd"]),
        (thread, &["thread/rtrb", "thread/ringbuf"]),
        (task, &["task/tokio-mpsc", "task/kanal", "task/flume"]),
    ];
    let of_cell = |(cell, names): (Cell, &[&str])| -> Vec<Entrant> {
        let entrant = |name: &&str| Entrant::new(Case { mechanism: (*name).to_owned(), cell: cell.clone() }, false);
        names.iter().map(entrant).collect()
    };
    cells.into_iter().flat_map(of_cell).collect()
}

fn compare(registry: &Registry) -> Result<()> {
    let entrants = entrants();
    let (mut interrupt, mut scratch) = (Interrupt::install()?, Scratch::new()?);
    // All rounds of each way.
    let mut records = [None, None];
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS}", round + 1);
        // Each way is first in every other round.
        for way in [round % 2, 1 - round % 2] {
            let slice = (way == SLICED).then_some(SLICE);
            let record = measure(registry, &entrants, slice, &mut scratch, &mut interrupt)?;
            match &mut records[way] {
                None => records[way] = Some(record),
                Some(all) => append(all, record, round),
            }
        }
    }
    let [Some(sliced), Some(whole)] = records else { bail!("there was no round") };
    print(&entrants, &sliced, &whole)
}

/// The index of the way of measuring: in slices, or in one piece.
const SLICED: usize = 0;

/// Adds a round to the record of the earlier ones.
fn append(all: &mut Record, record: Record, round: usize) {
    let offset = all.heats.iter().map(|heat| heat.heat).max().unwrap_or(0);
    all.heats.extend(record.heats.into_iter().map(|heat| HeatRecord { heat: heat.heat + offset, ..heat }));
    let moved = |instance: InstanceRecord| {
        let heat = instance.heat.map(|heat| heat + offset);
        // Several rounds of a record of one round replace discarded instances.
        InstanceRecord { round, heat, ..instance }
    };
    all.instances.extend(record.instances.into_iter().map(moved));
}

fn print(entrants: &[Entrant], sliced: &Record, whole: &Record) -> Result<()> {
    let (compared, whole) = (Comparable::of(sliced).record, Comparable::of(whole).record);
    println!("{}", origin::this());
    println!("time as compared ÷ time in one piece, and time in slices ÷ time in one piece, of {ROUNDS} rounds");
    let mut apart = 0;
    for (at, entrant) in entrants.iter().enumerate() {
        let ratios = |record: &Record| -> Vec<f64> {
            let (record, whole) = (metrics_ns(record, at), metrics_ns(&whole, at));
            record.iter().filter_map(|(round, ns)| Some((ns / whole.get(round)?).ln())).collect()
        };
        let interval = |record| {
            median_interval(&ratios(record), CONFIDENCE)
                .with_context(|| format!("too few valid rounds of {}", entrant.case.mechanism))
        };
        let (shown, slices) = (interval(&compared)?, interval(sliced)?);
        let is_apart = shown.low > 0.0 || shown.high < 0.0;
        apart += usize::from(is_apart);
        let words = |of: &Interval| format!("{:5.3} [{:5.3} - {:5.3}]", of.ratio(), of.ratio_low(), of.ratio_high());
        let mark = if is_apart { "!" } else { " " };
        println!("{}{mark} {}  {} · {}", words(&shown), words(&slices), entrant.case.mechanism, entrant.case.cell);
    }
    println!(
        "{apart} of {} differ by more than their interval (!); about one in twenty is expected to",
        entrants.len()
    );
    Ok(())
}

/// Measures each entrant once.
fn measure(
    registry: &Registry,
    entrants: &[Entrant],
    slice: Option<std::time::Duration>,
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
) -> Result<Record> {
    let plan = Plan {
        window: WINDOW,
        rounds: 1,
        precision: None,
        seed: fastrand::u64(..1 << 53),
        entrants: entrants.to_vec(),
        refusals: Vec::new(),
        cpus: available_cpus(),
        slice,
        timeout: TIMEOUT,
        count_timeout: COUNT_TIMEOUT,
        other_host: None,
    };
    let mut record = run::new_record(registry, &plan, None);
    match run::run(registry, &plan, &mut record, scratch, interrupt, &mut Quiet)? {
        Completion::Complete => Ok(record),
        Completion::Interrupted => bail!("interrupted"),
    }
}

/// The result of an entrant's last valid instance of each round.
fn metrics_ns(record: &Record, entrant: usize) -> BTreeMap<usize, f64> {
    let of_entrant = record.instances.iter().filter(|instance| instance.entrant == entrant);
    let metrics = of_entrant.filter_map(|instance| match &instance.outcome {
        Outcome::Measured(figures) if figures.discarded.is_none() => Some((instance.round, figures.metric_ns())),
        _ => None,
    });
    metrics.collect()
}

struct Quiet;

impl Observer for Quiet {
    fn instance_starts(&mut self, _: usize, _: usize, _: &Entrant) {}
    fn instance_failed(&mut self, entrant: &Entrant, what: &str) {
        eprintln!("warning: {}: {what}", entrant.case.mechanism);
    }
    fn round_finished(&mut self, _: &Record, _: RoundKind) -> Result<()> {
        Ok(())
    }
}
