//! A hand-written loop around `rtrb`, without the instrument. The instrument's overhead is the
//! difference between `thread/rtrb` and this row.

use std::hint::spin_loop;
use std::thread;

use anyhow::{Result, ensure};
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::clock::now_ns;
use estafette_measure::driver::Ctx;
use estafette_measure::entry::Entry;
use estafette_measure::limits::pin_to;
use estafette_measure::message::StreamCount;
use estafette_measure::protocol::{PartyReport, Report};
use estafette_measure::spec::{Ownership, Standing, Wait};
use estafette_measure::window::{TAIL_NS, Window};
use estafette_measure::{Mechanism, Spec};
use rtrb::RingBuffer;

/// The number of messages between two clock readings.
const STRIDE: u64 = 4096;
const END: u64 = u64::MAX;

pub(super) struct RtrbByHand(Spec);

impl RtrbByHand {
    pub(super) fn new() -> RtrbByHand {
        RtrbByHand(
            Spec::new("thread/rtrb-by-hand")
                .version(env!("LOCKED_RTRB"))
                .implementation("rtrb::RingBuffer in a loop of its own")
                .waits(&[Wait::Spin])
                .patterns(&[Pattern::Stream])
                .payloads(&[PayloadKind::U64])
                .ownership(Ownership::Owned)
                .standing(Standing::Baseline),
        )
    }
}

impl Mechanism for RtrbByHand {
    fn spec(&self) -> Spec {
        self.0.clone()
    }
}

impl Entry for RtrbByHand {
    fn spec(&self) -> &Spec {
        &self.0
    }

    fn mechanism(&self) -> &dyn Mechanism {
        self
    }

    fn can_pause(&self) -> bool {
        false
    }

    fn run(&self, case: &Case, _: Role, ctx: &mut Ctx) -> Result<Report> {
        let (mut tx, mut rx) = RingBuffer::<u64>::new(case.capacity);
        let Setup { opens_ns, closes_ns, producer_cpu, consumer_cpu } = set_up(case, ctx)?;
        let producer = thread::spawn(move || -> Result<u64> {
            producer_cpu.map_or(Ok(()), pin_to)?;
            let mut next = 0;
            while now_ns() < closes_ns + TAIL_NS {
                for _ in 0..STRIDE {
                    while tx.push(next).is_err() {
                        ensure!(!tx.is_abandoned(), "the consumer has closed");
                        spin_loop();
                    }
                    next += 1;
                }
            }
            while tx.push(END).is_err() {
                spin_loop();
            }
            Ok(next)
        });

        let consumer = thread::spawn(move || -> Result<(u64, [(u64, u64); 2])> {
            consumer_cpu.map_or(Ok(()), pin_to)?;
            let mut expected = 0;
            let mut marks = Vec::new();
            loop {
                for _ in 0..STRIDE {
                    let message = loop {
                        match rx.pop() {
                            Ok(message) => break message,
                            Err(_) => {
                                ensure!(!rx.is_abandoned() || !rx.is_empty(), "the producer has closed");
                                spin_loop();
                            }
                        }
                    };
                    if message != expected {
                        ensure!(message == END, "expected {expected}, received {message}");
                        // A window that is still open closes with the stream; one that was slept
                        // through is empty.
                        while marks.len() < 2 {
                            marks.push((now_ns(), expected));
                        }
                        return Ok((expected, [marks[0], marks[1]]));
                    }
                    expected += 1;
                }
                let now = now_ns();
                if now >= [opens_ns, closes_ns, u64::MAX][marks.len()] {
                    marks.push((now, expected));
                }
            }
        });

        let failed = |_| anyhow::anyhow!("a thread panicked");
        let sent = producer.join().map_err(failed)??;
        let (received, marks) = consumer.join().map_err(failed)??;
        Ok(report(sent, received, marks))
    }
}

/// When the window opens and closes, and the core of each thread.
struct Setup {
    opens_ns: u64,
    closes_ns: u64,
    producer_cpu: Option<usize>,
    consumer_cpu: Option<usize>,
}

/// Waits for the start, and returns what the threads need.
///
/// # Errors
/// When the window is not a time, or the coordinator has ended.
fn set_up(case: &Case, ctx: &mut Ctx) -> Result<Setup> {
    let Window::Time { warmup_ns, measure_ns } = ctx.window else {
        anyhow::bail!("{} is measured by time", case.mechanism)
    };
    let opens_ns = ctx.rendezvous.wait_at_barrier()? + warmup_ns;
    Ok(Setup {
        opens_ns,
        closes_ns: opens_ns + measure_ns,
        producer_cpu: ctx.cpus.first().copied().flatten(),
        consumer_cpu: ctx.cpus.get(1).copied().flatten(),
    })
}

/// Returns the report of both parties. The marks are the times when the window opened and closed,
/// and how many messages had been received by then.
fn report(sent: u64, received: u64, [opened, closed]: [(u64, u64); 2]) -> Report {
    let party = |role, sent, received, messages, window_ns| PartyReport {
        sent,
        received,
        messages,
        window_ns,
        ..PartyReport::new(role)
    };
    let count = StreamCount { producer: 0, received, announced: Some(sent), digest: 0 };
    Report {
        parties: vec![
            party(Role::Producer(0), sent, Vec::new(), 0, 0),
            party(Role::Consumer(0), 0, vec![count], closed.1 - opened.1, closed.0 - opened.0),
        ],
        ..Report::default()
    }
}
