//! Puts the instrument to the test: how often does it tell a mechanism from itself, and how often
//! does it find a planted delay, with comparisons of the size of `quick` and of `standard`?
//!
//!     cargo run --release --example trust                 # quick-sized comparisons: some minutes
//!     cargo run --release --example trust -- standard     # standard-sized: 25 minutes
//!
//! Each setting is measured in many rounds. Every sequence of consecutive rounds as long as a
//! comparison is judged as a comparison of its own: the noise is the machine's, not a model's, and
//! so is its drift. A comparison has 12 rounds in `standard`. In `quick` it has 9, and more until
//! differences of 3 % show, up to 27, as in a run of `bench` whose time allows it. Nothing else
//! should run meanwhile.
//!
//! What a delay does to the result is measured in all rounds together, and printed: where an end
//! sleeps, a delay in the other one may cost less than its time, or more. A comparison has to find
//! a result that is slower by 10 % (`quick`) or 5 % (`standard`), or more. How often one of exactly
//! that size is found, with the same noise, is computed too: the ratios of each delayed mechanism
//! are shifted until their median is that.
#![forbid(unsafe_code)]

mod origin;

use std::io;
use std::process::ExitCode;

use anyhow::{Result, bail};
use estafette_contest::process::UnixStream;
use estafette_contest::task::tokio_mpsc;
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place, Role};
use estafette_measure::clock::{cost_ns, now_ns};
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::core_distance::Comparable;
use estafette_measure::entry::{async_values, bytes};
use estafette_measure::executor::Executor;
use estafette_measure::limits::available_cpus;
use estafette_measure::pairs::log_ratios;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan, SLICE, TIMEOUT};
use estafette_measure::ranking::HALF_WIDTHS;
use estafette_measure::record::Record;
use estafette_measure::run::{self, Completion, Observer, RoundKind};
use estafette_measure::spec::{Runtime, Scope, Wait};
use estafette_measure::stats::{
    CONFIDENCE, Margins, Verdict, log_ratio_sd, median, median_interval, noise_floor, verdict,
};
use estafette_measure::window::Window;
use estafette_measure::{
    AsyncMechanism, AsyncRx, AsyncTransport, AsyncTx, Ends, Generator, Mechanism, PartyEnds, Registry, Rendezvous, Rx,
    Spec, Transport, Tx, Verifier,
};

/// The maximum number of comparisons that are judged in each setting. Rounds in which the cores
/// were at another distance do not count, so there may be fewer.
const COMPARISONS: usize = 100;
/// Messages of a stream that are delayed together, as a reading of the clock takes as long as a
/// message of a channel.
const BATCH: u32 = 64;

/// The size of a comparison.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    rounds: usize,
    /// The number of rounds after which a comparison ends, even if it does not show small
    /// differences yet.
    max_rounds: usize,
    window: Window,
    /// The effect of a delay that at least 95 in 100 comparisons are to find, in percent of the
    /// result.
    finds: f64,
}

const QUICK: Size = Size {
    name: "quick",
    rounds: 9,
    max_rounds: 27,
    window: Window::Time { warmup_ns: 15_000_000, measure_ns: 30_000_000 },
    finds: 10.0,
};
const STANDARD: Size = Size {
    name: "standard",
    rounds: 12,
    max_rounds: 12,
    window: Window::Time { warmup_ns: 100_000_000, measure_ns: 250_000_000 },
    finds: 5.0,
};

/// A comparison ends when its table shows differences this small.
const RESOLUTION: f64 = 0.03;

/// The delays that are planted, in percent of the time of a message.
const DELAYS: [u32; 4] = [5, 10, 20, 40];

