//! The timed loops, written once and monomorphised for every mechanism.
//!
//! A loop handles a batch of messages, then reads the clock: every [`Meter::stride`] messages. Inside a batch there is one
//! call of the mechanism's end, which makes or checks the message, and one comparison.
//!
//! Where a mechanism's ends block, and each party has a thread of its own, a batch is not awaited but run by a plain function, in which
//! its state lives in registers; see `batch.rs`.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;

use crate::batch::{self, Duplex, Ended, Several, Stopped, blocking};
use crate::burst::{Burst, Held, resident};
use crate::case::{BURST, Case, Load, Pattern, Payload, Place, Role};
use crate::clock::{self, now_ns};
use crate::executor::{Executor, Job, Work};
use crate::limits::pin_to;
use crate::mechanism::{Carries, Ends, Mechanism, Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::pace::{Feedback, Pacer};
use crate::parts::{Holds, Part, parts};
use crate::protocol::{LatencyCounts, PartyReport, Report};
use crate::rendezvous::Rendezvous;
use crate::schedule::{Schedule, yield_now};
use crate::spec::{Loss, Runtime};
use crate::usage::Usage;
use crate::window::{Meter, Window};

/// A lossy mechanism's consumer gives up this long after the window when no end mark comes.
const QUIET_NS: u64 = 50_000_000;
/// The same where the window is a count, and ends nobody knows when.
const COUNT_QUIET_NS: u64 = 1_000_000_000;
/// A consumer looks at the clock after so few messages where producers wait to hear of them.
const FEEDBACK_STRIDE: u64 = 4;
/// How often a lossy mechanism's end mark is sent, as one may be lost.
const LOSSY_END_MARKS: usize = 8;
/// A round trip is timed by itself where it takes at least this many readings of the clock.
const CLOCKS_PER_SAMPLE: f64 = 20.0;

/// More different times than this are reported with fewer digits: at 20 characters each they fit a packet.
const MOST_TIMES: usize = 6_000;

/// What a child knows of its instance besides the case.
#[derive(Debug)]
pub struct Ctx {
    /// How the children meet.
    pub meet: Rendezvous,
    /// What to measure.
    pub window: Window,
    /// What messages are made of.
    pub seed: u64,
    /// The core for each party this child plays; see [`crate::protocol::Assignment::cpus`].
    pub cpus: Vec<Option<usize>>,
}

/// Opens a mechanism's ends, waits for the other children and runs the loops of the case's pattern.
///
/// # Errors
/// Whatever keeps the mechanism from being opened or its messages from being moved.
pub fn drive<M: Carries<P>, P>(mechanism: &M, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    if let [Some(cpu)] = ctx.cpus[..] {
        // Before anything is opened: what a mechanism starts, threads of its own or a server, stays with its party.
        pin_to(cpu).with_context(|| format!("pinning to core {cpu}"))?;
    }
    if role == Role::Broker {
        let elsewhere = mechanism.broker(case, &mut ctx.meet)?;
        return Ok(Report { parties: Vec::new(), usage: Some(ctx.meet.spent().and(&elsewhere)) });
    }
    let bursts = case.pattern == Pattern::Burst;
    let before = if bursts { resident()? } else { 0 };
    let Ends(parties) = mechanism.open(case, role, &mut ctx.meet).context("opening")?;
    let opened = if bursts { resident()? } else { 0 };
    let executor = mechanism.executor(case)?;
    ensure!(
        M::BLOCKS == (case.runtime == Runtime::Thread),
        "{} runs on {}, but says that its ends {}: see Mechanism::BLOCKS",
        case.mechanism,
        case.runtime,
        if M::BLOCKS { "block" } else { "do not block" }
    );
    let burst = match bursts {
        // The runtime's own memory is not the channel's.
        true => Some(Burst::new(opened.saturating_sub(before), resident()?)),
        false => None,
    };
    // From here on nothing depends on what the ends are.
    let mut starts = Vec::new();
    for Part { role, cpu, holds } in parts(case.pattern, parties, &ctx.cpus)? {
        let run: Run = Box::new(move |loops| Box::pin(loops.run::<M, _, _>(holds)));
        starts.push(Start { role, cpu, run });
    }
    play(case, role, ctx, executor, starts, mechanism.spec().loss == Loss::Counted, burst)
}

/// What a party does with its state: one dynamic call an instance, none a message.
type Run = Box<dyn FnOnce(Loops) -> Work<(PartyReport, Option<Usage>)>>;

/// A party that is ready to start.
struct Start {
    role: Role,
    cpu: Option<usize>,
    run: Run,
}

/// Waits for the other children and runs the parties of this one to their end.
fn play(
    case: &Case,
    role: Role,
    ctx: &mut Ctx,
    executor: Box<dyn Executor>,
    starts: Vec<Start>,
    lossy: bool,
    burst: Option<Burst>,
) -> Result<Report> {
    let window = window(case, ctx);
    let leader = starts.iter().map(|start| start.role).max_by_key(|role| matches!(role, Role::Consumer(_)));
    let paced = lossy && !case.pattern.both_ways();
    let competing = case.pattern == Pattern::Mpmc;
    let cancels = case.pattern == Pattern::Cancel;
    let (mut feedback, pacers) = if paced { feedback(case, role, &mut ctx.meet)? } else { (None, Vec::new()) };
    let mut pacers = pacers.into_iter();
    let start_ns = ctx.meet.ready()?;
    let (reports, received) = mpsc::channel();
    let jobs = starts.into_iter().map(|Start { role, cpu, run }| {
        let schedule = match case.load {
            Load::Rate(rate) => Some(Schedule::new(start_ns, rate, case.producers)),
            Load::Saturated => None,
        };
        let loops = Loops {
            role,
            next: Generator::new(ctx.seed, producer(role), case.payload.len()),
            seen: verifier(ctx.seed, case, role)
                .reading(!matches!(case.payload, Payload::Unread(_)))
                .competing(competing),
            meter: Meter::new(window, start_ns, Some(role) == leader),
            share: window.share(producer(role), case.senders()),
            lossy,
            ends_by_close: competing || cancels,
            cancels,
            feedback: if matches!(role, Role::Consumer(_)) { feedback.take() } else { None },
            pacer: if matches!(role, Role::Producer(_)) { pacers.next() } else { None },
            missing: [0; 2],
            received: Default::default(),
            dropped: 0,
            schedule,
            late: 0,
            late_until_ns: 0,
            burst: burst.clone(),
            held: None,
            clients: case.producers,
        };
        let name = role.to_string();
        let reports = reports.clone();
        let running = run(loops);
        let work: Work<()> = Box::pin(async move {
            let _ = reports.send(running.await?);
            Ok(())
        });
        Job { name, cpu, work }
    });
    let jobs = jobs.collect();
    drop(reports);
    executor.run(jobs)?;
    let mut report = Report::default();
    for (party, usage) in received.try_iter() {
        report.usage = report.usage.or(usage);
        report.parties.push(party);
    }
    report.parties.sort_by_key(|party| party.role);
    Ok(report)
}

/// What is measured: a burst is as long as it is.
fn window(case: &Case, ctx: &Ctx) -> Window {
    match case.pattern {
        Pattern::Burst => Window::Count { warmup: 1, messages: BURST - 1 },
        _ => ctx.window,
    }
}

/// The way back on which the consumer of a mechanism that may lose tells its producers what has arrived: the consumer's
/// end where it is played here, and those of the producers that are.
fn feedback(case: &Case, role: Role, meet: &mut Rendezvous) -> Result<(Option<Feedback>, Vec<Pacer>)> {
    let yields = case.place == Place::SameCore;
    // Of several that receive the same, the first speaks for all.
    if matches!(role, Role::Consumer(1..)) {
        return Ok((None, Vec::new()));
    }
    if let Role::Producer(index) = role {
        let [end]: [OwnedFd; 1] = meet.want_descriptors(&format!("feedback:{index}"))?;
        return Ok((None, vec![Pacer::new(end.into(), yields)]));
    }
    let (mut ends, mut pacers) = (Vec::new(), Vec::new());
    for index in 0..case.senders() {
        let (ours, theirs) = UnixDatagram::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        if role == Role::All {
            pacers.push(Pacer::new(theirs, yields));
        } else {
            meet.offer_descriptors(&format!("feedback:{index}"), &[theirs.as_fd()])?;
        }
        ends.push(ours);
    }
    Ok((Some(Feedback::new(ends)), pacers))
}

/// Lets the other end of a burst go on.
async fn pause<M: Mechanism>() {
    if M::BLOCKS {
        std::thread::sleep(std::time::Duration::from_micros(100));
    } else {
        yield_now().await;
    }
}

/// For times up to a minute, with three significant digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")
}

