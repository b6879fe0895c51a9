//! Hand-written loops around seven channels, without the instrument. The instrument's overhead is
//! the difference between, for example, `task/flume` and `task/flume-by-hand`.
//!
//! Each program receives the messages of several producers, reads the clock every 1024 messages,
//! and fills and verifies each message as the instrument does. `thread/rtrb-by-hand` is an eighth
//! program, for the fastest cell.

use std::future::Future;

use anyhow::{Context, Result, anyhow, bail};
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::clock::now_ns;
use estafette_measure::driver::Ctx;
use estafette_measure::entry::Entry;
use estafette_measure::limits::pin_to;
use estafette_measure::protocol::{PartyReport, Report};
use estafette_measure::spec::{Ownership, Runtime, Standing, Wait};
use estafette_measure::window::{TAIL_NS, Window};
use estafette_measure::{Generator, Mechanism, Registry, Spec, Verifier};

/// The number of messages between two clock readings.
const STRIDE: u64 = 1024;

/// Adds all hand-written programs.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .register(ByHand::task("task/tokio-mpsc-by-hand", env!("LOCKED_TOKIO"), tokio_mpsc))
        .register(ByHand::task("task/flume-by-hand", env!("LOCKED_FLUME"), flume))
        .register(ByHand::task("task/crossfire-by-hand", env!("LOCKED_CROSSFIRE"), crossfire))
        .register(ByHand::task("task/kanal-by-hand", env!("LOCKED_KANAL"), kanal))
        .register(ByHand::task("task/async-channel-by-hand", env!("LOCKED_ASYNC_CHANNEL"), async_channel))
        .register(ByHand::task("task/tachyonix-by-hand", env!("LOCKED_TACHYONIX"), tachyonix))
        .register(ByHand::thread("thread/crossbeam-by-hand", env!("LOCKED_CROSSBEAM_CHANNEL"), crossbeam))
}

/// A program's parameters: when the window opens and closes, and the seed of the messages.
#[derive(Clone, Copy)]
struct Plan {
    opens_ns: u64,
    closes_ns: u64,
    seed: u64,
}

impl Plan {
    /// Returns a producer's messages.
    fn messages(&self, producer: usize) -> Generator {
        Generator::new(self.seed, producer, size_of::<u64>())
    }

    fn is_over(&self) -> bool {
        now_ns() >= self.closes_ns + TAIL_NS
    }
}

/// A consumer's measurements: the time and the message count when the window opened and when it
/// closed, and how many messages each producer sent.
struct Measurement {
    verifier: Verifier,
    sent: Vec<u64>,
    marks: Vec<(u64, u64)>,
    plan: Plan,
}

impl Measurement {
    fn new(producers: usize, plan: Plan) -> Measurement {
        Measurement {
            verifier: Verifier::new(plan.seed, producers, size_of::<u64>()),
            sent: Vec::new(),
            marks: Vec::new(),
            plan,
        }
    }

    fn check_clock(&mut self) {
        let (now, received) = (now_ns(), self.verifier.received());
        if self.marks.is_empty() && now >= self.plan.closes_ns {
            // The program slept through the whole window, so the window is empty.
            self.marks.push((now, received));
        }
        if now >= [self.plan.opens_ns, self.plan.closes_ns, u64::MAX][self.marks.len()] {
            self.marks.push((now, received));
        }
    }

    /// Ends the measurement with the stream. A window that is still open closes; one that was slept
    /// through is empty.
    fn finish(mut self) -> Measurement {
        while self.marks.len() < 2 {
            self.marks.push((now_ns(), self.verifier.received()));
        }
        self
    }
}

/// A program: a function of the case, its plan and the core of each pinned party.
type Program = fn(&Case, Plan, &[Option<usize>]) -> Result<Measurement>;

/// A hand-written program as an entry.
struct ByHand {
    spec: Spec,
    program: Program,
}

/// Defines a program around an async channel: `$open` creates its ends, `$send` and `$receive`
/// transfer one message.
macro_rules! tasks {
    ($name:ident, |$capacity:ident| $open:expr, |$tx:ident, $message:ident| $send:expr, |$rx:ident| $receive:expr) => {
        fn $name(case: &Case, plan: Plan, _: &[Option<usize>]) -> Result<Measurement> {
            let $capacity = case.capacity;
            let producers = case.producers;
            run(case, async move {
                #[allow(unused_mut)]
                let (tx, mut $rx) = $open;
                let mut handles = Vec::new();
                for producer in 0..producers {
                    let $tx = tx.clone();
                    handles.push(tokio::spawn(async move {
                        let mut source = plan.messages(producer);
                        while !plan.is_over() {
                            for _ in 0..STRIDE {
                                let $message = source.word();
                                if $send.is_err() {
                                    bail!("the consumer has closed");
                                }
                            }
                        }
                        Ok(source.made())
                    }));
                }
                drop(tx);
                let consumer = tokio::spawn(async move {
                    let mut measurement = Measurement::new(producers, plan);
                    loop {
                        for _ in 0..STRIDE {
                            let Some(message) = $receive else { return measurement.finish() };
                            measurement.verifier.word(message);
                        }
                        measurement.check_clock();
                    }
                });
                let mut measurement = consumer.await.context("the consumer")?;
                for producer in handles {
                    measurement.sent.push(producer.await.context("a producer")??);
                }
                Ok(measurement)
            })
        }
    };
}