fn main() -> ExitCode {
    let mut registry = estafette_contest::registry();
    for percent in DELAYS {
        registry = registry.register(bytes(Delayed { inner: UnixStream, percent }));
        registry = registry.register(async_values(Delayed { inner: tokio_mpsc(), percent }));
    }
    if std::env::args().nth(1).as_deref() == Some(estafette_measure::child::ARGUMENT) {
        estafette_measure::child::serve(&registry);
    }
    let size = match std::env::args().nth(1).as_deref() {
        None | Some("quick") => Ok(QUICK),
        Some("standard") => Ok(STANDARD),
        Some(other) => Err(anyhow::anyhow!("unknown size `{other}`: quick or standard")),
    };
    match size.and_then(|size| trust(&registry, size)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trust: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The settings: a socket between two processes on two cores and on one, and a channel between
/// tasks.
fn settings() -> [(&'static str, Cell); 5] {
    let cell = |pattern, place| Cell {
        scope: Scope::Process,
        pattern,
        payload: Payload::Bytes(64),
        producers: 1,
        capacity: 1024,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place,
        load: Load::Saturated,
    };
    let channel = Cell {
        scope: Scope::Task,
        payload: Payload::U64,
        runtime: Runtime::TokioMulti,
        ..cell(Pattern::Stream, Place::Free)
    };
    [
        ("process/unix-stream", cell(Pattern::PingPong, Place::OtherCore)),
        ("process/unix-stream", cell(Pattern::Stream, Place::OtherCore)),
        ("process/unix-stream", cell(Pattern::PingPong, Place::SameCore)),
        ("process/unix-stream", cell(Pattern::Stream, Place::SameCore)),
        ("task/tokio-mpsc", channel),
    ]
}

fn trust(registry: &Registry, size: Size) -> Result<()> {
    let mut interrupt = Interrupt::install()?;
    let Size { name, rounds, max_rounds, .. } = size;
    println!("{}", origin::this());
    println!("Up to {COMPARISONS} {name}-sized comparisons ({rounds} to {max_rounds} rounds) in each setting");
    println!(
        "noise   rounds  controls   exactly {:2} %    delays: effect on the result, and how often it was found",
        size.finds
    );
    let (mut wrong_all, mut judged) = (0, 0);
    let (mut found_all, mut to_find, mut exact_all) = (0, 0, 0);
    for (mechanism, cell) in settings() {
        eprintln!("{mechanism} · {cell}");
        let record = measure(registry, mechanism, &cell, size, &mut interrupt)?;
        let ratios: Vec<Vec<f64>> = (1..record.entrants.len()).map(|at| log_ratios(&record, 0, at)).collect();
        let (control, delayed) = (&ratios[0], &ratios[1..]);
        let shortest = ratios.iter().map(Vec::len).min().unwrap_or(0);
        let comparisons = (shortest + 1).saturating_sub(size.max_rounds).min(COMPARISONS);
        let rounds: Vec<usize> = (0..comparisons).map(|start| length(&ratios, start, size)).collect();
        let mut line = format!("{:4.1} %", percent(log_ratio_sd(control).unwrap_or(f64::NAN)));
        line.push_str(&format!("  {:6.1}", rounds.iter().sum::<usize>() as f64 / comparisons as f64));
        let wrong = decided(control, None, &rounds, &[Verdict::Faster, Verdict::Slower]);
        (wrong_all, judged) = (wrong_all + wrong, judged + comparisons);
        line.push_str(&format!("  {wrong:3} of {comparisons:3}  "));
        let exact = delayed
            .iter()
            .map(|ratios| decided(&shifted(ratios, size.finds), Some(control), &rounds, &[Verdict::Slower]));
        let exact = exact.sum::<usize>();
        exact_all += exact;
        line.push_str(&format!("{exact:4} of {:4}  ", comparisons * delayed.len()));
        for (ratios, delay) in delayed.iter().zip(DELAYS) {
            let found = decided(ratios, Some(control), &rounds, &[Verdict::Slower]);
            let effect = percent(-median(ratios).unwrap_or(f64::NAN));
            let is_to_be_found = effect >= size.finds;
            if is_to_be_found {
                (found_all, to_find) = (found_all + found, to_find + comparisons);
            }
            let mark = if is_to_be_found { "*" } else { " " };
            line.push_str(&format!(" {delay:2} %: {effect:+5.1} %, {found:3} of {comparisons:3}{mark}"));
        }
        println!("{line}   {mechanism} · {cell}");
    }
    println!("controls: a false difference in {wrong_all} of {judged} comparisons; at most 5 % may have one");
    println!(
        "* effects of {} % or more: found in {found_all} of {to_find} comparisons; at least 95 % are to be",
        size.finds
    );
    println!("effects of exactly {} %: found in {exact_all} of {} comparisons", size.finds, judged * DELAYS.len());
    Ok(())
}

/// Shifts ln ratios so that their median is an effect of `percent`: slower by so much.
fn shifted(ratios: &[f64], percent: f64) -> Vec<f64> {
    let shift = -(percent / 100.0).ln_1p() - median(ratios).unwrap_or(f64::NAN);
    ratios.iter().map(|ratio| ratio + shift).collect()
}

/// Measures the mechanism, its control and its delayed variants, in as many rounds as the
/// comparisons take.
fn measure(registry: &Registry, mechanism: &str, cell: &Cell, size: Size, interrupt: &mut Interrupt) -> Result<Record> {
    let entrant = |name: String, control| Entrant::new(Case { mechanism: name, cell: cell.clone() }, control);
    let mut entrants = vec![entrant(mechanism.to_owned(), false), entrant(mechanism.to_owned(), true)];
    entrants.extend(DELAYS.map(|percent| entrant(delayed(mechanism, percent), false)));
    let plan = Plan {
        window: size.window,
        rounds: COMPARISONS + size.max_rounds - 1,
        precision: None,
        seed: fastrand::u64(..1 << 53),
        entrants,
        refusals: Vec::new(),
        cpus: available_cpus(),
        slice: Some(SLICE),
        timeout: TIMEOUT,
        count_timeout: COUNT_TIMEOUT,
        other_host: None,
    };
    let mut record = run::new_record(registry, &plan, None);
    match run::run(registry, &plan, &mut record, &mut Scratch::new()?, interrupt, &mut Quiet)? {
        Completion::Complete => Ok(Comparable::of(&record).record),
        Completion::Interrupted => bail!("interrupted"),
    }
}

/// The number of rounds of the comparison that begins with round `start`: until its table shows
/// differences of [`RESOLUTION`]. `ratios` has those of the control first.
fn length(ratios: &[Vec<f64>], start: usize, size: Size) -> usize {
    let is_precise = |rounds: &usize| {
        let of = |ratios: &Vec<f64>| ratios.get(start..start + rounds).map(<[f64]>::to_vec).unwrap_or_default();
        let threshold = noise_floor(&of(&ratios[0])).and_then(|floor| Margins::default().decision_threshold(floor));
        let compared = ratios[1..].iter().filter_map(|ratios| median_interval(&of(ratios), CONFIDENCE));
        let widths: Vec<f64> = compared.map(|interval| interval.half_width()).collect();
        threshold
            .zip(median(&widths))
            .is_some_and(|(threshold, width)| threshold + HALF_WIDTHS * width <= RESOLUTION.ln_1p())
    };
    (size.rounds..size.max_rounds).find(is_precise).unwrap_or(size.max_rounds)
}

/// In how many comparisons the verdict is one of those wanted. `rounds` has the length of each
/// comparison. The noise floor comes from the control in the same rounds; the control itself is
/// judged by the margins alone, as in a table.
fn decided(ratios: &[f64], control: Option<&Vec<f64>>, rounds: &[usize], wanted: &[Verdict]) -> usize {
    let verdicts = rounds.iter().enumerate().map(|(start, rounds)| {
        let of = |ratios: &[f64]| ratios.get(start..start + rounds).map(<[f64]>::to_vec).unwrap_or_default();
        let floor = control.map_or(Some(0.0), |control| noise_floor(&of(control)));
        verdict(median_interval(&of(ratios), CONFIDENCE).as_ref(), floor, Margins::default())
    });
    verdicts.filter(|verdict| wanted.contains(verdict)).count()
}

fn percent(ln: f64) -> f64 {
    ln.exp_m1() * 100.0
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

/// A mechanism whose messages take longer by a part of their own time.
///
/// In a round trip the answering end waits. In a stream the receiver does, and, where it has a core
/// of its own, the sender too: whichever of them is the slower one, the stream as a whole takes
/// longer.
struct Delayed<M> {
    inner: M,
    percent: u32,
}

/// The name of a delayed variant.
fn delayed(mechanism: &str, percent: u32) -> String {
    format!("{mechanism}-delayed-{percent}")
}

impl<M: Mechanism> Mechanism for Delayed<M> {
    fn spec(&self) -> Spec {
        let spec = self.inner.spec();
        Spec { name: delayed(&spec.name, self.percent), ..spec }
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        self.inner.roles(case)
    }
}

impl<M: AsyncMechanism> AsyncMechanism for Delayed<M> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        self.inner.executor(case)
    }
}

impl<P, M: Transport<P>> Transport<P> for Delayed<M> {
    type Tx = Slow<M::Tx>;
    type Rx = Slow<M::Rx>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        Ok(self.slow(case, self.inner.open(case, role, rendezvous)?))
    }
}

impl<P, M: AsyncTransport<P>> AsyncTransport<P> for Delayed<M> {
    type Tx = Slow<M::Tx>;
    type Rx = Slow<M::Rx>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        Ok(self.slow(case, self.inner.open(case, role, rendezvous)?))
    }
}