/// A histogram as pairs of a time and its count: with three significant digits, or with two where that is more than a
/// packet holds.
fn counts(times: &Histogram<u64>) -> Result<Vec<(u64, u64)>> {
    let pairs = |times: &Histogram<u64>| -> Vec<(u64, u64)> {
        times.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    };
    let fine = pairs(times);
    if fine.len() <= MOST_TIMES {
        return Ok(fine);
    }
    let mut coarse = Histogram::<u64>::new_with_bounds(1, times.high(), 2).context("a histogram")?;
    for (time, count) in fine {
        coarse.saturating_record_n(time, count);
    }
    Ok(pairs(&coarse))
}

/// What a party checks: every producer's messages, where it hears all of them.
fn verifier(seed: u64, case: &Case, role: Role) -> Verifier {
    let len = case.payload.len();
    match (case.pattern, role) {
        // The answers are in the client's own sequence.
        (Pattern::RequestReply, Role::Producer(client)) => Verifier::only(seed, client, len),
        (Pattern::Duplex, Role::Consumer(other)) => Verifier::only(seed, other, len),
        _ => Verifier::new(seed, case.senders(), len),
    }
}

/// Whose sequence a party sends. In a ping-pong both sides send that of producer 0, so that an answer is the same
/// bytes as its question, and a mechanism that hands the question back answers right.
fn producer(role: Role) -> usize {
    if let Role::Producer(index) = role { index } else { 0 }
}

