//! The loops one would write by hand around seven channels, without the instrument: what it adds to a channel's own time is
//! the difference between `task/flume` and `task/flume-by-hand`.
//!
//! They gather the messages of several producers, look at the clock every 1024 messages, and fill and check each message as
//! the instrument does. `thread/rtrb-by-hand` is the eighth, for the tightest cell.

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
use estafette_measure::{Generator, Registry, Spec, Verifier};

/// Messages between two looks at the clock.
const STRIDE: u64 = 1024;

/// Adds all of them.
pub(crate) fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(ByHand::task("task/tokio-mpsc-by-hand", env!("LOCKED_TOKIO"), tokio_mpsc))
        .enrol(ByHand::task("task/flume-by-hand", env!("LOCKED_FLUME"), flume))
        .enrol(ByHand::task("task/crossfire-by-hand", env!("LOCKED_CROSSFIRE"), crossfire))
        .enrol(ByHand::task("task/kanal-by-hand", env!("LOCKED_KANAL"), kanal))
        .enrol(ByHand::task("task/async-channel-by-hand", env!("LOCKED_ASYNC_CHANNEL"), async_channel))
        .enrol(ByHand::task("task/tachyonix-by-hand", env!("LOCKED_TACHYONIX"), tachyonix))
        .enrol(ByHand::thread("thread/crossbeam-by-hand", env!("LOCKED_CROSSBEAM_CHANNEL"), crossbeam))
}

/// What a program is told: when the window opens and closes, and what messages are made of.
#[derive(Clone, Copy)]
struct Plan {
    opens_ns: u64,
    closes_ns: u64,
    seed: u64,
}

impl Plan {
    /// A producer's messages.
    fn messages(&self, producer: usize) -> Generator {
        Generator::new(self.seed, producer, size_of::<u64>())
    }

    fn over(&self) -> bool {
        now_ns() >= self.closes_ns + TAIL_NS
    }
}

/// What a consumer saw, with time and count as the window opened and as it closed, and what each producer sent.
struct Seen {
    verifier: Verifier,
    sent: Vec<u64>,
    marks: Vec<(u64, u64)>,
    plan: Plan,
}

impl Seen {
    fn new(producers: usize, plan: Plan) -> Seen {
        Seen {
            verifier: Verifier::new(plan.seed, producers, size_of::<u64>()),
            sent: Vec::new(),
            marks: Vec::new(),
            plan,
        }
    }

    fn look(&mut self) {
        let (now, received) = (now_ns(), self.verifier.received());
        if self.marks.is_empty() && now >= self.plan.closes_ns {
            // A window that was slept through is empty.
            self.marks.push((now, received));
        }
        if now >= [self.plan.opens_ns, self.plan.closes_ns, u64::MAX][self.marks.len()] {
            self.marks.push((now, received));
        }
    }

    /// The stream has ended: a window still open closes with it, and one that was slept through is empty.
    fn ended(mut self) -> Seen {
        while self.marks.len() < 2 {
            self.marks.push((now_ns(), self.verifier.received()));
        }
        self
    }
}

/// A program, of the case, its plan, and the core of each party that is pinned.
type Play = fn(&Case, Plan, &[Option<usize>]) -> Result<Seen>;

/// A hand-written program as an entry.
struct ByHand {
    spec: Spec,
    play: Play,
}

