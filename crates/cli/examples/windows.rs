//! Do slices and long windows agree? Measures mechanisms of different footprint in both ways, in turn.
//!
//!     cargo run --release --example windows        # some minutes; nothing else should run meanwhile
//!
//! In slices, a mechanism stands still 500 times a second while others use the caches. If that changed what is measured, a mechanism with
//! a large footprint would be slower than in a long window of its own. Each round measures every mechanism once in slices, in turn with
//! the others of its cell, and once in one piece. The table has the median of the rounds' ratios and its interval. Windows of a shared
//! machine drift, so the intervals are wide; they should contain 1.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use estafette_measure::Registry;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan, SLICE, TIMEOUT};
use estafette_measure::record::{Outcome, Record};
use estafette_measure::run::{self, End, Observer, RoundKind};
use estafette_measure::spec::{Runtime, Scope, Wait};
use estafette_measure::stats::{CONFIDENCE, median_interval};
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
    let mut ratios = vec![Vec::new(); entrants.len()];
    for round in 0..ROUNDS {
        eprintln!("round {} of {ROUNDS}", round + 1);
        // Each way is first in every other round.
        let mut sliced = None;
        let mut whole = None;
        for is_sliced in [round % 2 == 0, round % 2 == 1] {
            let slice = is_sliced.then_some(SLICE);
            let record = measure(registry, &entrants, slice, &mut scratch, &mut interrupt)?;
            *(if is_sliced { &mut sliced } else { &mut whole }) = Some(record);
        }
        let (sliced, whole) = sliced.zip(whole).context("each round has both")?;
        for (at, ratios) in ratios.iter_mut().enumerate() {
            ratios
                .extend(metric_ns(&sliced, at).zip(metric_ns(&whole, at)).map(|(sliced, whole)| (sliced / whole).ln()));
        }
    }
    println!("time in slices ÷ time in one piece, of {ROUNDS} rounds");
    let mut apart = 0;
    for (entrant, ratios) in entrants.iter().zip(&ratios) {
        let interval = median_interval(ratios, CONFIDENCE)
            .with_context(|| format!("too few valid rounds of {}", entrant.case.mechanism))?;
        let is_apart = interval.low > 0.0 || interval.high < 0.0;
        apart += usize::from(is_apart);
        println!(
            "{:5.3} [{:5.3} - {:5.3}]{} {} · {}",
            interval.ratio(),
            interval.ratio_low(),
            interval.ratio_high(),
            if is_apart { "!" } else { " " },
            entrant.case.mechanism,
            entrant.case.cell
        );
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
    };
    let mut record = run::blank(registry, &plan, None);
    match run::run(registry, &plan, &mut record, scratch, interrupt, &mut Quiet)? {
        End::Complete => Ok(record),
        End::Interrupted => bail!("interrupted"),
    }
}

/// The result of an entrant's last valid instance.
fn metric_ns(record: &Record, entrant: usize) -> Option<f64> {
    let of_entrant = record.instances.iter().filter(|instance| instance.entrant == entrant);
    let mut figures = of_entrant.filter_map(|instance| match &instance.outcome {
        Outcome::Measured(figures) if figures.discarded.is_none() => Some(figures.metric_ns()),
        _ => None,
    });
    figures.next_back()
}

struct Quiet;

impl Observer for Quiet {
    fn instance(&mut self, _: usize, _: usize, _: &Entrant) {}
    fn failure(&mut self, entrant: &Entrant, what: &str) {
        eprintln!("warning: {}: {what}", entrant.case.mechanism);
    }
    fn round(&mut self, _: &Record, _: RoundKind) -> Result<()> {
        Ok(())
    }
}
