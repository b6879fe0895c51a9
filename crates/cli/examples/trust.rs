//! Puts the instrument to the test: how often does it tell a mechanism from itself, and how often does it find a
//! planted delay of 10 %?
//!
//!     cargo run --release --example trust
//!
//! It prints both rates, and the noise of every cell of the overview. Half an hour on two cores;
//! `-- --short` does a tenth of the work, to see that it runs. Nothing else should be running.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use estafette_contest::process::UnixStream;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place, Role};
use estafette_measure::clock::{cost_ns, now_ns};
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::entry::bytes;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan, SLICE, TIMEOUT, enter};
use estafette_measure::ranking::log_ratios;
use estafette_measure::record::Record;
use estafette_measure::run::{self, End, Observer};
use estafette_measure::spec::{Runtime, Scope, Standing, Wait};
use estafette_measure::stats::{
    CONFIDENCE, Margins, Verdict, log_ratio_sd, median, median_interval, noise_floor, verdict,
};
use estafette_measure::suite::{Profile, overview};
use estafette_measure::window::Window;
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Registry, Rendezvous, Rx, Spec, Transport, Verifier};

/// The part of a message's own time that is added to it.
const DELAY: f64 = 0.10;
/// No message takes so long by itself.
const LONGEST_NS: f64 = 500_000.0;

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
    // Where a virtual machine is quiet, on one core, and where it is not.
    planted(registry, Place::SameCore, 100 / divisor, &mut interrupt)?;
    planted(registry, Place::OtherCore, 20 / divisor, &mut interrupt)
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
    let (refusals, slice) = (Vec::new(), Some(SLICE));
    let plan = Plan { window, rounds, seed, entrants, refusals, cpus, slice, timeout, count_timeout };
    let mut record = run::blank(registry, &plan, None);
    match run::run(registry, &plan, &mut record, &mut Scratch::new()?, interrupt, &mut Quiet)? {
        End::Complete => Ok(record),
        End::Interrupted => anyhow::bail!("interrupted"),
    }
}

/// Two pairs of selves in every cell, in short windows: each pair's floor comes from the other.
fn aa_pairs(registry: &Registry, cells: &[Cell], interrupt: &mut Interrupt) -> Result<Record> {
    let (all, _) =
        enter(registry, cells, |entry, _| entry.spec().standing != Standing::Baseline, available_cpus().len());
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
fn planted(registry: &Registry, place: Place, count: usize, interrupt: &mut Interrupt) -> Result<()> {
    let (pattern, payload) = (Pattern::Stream, Payload::Bytes(64));
    let cell = Cell {
        scope: Scope::Process,
        pattern,
        payload,
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place,
        load: Load::Saturated,
    };
    let entrant = |name: &str, control| {
        let case = Case { mechanism: name.to_owned(), cell: cell.clone() };
        Entrant::new(case, control)
    };
    let three =
        [entrant("process/unix-stream", false), entrant("process/unix-stream", true), entrant(Delayed::NAME, false)];
    let (mut found, mut effects) = (0, Vec::new());
    for at in 0..count {
        let window = Window::Time { warmup_ns: 100_000_000, measure_ns: 250_000_000 };
        let record = measure(registry, three.to_vec(), 12, window, interrupt)?;
        // Held against the one self, with the floor between the two.
        let interval = median_interval(&log_ratios(&record, 0, 2), CONFIDENCE);
        let floor = noise_floor(&log_ratios(&record, 0, 1));
        let said = verdict(interval.as_ref(), floor, Margins::default());
        found += usize::from(said == Verdict::Slower);
        let by = interval.map_or("no interval".to_owned(), |interval| {
            effects.push(percent(-interval.estimate));
            let [estimate, low, high] = [interval.estimate, interval.high, interval.low].map(|ln| percent(-ln));
            format!("{estimate:+.1} % [{low:+.1} to {high:+.1}]")
        });
        let floor = floor.map_or("no floor".to_owned(), |floor| format!("floor {:.1} %", percent(floor)));
        eprintln!("delay in {pattern} · {place}: {} of {count}: {said}, {by}, {floor}", at + 1);
    }
    let effect = median(&effects).unwrap_or(f64::NAN);
    println!(
        "planted delay in {pattern} · {payload} · {place}: found slower in {found} of {count} (at least 95 % are to); \
         measured {effect:+.1} %"
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

/// `process/unix-stream` whose messages take a tenth longer, by the receiving end's doing.
struct Delayed;

impl Delayed {
    const NAME: &str = "process/unix-stream-delayed";
}

impl Mechanism for Delayed {
    fn spec(&self) -> Spec {
        Spec { name: Delayed::NAME.to_owned(), ..UnixStream.spec() }
    }
}

impl Transport<Raw> for Delayed {
    type Tx = <UnixStream as Transport<Raw>>::Tx;
    type Rx = Slow<<UnixStream as Transport<Raw>>::Rx>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let Ends(parties) = UnixStream.open(case, role, rendezvous)?;
        let slow = |party: PartyEnds<_, _>| PartyEnds {
            role: party.role,
            tx: party.tx,
            rx: party.rx.map(|end| Slow { end, clock_ns: cost_ns(), resumed_ns: now_ns(), usual_ns: 0.0 }),
        };
        Ok(Ends(parties.into_iter().map(slow).collect()))
    }
}

/// A receiving end that takes its time.
struct Slow<E> {
    end: E,
    /// What reading the clock costs, which is part of the delay.
    clock_ns: f64,
    /// When the delay of the message before ended.
    resumed_ns: u64,
    /// What a message takes, as a running mean.
    usual_ns: f64,
}

impl<E> Slow<E> {
    fn delay(&mut self) {
        let ended_ns = now_ns();
        let took_ns = (ended_ns - self.resumed_ns) as f64 - self.clock_ns;
        // A pause between two turns is no message's time.
        if took_ns < LONGEST_NS {
            self.usual_ns += (took_ns - self.usual_ns) / 1024.0;
        }
        // Half a reading lies before and half a one after the delay; its end is seen half a reading late.
        let until_ns = ended_ns as f64 + self.usual_ns * DELAY - 1.5 * self.clock_ns;
        self.resumed_ns = now_ns();
        while (self.resumed_ns as f64) < until_ns {
            self.resumed_ns = now_ns();
        }
    }
}

impl<E: Rx> Rx for Slow<E> {
    async fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.end.recv(verifier).await?;
        self.delay();
        Ok(())
    }
}
