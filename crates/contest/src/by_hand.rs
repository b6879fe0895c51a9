//! The loops one would write by hand around five channels, without the instrument: what it adds to a channel's own time is
//! the difference between `task/flume` and `task/flume-by-hand`.
//!
//! They gather the messages of several producers, look at the clock every 1024 messages, and check each message's number.
//! `thread/rtrb-by-hand` is the sixth, for the tightest cell.

use std::future::Future;

use anyhow::{Context, Result, anyhow, bail, ensure};
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::clock::now_ns;
use estafette_measure::driver::Ctx;
use estafette_measure::entry::Entry;
use estafette_measure::limits::pin_to;
use estafette_measure::message::StreamCount;
use estafette_measure::protocol::{PartyReport, Report};
use estafette_measure::spec::{Ownership, Runtime, Standing, Wait};
use estafette_measure::window::{TAIL_NS, Window};
use estafette_measure::{Registry, Spec};

/// Messages between two looks at the clock.
const STRIDE: u64 = 1024;
/// A message is its producer and its number.
const NUMBER_BITS: u32 = 40;

/// Adds all of them.
pub(crate) fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(ByHand::task("task/tokio-mpsc-by-hand", "1", tokio_mpsc))
        .enrol(ByHand::task("task/flume-by-hand", "0.12", flume))
        .enrol(ByHand::task("task/crossfire-by-hand", "3", crossfire))
        .enrol(ByHand::task("task/kanal-by-hand", "0.1", kanal))
        .enrol(ByHand::thread("thread/crossbeam-by-hand", "0.5", crossbeam))
}

/// When the window opens and closes.
#[derive(Clone, Copy)]
struct Times {
    opens_ns: u64,
    closes_ns: u64,
}

/// What a consumer saw: how many of each producer, and time and count as the window opened and as it closed.
struct Seen {
    numbers: Vec<u64>,
    received: u64,
    marks: Vec<(u64, u64)>,
    times: Times,
}

impl Seen {
    fn new(producers: usize, times: Times) -> Seen {
        Seen { numbers: vec![0; producers], received: 0, marks: Vec::new(), times }
    }

    #[inline(always)]
    fn check(&mut self, message: u64) -> Result<()> {
        let number = &mut self.numbers[(message >> NUMBER_BITS) as usize];
        ensure!(message & ((1 << NUMBER_BITS) - 1) == *number, "message {message:x} where {number} was due");
        *number += 1;
        self.received += 1;
        Ok(())
    }

    fn look(&mut self) {
        let now = now_ns();
        if self.marks.is_empty() && now >= self.times.closes_ns {
            // A window that was slept through is empty.
            self.marks.push((now, self.received));
        }
        if now >= [self.times.opens_ns, self.times.closes_ns, u64::MAX][self.marks.len()] {
            self.marks.push((now, self.received));
        }
    }
}

/// A program: the case, its times, and the core of each party that is pinned.
type Play = fn(&Case, Times, &[Option<usize>]) -> Result<Seen>;

/// A hand-written program as an entry.
struct ByHand {
    spec: Spec,
    play: Play,
}

/// The loops of an asynchronous channel, written out: `$open` makes its ends, `$send` and `$receive` are one message.
macro_rules! tasks {
    ($name:ident, |$capacity:ident| $open:expr, |$tx:ident, $message:ident| $send:expr, |$rx:ident| $receive:expr) => {
        fn $name(case: &Case, times: Times, _: &[Option<usize>]) -> Result<Seen> {
            let $capacity = case.capacity;
            let producers = case.producers;
            run(case, async move {
                #[allow(unused_mut)]
                let (tx, mut $rx) = $open;
                for producer in 0..producers as u64 {
                    let $tx = tx.clone();
                    tokio::spawn(async move {
                        let mut number = 0;
                        while now_ns() < times.closes_ns + TAIL_NS {
                            for _ in 0..STRIDE {
                                let $message = producer << NUMBER_BITS | number;
                                if $send.is_err() {
                                    return;
                                }
                                number += 1;
                            }
                        }
                    });
                }
                drop(tx);
                let consumer = tokio::spawn(async move {
                    let mut seen = Seen::new(producers, times);
                    loop {
                        for _ in 0..STRIDE {
                            let Some(message) = $receive else { return Ok(seen) };
                            seen.check(message)?;
                        }
                        seen.look();
                    }
                });
                consumer.await.context("the consumer")?
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

/// Runs a program of tasks on the case's runtime.
fn run(case: &Case, program: impl Future<Output = Result<Seen>>) -> Result<Seen> {
    let runtime = match case.runtime {
        Runtime::TokioMulti => tokio::runtime::Builder::new_multi_thread().build(),
        Runtime::TokioCurrent => tokio::runtime::Builder::new_current_thread().build(),
        other => bail!("{other} is not for tasks"),
    };
    runtime.context("starting tokio's runtime")?.block_on(program)
}

fn crossbeam(case: &Case, times: Times, cpus: &[Option<usize>]) -> Result<Seen> {
    let (tx, rx) = crossbeam_channel::bounded(case.capacity);
    let cpu = |party: usize| cpus.get(party).copied().flatten();
    for producer in 0..case.producers {
        let (tx, cpu) = (tx.clone(), cpu(producer));
        std::thread::spawn(move || {
            if let Some(Err(error)) = cpu.map(pin_to) {
                panic!("pinning: {error}");
            }
            let mut number = 0;
            while now_ns() < times.closes_ns + TAIL_NS {
                for _ in 0..STRIDE {
                    if tx.send((producer as u64) << NUMBER_BITS | number).is_err() {
                        return;
                    }
                    number += 1;
                }
            }
        });
    }
    drop(tx);
    let (producers, cpu) = (case.producers, cpu(case.producers));
    let consumer = std::thread::spawn(move || -> Result<Seen> {
        cpu.map_or(Ok(()), pin_to)?;
        let mut seen = Seen::new(producers, times);
        loop {
            for _ in 0..STRIDE {
                let Ok(message) = rx.recv() else { return Ok(seen) };
                seen.check(message)?;
            }
            seen.look();
        }
    });
    consumer.join().map_err(|_| anyhow!("the consumer panicked"))?
}

impl ByHand {
    fn new(name: &str, version: &str, play: Play) -> ByHand {
        let spec = Spec::new(name)
            .version(version)
            .stands_on("the same channel in loops of its own")
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
        let opens_ns = ctx.meet.ready()? + warmup_ns;
        let seen = (self.play)(case, Times { opens_ns, closes_ns: opens_ns + measure_ns }, &ctx.cpus)?;
        let [opened, closed] = seen.marks[..] else { bail!("the stream ended before the window closed") };
        // What each producer sent is taken from what arrived: a gap would have broken the order of its numbers.
        let counts = seen.numbers.iter().enumerate().map(|(producer, &received)| StreamCount {
            producer,
            received,
            announced: Some(received),
            digest: 0,
        });
        let consumer = PartyReport {
            received: counts.collect(),
            messages: closed.1 - opened.1,
            window_ns: closed.0 - opened.0,
            ..PartyReport::new(Role::Consumer(0))
        };
        let producers = seen.numbers.iter().enumerate();
        let mut parties: Vec<_> =
            producers.map(|(index, &sent)| PartyReport { sent, ..PartyReport::new(Role::Producer(index)) }).collect();
        parties.push(consumer);
        Ok(Report { parties, usage: None })
    }
}