/// The loops of an asynchronous channel, written out: `$open` makes its ends, `$send` and `$receive` are one message.
macro_rules! tasks {
    ($name:ident, |$capacity:ident| $open:expr, |$tx:ident, $message:ident| $send:expr, |$rx:ident| $receive:expr) => {
        fn $name(case: &Case, plan: Plan, _: &[Option<usize>]) -> Result<Seen> {
            let $capacity = case.capacity;
            let producers = case.producers;
            run(case, async move {
                #[allow(unused_mut)]
                let (tx, mut $rx) = $open;
                let mut sending = Vec::new();
                for producer in 0..producers {
                    let $tx = tx.clone();
                    sending.push(tokio::spawn(async move {
                        let mut next = plan.messages(producer);
                        while !plan.over() {
                            for _ in 0..STRIDE {
                                let $message = next.word();
                                if $send.is_err() {
                                    bail!("the consumer has closed");
                                }
                            }
                        }
                        Ok(next.made())
                    }));
                }
                drop(tx);
                let consumer = tokio::spawn(async move {
                    let mut seen = Seen::new(producers, plan);
                    loop {
                        for _ in 0..STRIDE {
                            let Some(message) = $receive else { return seen.ended() };
                            seen.verifier.word(message);
                        }
                        seen.look();
                    }
                });
                let mut seen = consumer.await.context("the consumer")?;
                for producer in sending {
                    seen.sent.push(producer.await.context("a producer")??);
                }
                Ok(seen)
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
fn run(case: &Case, program: impl Future<Output = Result<Seen>>) -> Result<Seen> {
    let runtime = match case.runtime {
        Runtime::TokioMulti => tokio::runtime::Builder::new_multi_thread().build(),
        Runtime::TokioCurrent => tokio::runtime::Builder::new_current_thread().build(),
        other => bail!("{other} is not for tasks"),
    };
    runtime.context("starting tokio's runtime")?.block_on(program)
}

fn crossbeam(case: &Case, plan: Plan, cpus: &[Option<usize>]) -> Result<Seen> {
    let (tx, rx) = crossbeam_channel::bounded(case.capacity);
    let cpu = |party: usize| cpus.get(party).copied().flatten();
    let mut sending = Vec::new();
    for producer in 0..case.producers {
        let (tx, cpu) = (tx.clone(), cpu(producer));
        sending.push(std::thread::spawn(move || -> Result<u64> {
            cpu.map_or(Ok(()), pin_to)?;
            let mut next = plan.messages(producer);
            while !plan.over() {
                for _ in 0..STRIDE {
                    tx.send(next.word()).context("sending")?;
                }
            }
            Ok(next.made())
        }));
    }
    drop(tx);
    let (producers, cpu) = (case.producers, cpu(case.producers));
    let consumer = std::thread::spawn(move || -> Result<Seen> {
        cpu.map_or(Ok(()), pin_to)?;
        let mut seen = Seen::new(producers, plan);
        loop {
            for _ in 0..STRIDE {
                let Ok(message) = rx.recv() else { return Ok(seen.ended()) };
                seen.verifier.word(message);
            }
            seen.look();
        }
    });
    let mut seen = consumer.join().map_err(|_| anyhow!("the consumer panicked"))??;
    for producer in sending {
        seen.sent.push(producer.join().map_err(|_| anyhow!("a producer panicked"))??);
    }
    Ok(seen)
}

impl ByHand {
    fn new(name: &str, version: &str, play: Play) -> ByHand {
        let spec = Spec::new(name)
            .version(version)
            .implementation("the same channel in loops of its own")
            .patterns(&[Pattern::FanIn])
            .payloads(&[PayloadKind::U64])
            .max_producers(None)
            .ownership(Ownership::Owned)
            .standing(Standing::Baseline);
        ByHand { spec, play }
    }

    fn task(name: &str, version: &str, play: Play) -> ByHand {
        let ByHand { spec, play } = ByHand::new(name, version, play);
        ByHand { spec: spec.runtimes(&[Runtime::TokioMulti, Runtime::TokioCurrent]), play }
    }

    fn thread(name: &str, version: &str, play: Play) -> ByHand {
        let ByHand { spec, play } = ByHand::new(name, version, play);
        ByHand { spec: spec.waits(&[Wait::Adaptive]), play }
    }
}

impl Entry for ByHand {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn supports(&self, _: &Case) -> Result<(), String> {
        Ok(())
    }

    fn roles(&self, _: &Case) -> Vec<Role> {
        vec![Role::All]
    }

    fn run(&self, case: &Case, _: Role, ctx: &mut Ctx) -> Result<Report> {
        let Window::Time { warmup_ns, measure_ns } = ctx.window else {
            bail!("{} is measured by time", case.mechanism)
        };
        let opens_ns = ctx.rendezvous.ready()? + warmup_ns;
        let plan = Plan { opens_ns, closes_ns: opens_ns + measure_ns, seed: ctx.seed };
        let seen = (self.play)(case, plan, &ctx.cpus)?;
        let [opened, closed] = seen.marks[..] else { unreachable!("both ends of the window were noted") };
        let (mut received, mut faults) = seen.verifier.finish();
        for (stream, &sent) in received.iter_mut().zip(&seen.sent) {
            // There are no end marks; the producers themselves say how many there were.
            stream.announced = Some(sent);
            faults.lost += sent.saturating_sub(stream.received);
        }
        let producers = seen.sent.iter().enumerate();
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
        Ok(Report { parties, usage: None })
    }
}