tasks!(
    tokio_mpsc,
    |capacity| tokio::sync::mpsc::channel::<u64>(capacity),
    |tx, message| tx.send(message).await,
    |rx| rx.recv().await
);
tasks!(flume, |capacity| ::flume::bounded::<u64>(capacity), |tx, message| tx.send_async(message).await, |rx| rx
    .recv_async()
    .await
    .ok());
tasks!(
    crossfire,
    |capacity| {
        ::crossfire::detect_backoff_cfg();
        ::crossfire::mpsc::bounded_async::<u64>(capacity)
    },
    |tx, message| tx.send(message).await,
    |rx| rx.recv().await.ok()
);
tasks!(kanal, |capacity| ::kanal::bounded_async::<u64>(capacity), |tx, message| tx.send(message).await, |rx| rx
    .recv()
    .await
    .ok());

tasks!(
    async_channel,
    |capacity| ::async_channel::bounded::<u64>(capacity),
    |tx, message| tx.send(message).await,
    |rx| rx.recv().await.ok()
);
tasks!(tachyonix, |capacity| ::tachyonix::channel::<u64>(capacity), |tx, message| tx.send(message).await, |rx| rx
    .recv()
    .await
    .ok());

/// Runs a program of tasks on the case's runtime.
fn run(case: &Case, program: impl Future<Output = Result<Measurement>>) -> Result<Measurement> {
    let runtime = match case.runtime {
        Runtime::TokioMulti => tokio::runtime::Builder::new_multi_thread().build(),
        Runtime::TokioCurrent => tokio::runtime::Builder::new_current_thread().build(),
        other => bail!("{other} is not for tasks"),
    };
    runtime.context("starting tokio's runtime")?.block_on(program)
}

fn crossbeam(case: &Case, plan: Plan, cpus: &[Option<usize>]) -> Result<Measurement> {
    let (tx, rx) = crossbeam_channel::bounded(case.capacity);
    let cpu = |party: usize| cpus.get(party).copied().flatten();
    let mut handles = Vec::new();
    for producer in 0..case.producers {
        let (tx, cpu) = (tx.clone(), cpu(producer));
        handles.push(std::thread::spawn(move || -> Result<u64> {
            cpu.map_or(Ok(()), pin_to)?;
            let mut source = plan.messages(producer);
            while !plan.is_over() {
                for _ in 0..STRIDE {
                    tx.send(source.word()).context("sending")?;
                }
            }
            Ok(source.made())
        }));
    }
    drop(tx);
    let (producers, cpu) = (case.producers, cpu(case.producers));
    let consumer = std::thread::spawn(move || -> Result<Measurement> {
        cpu.map_or(Ok(()), pin_to)?;
        let mut measurement = Measurement::new(producers, plan);
        loop {
            for _ in 0..STRIDE {
                let Ok(message) = rx.recv() else { return Ok(measurement.finish()) };
                measurement.verifier.word(message);
            }
            measurement.check_clock();
        }
    });
    let mut measurement = consumer.join().map_err(|_| anyhow!("the consumer panicked"))??;
    for producer in handles {
        measurement.sent.push(producer.join().map_err(|_| anyhow!("a producer panicked"))??);
    }
    Ok(measurement)
}

impl ByHand {
    fn new(name: &str, version: &str, program: Program) -> ByHand {
        let spec = Spec::new(name)
            .version(version)
            .implementation("the same channel in loops of its own")
            .patterns(&[Pattern::FanIn])
            .payloads(&[PayloadKind::U64])
            .max_producers(None)
            .ownership(Ownership::Owned)
            .standing(Standing::Baseline);
        ByHand { spec, program }
    }

    fn task(name: &str, version: &str, program: Program) -> ByHand {
        let ByHand { spec, program } = ByHand::new(name, version, program);
        ByHand { spec: spec.runtimes(&[Runtime::TokioMulti, Runtime::TokioCurrent]), program }
    }

    fn thread(name: &str, version: &str, program: Program) -> ByHand {
        let ByHand { spec, program } = ByHand::new(name, version, program);
        ByHand { spec: spec.waits(&[Wait::Adaptive]), program }
    }
}

impl Mechanism for ByHand {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }
}

impl Entry for ByHand {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn mechanism(&self) -> &dyn Mechanism {
        self
    }

    fn can_pause(&self) -> bool {
        false
    }

    fn run(&self, case: &Case, _: Role, ctx: &mut Ctx) -> Result<Report> {
        let Window::Time { warmup_ns, measure_ns } = ctx.window else {
            bail!("{} is measured by time", case.mechanism)
        };
        let opens_ns = ctx.rendezvous.wait_at_barrier()? + warmup_ns;
        let plan = Plan { opens_ns, closes_ns: opens_ns + measure_ns, seed: ctx.seed };
        let measurement = (self.program)(case, plan, &ctx.cpus)?;
        let [opened, closed] = measurement.marks[..] else { unreachable!("both ends of the window were noted") };
        let (mut received, mut faults) = measurement.verifier.finish();
        for (stream, &sent) in received.iter_mut().zip(&measurement.sent) {
            // There are no end marks. The producers report how many messages they sent.
            stream.announced = Some(sent);
            faults.lost += sent.saturating_sub(stream.received);
        }
        let producers = measurement.sent.iter().enumerate();
        let mut parties: Vec<_> =
            producers.map(|(index, &sent)| PartyReport { sent, ..PartyReport::new(Role::Producer(index)) }).collect();
        let consumer = PartyReport {
            received,
            faults,
            messages: closed.1 - opened.1,
            window_ns: closed.0 - opened.0,
            ..PartyReport::new(Role::Consumer(0))
        };
        parties.push(consumer);
        Ok(Report { parties, ..Report::default() })
    }
}
