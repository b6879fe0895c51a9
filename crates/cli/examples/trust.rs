//! Puts the instrument to the test: how often does it tell a mechanism from itself, and how often does it find a
//! planted delay of 10 %?
//!
//!     cargo run --release --example trust
//!
//! It prints both rates, and the noise of every cell of the overview. Half an hour on two cores; `-- --short` does a
//! tenth of the work, to see that it runs. Nothing else should be running.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use estafette_contest::process::UnixStream;
use estafette_measure::case::{Case, Cell, Pattern, Payload, Place, Role};
use estafette_measure::clock::now_ns;
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::entry::bytes;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan, TIMEOUT, enter};
use estafette_measure::ranking::{log_ratios, rank};
use estafette_measure::record::Record;
use estafette_measure::run::{self, End, Observer};
use estafette_measure::spec::{Runtime, Scope, Standing, Wait};
use estafette_measure::stats::{
    CONFIDENCE, Margins, Verdict, log_ratio_sd, median, median_interval, noise_floor, verdict,
};
use estafette_measure::suite::{Profile, overview};
use estafette_measure::window::Window;
use estafette_measure::{
    Carries, Ends, Generator, Mechanism, Party, Raw, Registry, Rendezvous, Rx, Spec, Tx, Verifier,
};

/// The part of a message's own time that is added to it.
const DELAY: f64 = 0.10;