/// What a consumer keeps from batch to batch.
#[derive(Debug)]
struct Hearing {
    /// How long messages of an open loop took.
    times: Option<Histogram<u64>>,
    /// What a burst took of memory.
    held: Option<Held>,
    /// Messages that were asked for.
    handled: u64,
    /// What had arrived before the batch.
    before: u64,
    /// When something arrived last.
    heard_ns: u64,
}

/// What an asker keeps from round trip to round trip.
#[derive(Debug)]
struct Asking {
    /// What a reading of the clock costs.
    clock_ns: f64,
    /// How long round trips took.
    times: Histogram<u64>,
    /// How many are timed together.
    batch: u64,
}

/// The state of one party's loop.
struct Loops {
    role: Role,
    next: Generator,
    seen: Verifier,
    meter: Meter,
    share: Option<u64>,
    lossy: bool,
    /// Whether the stream ends as its producers go: an end mark would reach one of several consumers, or be lost.
    ends_by_close: bool,
    /// Whether the consumer drops every receive that has to wait.
    cancels: bool,
    feedback: Option<Feedback>,
    pacer: Option<Pacer>,
    /// Messages missing as the window opened and as it closed, of a mechanism that may lose.
    missing: [u64; 2],
    /// What had arrived of each producer as the window opened and as it closed, where there are several.
    received: [Vec<u64>; 2],
    /// Receives that were dropped while they waited.
    dropped: u64,
    /// When messages are due, in an open loop.
    schedule: Option<Schedule>,
    /// Messages that were late in an open loop before they were sent, by no fault of the mechanism.
    late: u64,
    /// What was due before this time is late.
    late_until_ns: u64,
    /// How far a burst has got.
    burst: Option<Burst>,
    /// What it took of memory.
    held: Option<Held>,
    /// How many a server answers.
    clients: usize,
}