impl<M> Delayed<M> {
    /// The same ends, slower.
    fn slow<T, R>(&self, case: &Case, Ends(parties): Ends<T, R>) -> Ends<Slow<T>, Slow<R>> {
        let (part, batch) = (f64::from(self.percent) / 100.0, if case.pattern == Pattern::Stream { BATCH } else { 1 });
        let on_two_cores = case.pattern == Pattern::Stream && case.place != Place::SameCore;
        let slow = |party: PartyEnds<T, R>| {
            let is_consumer = matches!(party.role, Role::Consumer(_));
            PartyEnds {
                role: party.role,
                tx: party.tx.map(|end| Slow::new(end, if on_two_cores { part } else { 0.0 }, batch)),
                rx: party.rx.map(|end| Slow::new(end, if is_consumer { part } else { 0.0 }, batch)),
            }
        };
        Ends(parties.into_iter().map(slow).collect())
    }
}

/// An end that waits after each batch of messages, for a part of the time that the batch took.
struct Slow<E> {
    end: E,
    part: f64,
    batch: u32,
    /// Messages since the last delay.
    messages: u32,
    /// What reading the clock costs, which is part of the delay.
    clock_ns: f64,
    /// When the last delay ended.
    resumed_ns: u64,
    /// The usual time of a batch, as a running median.
    usual_ns: f64,
}