fn main() -> ExitCode {
    let registry = estafette_contest::registry().enrol(bytes(Delayed));
    if std::env::args().nth(1).as_deref() == Some(estafette_measure::child::ARGUMENT) {
        estafette_measure::child::serve(&registry);
    }
    let short = std::env::args().any(|argument| argument == "--short");
    match trust(&registry, if short { 10 } else { 1 }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trust: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn trust(registry: &Registry, divisor: usize) -> Result<()> {
    let mut interrupt = Interrupt::install()?;
    let cells = overview(Profile::Quick);
    let runs = 200usize.div_ceil(cells.len() * 2).div_ceil(divisor);
    let mut noise = Noise::default();
    for run in 0..runs {
        eprintln!("A/A pairs: run {} of {runs}", run + 1);
        noise.add(&aa_pairs(registry, &cells, &mut interrupt)?);
    }
    noise.print();
    println!();
    planted(registry, Pattern::Stream, Payload::Bytes(4096), 100 / divisor, &mut interrupt)
}

fn measure(
    registry: &Registry,
    entrants: Vec<Entrant>,
    rounds: usize,
    window: Window,
    interrupt: &mut Interrupt,
) -> Result<Record> {
    let cpus = available_cpus();
    let seed = fastrand::u64(..1 << 53);
    let (timeout, count_timeout) = (TIMEOUT, COUNT_TIMEOUT);
    let plan = Plan { window, rounds, seed, entrants, refusals: Vec::new(), cpus, timeout, count_timeout };
    let mut record = run::blank(registry, &plan, None);
    match run::run(registry, &plan, &mut record, &mut Scratch::new()?, interrupt, &mut Quiet)? {
        End::Complete => Ok(record),
        End::Interrupted => anyhow::bail!("interrupted"),
    }
}

/// Two pairs of selves in every cell, in short windows: each pair's floor comes from the other.
fn aa_pairs(registry: &Registry, cells: &[Cell], interrupt: &mut Interrupt) -> Result<Record> {
    let (all, _) = enter(registry, cells, |entry| entry.spec().standing != Standing::Baseline, available_cpus().len());
    let selves = all.into_iter().filter(|entrant| entrant.control);
    let four =
        selves.flat_map(|entrant| [false, true, true, true].map(|control| Entrant { control, ..entrant.clone() }));
    measure(registry, four.collect(), 6, Window::Time { warmup_ns: 20_000_000, measure_ns: 50_000_000 }, interrupt)
}

/// What the A/A pairs gave.
#[derive(Default)]
struct Noise {
    /// Cell, mechanism, ln ratios of all rounds, pairs, and how many of them were decided.
    cells: Vec<(Cell, String, Vec<f64>, usize, usize)>,
}

impl Noise {
    fn add(&mut self, record: &Record) {
        for four in 0..record.entrants.len() / 4 {
            let case = &record.entrants[four * 4].case;
            let pairs = [(0, 1), (2, 3)].map(|(a, b)| log_ratios(record, four * 4 + a, four * 4 + b));
            let at = match self.cells.iter().position(|(cell, ..)| *cell == case.cell) {
                Some(at) => at,
                None => {
                    self.cells.push((case.cell.clone(), case.mechanism.clone(), Vec::new(), 0, 0));
                    self.cells.len() - 1
                }
            };
            let (_, _, ratios, count, decided) = &mut self.cells[at];
            for (pair, other) in [(&pairs[0], &pairs[1]), (&pairs[1], &pairs[0])] {
                let interval = median_interval(pair, CONFIDENCE);
                let said = verdict(interval.as_ref(), noise_floor(other), Margins::default());
                *count += 1;
                *decided += usize::from(matches!(said, Verdict::Faster | Verdict::Slower));
                ratios.extend(pair);
            }
        }
    }

    fn print(&self) {
        println!("noise of each cell: standard deviation of ln(A'/A) over short pairs of instances");
        for (cell, mechanism, ratios, count, decided) in &self.cells {
            let sd = log_ratio_sd(ratios).unwrap_or(f64::NAN);
            let mut sizes: Vec<f64> = ratios.iter().map(|ratio| ratio.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            let middle = median(&sizes).unwrap_or(f64::NAN);
            println!("  sd {sd:6.3}  median |ln| {middle:6.3}  {decided} of {count} decided  {cell}  ({mechanism})");
        }
        let (pairs, decided) =
            self.cells.iter().fold((0, 0), |(pairs, decided), cell| (pairs + cell.3, decided + cell.4));
        let rate = 100.0 * decided as f64 / pairs as f64;
        println!("A/A: {decided} of {pairs} pairs ended in faster or slower: {rate:.1} % (at most 5 % are to)");
    }
}

/// Standard-sized comparisons of a mechanism with itself plus a delay.
fn planted(
    registry: &Registry,
    pattern: Pattern,
    payload: Payload,
    count: usize,
    interrupt: &mut Interrupt,
) -> Result<()> {
    let cell = Cell {
        scope: Scope::Process,
        pattern,
        payload,
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::OtherCore,
    };
    let entrant =
        |name: &str, control| Entrant { case: Case { mechanism: name.to_owned(), cell: cell.clone() }, control };
    let three =
        [entrant("process/unix-stream", false), entrant("process/unix-stream", true), entrant(Delayed::NAME, false)];
    let (mut found, mut effects) = (0, Vec::new());
    for at in 0..count {
        let window = Window::Time { warmup_ns: 100_000_000, measure_ns: 250_000_000 };
        let record = measure(registry, three.to_vec(), 12, window, interrupt)?;
        let rankings = rank(&record);
        let row =
            rankings[0].rows.iter().find(|row| row.spec.name == Delayed::NAME).context("the delayed one has no row")?;
        let result = row.result.as_ref().context("the delayed one has no result")?;
        let slower = result.verdict == Some(Verdict::Slower);
        found += usize::from(slower);
        effects.extend(result.versus.map(|interval| (-interval.estimate).exp_m1()));
        let floor = rankings[0].floor.map_or(f64::NAN, f64::exp_m1);
        let by = result.versus.map_or(String::new(), |interval| {
            format!(
                "{:+.1} % [{:+.1} to {:+.1}]",
                percent(-interval.estimate),
                percent(-interval.high),
                percent(-interval.low)
            )
        });
        eprintln!("delay in {pattern}: {} of {count}: {:?} {by}, floor {:.1} %", at + 1, result.verdict, floor * 100.0);
    }
    let effect = median(&effects).unwrap_or(f64::NAN) * 100.0;
    println!(
        "planted delay in {pattern} · {payload}: found slower in {found} of {count} (at least 95 % are to); measured {effect:+.1} %"
    );
    Ok(())
}

fn percent(ln: f64) -> f64 {
    ln.exp_m1() * 100.0
}

struct Quiet;

impl Observer for Quiet {
    fn instance(&mut self, _: usize, _: usize, _: &Entrant) {}
    fn trouble(&mut self, entrant: &Entrant, what: &str) {
        eprintln!("warning: {}: {what}", entrant.case.mechanism);
    }
    fn round(&mut self, _: &Record) -> Result<()> {
        Ok(())
    }
}

/// `process/unix-stream` whose calls take a tenth longer.
///
/// A call that had to wait for the other side is not made longer in proportion: its wait is the other side's work, which
/// already takes a tenth longer. So a stream slows down by what was planted, whichever of its ends is the slower one.
struct Delayed;

impl Delayed {
    const NAME: &str = "process/unix-stream-delayed";
}

impl Mechanism for Delayed {
    fn spec(&self) -> Spec {
        Spec { name: Delayed::NAME.to_owned(), ..UnixStream.spec() }
    }
}

impl Carries<Raw> for Delayed {
    type Tx = Slow<<UnixStream as Carries<Raw>>::Tx>;
    type Rx = Slow<<UnixStream as Carries<Raw>>::Rx>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let Ends(parties) = UnixStream.open(case, role, meet)?;
        let slow = |party: Party<_, _>| Party {
            role: party.role,
            tx: party.tx.map(|end| Slow { end, usual_ns: 0.0 }),
            rx: party.rx.map(|end| Slow { end, usual_ns: 0.0 }),
        };
        Ok(Ends(parties.into_iter().map(slow).collect()))
    }
}

struct Slow<E> {
    end: E,
    /// What a call usually takes, as a running mean that waits hardly enter.
    usual_ns: f64,
}

impl<E> Slow<E> {
    fn delay(&mut self, began_ns: u64) {
        let ended_ns = now_ns();
        let took_ns = (ended_ns - began_ns) as f64;
        if self.usual_ns == 0.0 {
            self.usual_ns = took_ns;
        }
        let took_ns = took_ns.min(2.0 * self.usual_ns);
        self.usual_ns += (took_ns - self.usual_ns) / 64.0;
        let until_ns = ended_ns + (took_ns * DELAY) as u64;
        while now_ns() < until_ns {
            std::hint::spin_loop();
        }
    }
}

impl<E: Tx> Tx for Slow<E> {
    async fn put(&mut self, next: &mut Generator) -> io::Result<()> {
        let began_ns = now_ns();
        self.end.put(next).await?;
        self.delay(began_ns);
        Ok(())
    }
}

impl<E: Rx> Rx for Slow<E> {
    async fn get(&mut self, seen: &mut Verifier) -> io::Result<()> {
        let began_ns = now_ns();
        self.end.get(seen).await?;
        self.delay(began_ns);
        Ok(())
    }
}