impl Loops {
    /// A party's loop. Where the mechanism's ends block, batches are run by plain functions; `M` decides it as the program
    /// is compiled, so that only one of the two ways is.
    async fn run<M: Mechanism, T: Tx, R: Rx>(self, holds: Holds<T, R>) -> Result<(PartyReport, Option<Usage>)> {
        match holds {
            Holds::Asking(ends) => self.ping::<M, _, _>(ends).await,
            Holds::Answering(ends) => self.pong::<M, _, _>(ends).await,
            // Servers are processes, and wait as one does. For tasks nothing of it is compiled.
            Holds::Serving(ends) if M::BLOCKS => self.serve(ends).await,
            Holds::Serving(_) => bail!("a server of several clients blocks; see Mechanism::BLOCKS"),
            Holds::Sending(tx) if self.pacer.is_some() => self.produce_paced::<M, _>(tx).await,
            Holds::Sending(tx) => self.produce::<M, _>(tx).await,
            Holds::Receiving(rx) => self.consume::<M, _>(rx).await,
        }
    }

    /// Sends until the time is over or the share is sent, then the end mark.
    async fn produce<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        loop {
            let mut count = self.batch_to_send();
            if let Some(schedule) = self.schedule {
                count = 1;
                let due_ns = schedule.due_ns(producer(self.role), self.next.made());
                // What is due in the window is sent, however long the mechanism takes.
                if self.share.is_none() && self.meter.over(due_ns) {
                    break;
                }
                let late = if M::BLOCKS { schedule.spin(due_ns) } else { schedule.wait(due_ns).await };
                self.note_late(due_ns, late);
            }
            let put = if M::BLOCKS {
                blocking::put(&mut tx, &mut self.next, count)
            } else {
                batch::put(&mut tx, &mut self.next, count).await
            };
            if self.has_sent(put)? {
                break;
            }
        }
        self.produced::<M, _>(tx).await
    }

    // What lies between two batches is the same for every mechanism, and is compiled once.

    /// How many messages are sent before the next look at the clock.
    fn batch_to_send(&self) -> u64 {
        let left = self.share.map_or(u64::MAX, |share| share - self.next.made());
        self.meter.stride(self.next.made()).min(left)
    }

    /// Notes whether a message of an open loop is late, and until when the next ones are.
    fn note_late(&mut self, due_ns: u64, late_until_ns: Option<u64>) {
        self.late_until_ns = late_until_ns.unwrap_or(self.late_until_ns);
        self.late += u64::from(due_ns < self.late_until_ns);
    }

    /// Looks at the clock after a batch was sent; whether it was the last.
    fn has_sent(&mut self, put: Ended) -> Result<bool> {
        put.or_else(|stopped| self.forgive(stopped))?;
        let now = self.meter.look(self.next.made());
        Ok(self.share.map_or(self.schedule.is_none() && self.meter.over(now), |share| self.next.made() >= share))
    }

    /// As [`Loops::produce`], no faster than the mechanism can bear.
    async fn produce_paced<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        'stream: loop {
            for _ in 0..self.batch_to_send() {
                if let Some(pacer) = &mut self.pacer {
                    pacer.wait();
                }
                match tx.put(&mut self.next).await {
                    // Of many producers on few cores some are still sending when the consumer has given up waiting.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused && self.meter.over(now_ns()) => {
                        break 'stream;
                    }
                    put => put.context("sending")?,
                }
            }
            if self.has_sent_paced() {
                break;
            }
        }
        self.produced::<M, _>(tx).await
    }

    /// As [`Loops::has_sent`], with a look at the pace.
    fn has_sent_paced(&mut self) -> bool {
        let now = self.meter.look(self.next.made());
        if let Some(pacer) = &mut self.pacer {
            pacer.look(now, self.next.made(), self.meter.warming_up());
        }
        self.share.map_or(self.meter.over(now), |share| self.next.made() >= share)
    }

    async fn produced<M: Mechanism, T: Tx>(mut self, mut tx: T) -> Result<(PartyReport, Option<Usage>)> {
        let sent = self.next.made();
        self.meter.end(sent);
        if let Some(burst) = &self.burst {
            // The channel stays open until its memory has been looked at.
            burst.set_sent();
            while !burst.is_received() {
                pause::<M>().await;
            }
        }
        if self.ends_by_close {
            tx.flush().await.context("flushing")?;
        } else {
            self.send_end(&mut tx).await?;
        }
        Ok(self.report(sent, sent, None))
    }

    async fn send_end<T: Tx>(&mut self, tx: &mut T) -> Result<()> {
        self.next.end();
        if self.lossy {
            // One of several will arrive; the receiver that has it may be gone when the others come.
            for _ in 0..LOSSY_END_MARKS {
                let _ = tx.put(&mut self.next.clone()).await;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            return Ok(());
        }
        tx.put(&mut self.next).await.context("sending the end mark")?;
        tx.flush().await.context("flushing")
    }

    /// Receives until every producer has ended.
    async fn consume<M: Mechanism, R: Rx>(mut self, mut rx: R) -> Result<(PartyReport, Option<Usage>)> {
        if let Some(burst) = &self.burst {
            while !burst.is_sent() {
                pause::<M>().await;
            }
        }
        let mut hearing = self.hear()?;
        loop {
            let count = self.batch_to_get(&mut hearing);
            let got = if M::BLOCKS {
                blocking::get(&mut rx, &mut self.seen, count)
            } else if self.cancels {
                let (got, dropped) = batch::get_dropping(&mut rx, &mut self.seen, count).await;
                self.dropped += dropped;
                got
            } else {
                batch::get(&mut rx, &mut self.seen, count).await
            };
            if self.has_received(&mut hearing, got, count)? {
                break;
            }
        }
        self.heard(hearing)
    }

    /// What a consumer begins with; a burst has been sent by then.
    fn hear(&mut self) -> Result<Hearing> {
        let mut held = None;
        if let Some(burst) = &self.burst {
            held = Some(burst.full()?);
            self.meter.resume();
        }
        let times = match self.schedule {
            Some(_) => Some(histogram()?),
            None => None,
        };
        Ok(Hearing { times, held, handled: 0, before: 0, heard_ns: now_ns() })
    }

    /// How many messages are received before the next look at the clock.
    fn batch_to_get(&self, hearing: &mut Hearing) -> u64 {
        hearing.before = self.seen.received();
        let most = match (&self.feedback, &hearing.times) {
            (_, Some(_)) => 1,
            (Some(_), _) => FEEDBACK_STRIDE,
            _ => u64::MAX,
        };
        self.meter.stride(hearing.before).min(most)
    }

    /// Looks at the clock after a batch was received; whether it was the last.
    fn has_received(&mut self, hearing: &mut Hearing, got: Ended, count: u64) -> Result<bool> {
        if self.ends_by_close && matches!(&got, Err(stopped) if stopped.at_the_end()) {
            // By count nobody knows when it is due.
            let due = self.share.is_some() || self.meter.over(now_ns());
            ensure!(due, "the stream ended while its producers were still sending");
            return Ok(true);
        }
        got.or_else(|stopped| self.forgive(stopped))?;
        if self.seen.ended() {
            return Ok(true);
        }
        let (before, received) = (hearing.before, self.seen.received());
        hearing.handled += count;
        if let (Some(burst), Some(held)) = (&self.burst, &mut hearing.held)
            && hearing.handled >= BURST
        {
            burst.empty_again(held)?;
        }
        let now = self.look_and_note(received);
        if let (Some(times), Some(schedule), true) = (&mut hearing.times, &self.schedule, received > before) {
            let (producer, number) = self.seen.last();
            let due_ns = schedule.due_ns(producer, number);
            if self.meter.covers(due_ns) {
                times.saturating_record(now.saturating_sub(due_ns));
            }
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.tell(now, self.seen.progress());
            self.note_missing();
        }
        Ok(self.silent(&mut hearing.heard_ns, now, received > before))
    }

    /// A consumer's report.
    fn heard(mut self, hearing: Hearing) -> Result<(PartyReport, Option<Usage>)> {
        let received = self.seen.received();
        self.close(received);
        self.held = hearing.held;
        let latency = match hearing.times {
            Some(times) => Some(LatencyCounts { batch: 1, counts: counts(&times)? }),
            None => None,
        };
        Ok(self.report(0, received, latency))
    }

    /// Looks at the clock, and notes what has arrived of each producer as the window opens or closes.
    fn look_and_note(&mut self, received: u64) -> u64 {
        let (warming_up, open) = (self.meter.warming_up(), self.meter.open());
        let now = self.meter.look(received);
        if (warming_up, open) != (self.meter.warming_up(), self.meter.open()) {
            self.note_received();
        }
        now
    }

    /// Closes a window that is still open.
    fn close(&mut self, received: u64) {
        if self.meter.open() {
            self.meter.end(received);
            self.note_received();
        }
    }

    /// Whether nothing has come for so long that nothing will.
    fn silent(&self, heard_ns: &mut u64, now: u64, heard: bool) -> bool {
        if heard {
            *heard_ns = now;
        }
        !heard && self.given_up(now, *heard_ns)
    }

    /// Notes what has arrived of each producer, as the window opens or closes.
    fn note_received(&mut self) {
        let counts: Vec<u64> = self.seen.progress().map(|(_, received)| received).collect();
        if counts.len() > 1 {
            self.received[usize::from(self.meter.closed())] = counts;
        }
    }

    /// Notes how many messages are missing as the window opens and as it closes.
    fn note_missing(&mut self) {
        let missing = self.seen.progress().map(|(next, received)| next.saturating_sub(received)).sum();
        if self.meter.warming_up() || self.meter.open() {
            self.missing[1] = missing;
        }
        if self.meter.warming_up() {
            self.missing[0] = missing;
        }
    }

    /// Asks and waits for the answer, over and over, and notes how long it took.
    async fn ping<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut asking = Asking { clock_ns: clock::cost_ns(), times: histogram()?, batch: 1 };
        loop {
            let left = self.share.map_or(u64::MAX, |share| share - self.next.made());
            let round_trips = asking.batch.min(left);
            let asked_ns = now_ns();
            let asked = if M::BLOCKS {
                blocking::ask(&mut ends, &mut self.next, &mut self.seen, round_trips)
            } else {
                batch::ask(&mut ends, &mut self.next, &mut self.seen, round_trips).await
            };
            let mut answered = asked.is_ok();
            asked.or_else(|stopped| self.forgive(stopped))?;
            // An answer that came late is not the answer to the question asked since.
            while self.lossy && answered && self.seen.progress().any(|(next, _)| next < self.next.made()) {
                let got = ends.rx.get(&mut self.seen).await.map_err(Stopped::Receiving);
                answered = got.is_ok();
                got.or_else(|stopped| self.forgive(stopped))?;
            }
            let now = now_ns();
            let took_ns = answered.then(|| (now - asked_ns) / round_trips.max(1));
            if self.has_asked(&mut asking, now, took_ns) {
                break;
            }
        }
        let sent = self.next.made();
        self.meter.end(sent);
        self.send_end(&mut ends.tx).await?;
        while !self.seen.ended() {
            if let Err(error) = ends.rx.get(&mut self.seen).await {
                self.forgive(Stopped::Receiving(error))?;
                break;
            }
        }
        let counts = counts(&asking.times)?;
        Ok(self.report(sent, sent, Some(LatencyCounts { batch: asking.batch, counts })))
    }

    /// Notes how long a round trip took, where it was answered; whether it was the last.
    fn has_asked(&mut self, asking: &mut Asking, now: u64, took_ns: Option<u64>) -> bool {
        let warming_up = self.meter.warming_up();
        if let Some(took_ns) = took_ns.filter(|_| !self.meter.closed()) {
            asking.times.saturating_record(took_ns.max(1));
        }
        self.meter.look_at(now, self.next.made());
        if warming_up && self.meter.open() && !asking.times.is_empty() {
            // By the middle one of the warm-up: a lucky one says nothing about the others.
            let middle_ns = asking.times.value_at_quantile(0.5) as f64;
            asking.batch = (CLOCKS_PER_SAMPLE * asking.clock_ns / middle_ns).ceil().max(1.0) as u64;
            asking.times.reset();
        }
        self.share.map_or(self.meter.closed(), |share| self.next.made() >= share)
    }

    /// Answers until the end mark, and that too.
    async fn pong<M: Mechanism, T: Tx, R: Rx>(
        mut self,
        mut ends: Duplex<T, R>,
    ) -> Result<(PartyReport, Option<Usage>)> {
        let mut heard_ns = now_ns();
        loop {
            let before = self.next.made();
            let count = self.meter.stride(before);
            let done = if M::BLOCKS {
                blocking::answer(&mut ends, &mut self.next, &mut self.seen, count)
            } else {
                batch::answer(&mut ends, &mut self.next, &mut self.seen, count).await
            };
            if self.has_answered(done, before, &mut heard_ns)? {
                break;
            }
        }
        let sent = self.next.made();
        self.meter.end(sent);
        self.send_end(&mut ends.tx).await?;
        Ok(self.report(sent, sent, None))
    }

    /// Looks at the clock after a batch was answered; whether it was the last.
    fn has_answered(&mut self, done: Ended, before: u64, heard_ns: &mut u64) -> Result<bool> {
        done.or_else(|stopped| self.forgive(stopped))?;
        if self.seen.ended() {
            return Ok(true);
        }
        let answered = self.next.made();
        let now = self.meter.look(answered);
        Ok(self.silent(heard_ns, now, answered > before))
    }

    /// Answers the questions of several until each has sent its end mark, and these too.
    async fn serve<T: Tx, R: Rx>(mut self, mut ends: Several<T, R>) -> Result<(PartyReport, Option<Usage>)> {
        let mut heard_ns = now_ns();
        let mut nexts: Vec<_> = (0..self.clients).map(|client| self.next.of(client)).collect();
        loop {
            let before = self.seen.received();
            let count = self.meter.stride(before);
            let done = blocking::serve(&mut ends, &mut nexts, &mut self.seen, count);
            if self.has_served(done, before, &mut heard_ns)? {
                break;
            }
        }
        let served = self.seen.received();
        self.close(served);
        for tx in &mut ends.txs {
            tx.flush().await.context("flushing")?;
        }
        Ok(self.report(served, served, None))
    }

    /// As [`Loops::has_answered`], of a server.
    fn has_served(&mut self, done: Ended, before: u64, heard_ns: &mut u64) -> Result<bool> {
        done.or_else(|stopped| self.forgive(stopped))?;
        if self.seen.ended() {
            return Ok(true);
        }
        let served = self.seen.received();
        let now = self.look_and_note(served);
        Ok(self.silent(heard_ns, now, served > before))
    }

    /// Lets pass what a mechanism that may lose has to live with.
    #[cold]
    fn forgive(&self, stopped: Stopped) -> Result<()> {
        let error = match stopped {
            Stopped::Sending(error) => return Err(error).context("sending"),
            Stopped::Receiving(error) => error,
        };
        // A datagram socket hears so of a peer that has had its end mark and gone.
        let passing =
            matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::ConnectionRefused);
        if self.lossy && passing { Ok(()) } else { Err(error).context("receiving") }
    }

    fn given_up(&self, now: u64, heard_ns: u64) -> bool {
        self.lossy
            && self.meter.over(now)
            && now > heard_ns + if self.share.is_some() { COUNT_QUIET_NS } else { QUIET_NS }
    }

    fn report(self, sent: u64, handled: u64, latency: Option<LatencyCounts>) -> (PartyReport, Option<Usage>) {
        let (messages, window_ns, usage) = self.meter.result();
        let receives = self.seen.received() > 0 || matches!(self.role, Role::Consumer(_)) || latency.is_some();
        let (received, faults) = if receives { self.seen.finish() } else { Default::default() };
        debug_assert!(messages <= handled);
        let longest_stall_ns = self.meter.longest_stall_ns();
        let lost = self.missing[1].saturating_sub(self.missing[0]);
        let role = self.role;
        let [opened, closed] = &self.received;
        let shares = closed.iter().zip(opened).map(|(closed, opened)| closed - opened).collect();
        let (dropped, late, held) = (self.dropped, self.late, self.held);
        let report = PartyReport {
            role,
            sent,
            received,
            faults,
            messages,
            shares,
            dropped,
            late,
            codec: None,
            held,
            lost,
            window_ns,
            longest_stall_ns,
            latency,
        };
        (report, usage)
    }
}