impl<E> Slow<E> {
    fn new(end: E, part: f64, batch: u32) -> Self {
        Slow { end, part, batch, messages: 0, clock_ns: cost_ns(), resumed_ns: now_ns(), usual_ns: 0.0 }
    }

    fn delay(&mut self) {
        self.messages += 1;
        if self.part == 0.0 || self.messages < self.batch {
            return;
        }
        self.messages = 0;
        let ended_ns = now_ns();
        let took_ns = (ended_ns - self.resumed_ns) as f64 - self.clock_ns;
        // A running median: an interruption moves it by as little as any other batch. The first batch includes the wait for the start.
        let is_far_above = self.usual_ns == 0.0 || took_ns < self.usual_ns / 2.0;
        let step_ns = self.usual_ns / 256.0 * (took_ns - self.usual_ns).signum();
        self.usual_ns = if is_far_above { took_ns } else { self.usual_ns + step_ns };
        // Half a reading lies before and half a one after the delay; its end is seen half a reading late.
        let until_ns = ended_ns as f64 + self.usual_ns * self.part - 1.5 * self.clock_ns;
        self.resumed_ns = now_ns();
        while (self.resumed_ns as f64) < until_ns {
            self.resumed_ns = now_ns();
        }
    }
}

impl<E: Tx> Tx for Slow<E> {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.end.send(source)?;
        self.delay();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end.flush()
    }
}

impl<E: Rx> Rx for Slow<E> {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.end.recv(verifier)?;
        self.delay();
        Ok(())
    }
}

impl<E: AsyncTx> AsyncTx for Slow<E> {
    async fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.end.send(source).await?;
        self.delay();
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.end.flush().await
    }
}

impl<E: AsyncRx> AsyncRx for Slow<E> {
    async fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.end.recv(verifier).await?;
        self.delay();
        Ok(())
    }
}
