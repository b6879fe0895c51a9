//! The driver of a child: opens a mechanism's ends, waits for the other children and runs the loop
//! of each party.

mod asynchronous;
mod blocking;
mod open_feedback;
mod party;
mod receive;
mod reply;
mod request;
mod send;
mod serve;
mod step;
mod stream_ending;
mod turns;

use std::sync::mpsc;

use anyhow::{Context, Result, bail, ensure};

use self::party::{InstanceSetup, LoopSetup};
use self::receive::ReceiveLoop;
use self::reply::ReplyLoop;
use self::request::RequestLoop;
use self::send::SendLoop;
use self::serve::ServeLoop;
use self::step::PartyResult;
use self::turns::TurnsLoop;
use crate::burst_memory::{SharedBurst, resident};
use crate::case::{Case, Load, Role};
pub use crate::context::Ctx;
use crate::descriptors;
use crate::exchange::EXCHANGE;
use crate::executor::{Executor, Job, Threads, Work};
use crate::limits::pin_to;
use crate::loop_ends::ServerEnds;
use crate::mechanism::{AsyncRx, AsyncTransport, AsyncTx, Ends, Mechanism, Rx, Transport, Tx};
use crate::memory::MemoryProbe;
use crate::pace::Feedback;
use crate::pattern::{LoopKind, LoopPlan};
use crate::pipeline_driver::{self, PipelineEnd};
use crate::protocol::Report;
use crate::rendezvous::Rendezvous;
use crate::spec::Loss;
use crate::usage::Usage;
use crate::window::Window;

/// Opens the ends of a mechanism, waits for the other children and runs the loops of the case's
/// pattern. Blocks until all parties of this child have ended.
///
/// # Errors
/// When the mechanism cannot be opened, or when a send or a receive fails.
// An entry has one of these for each type of value. Inlined into one function they take longer to compile.
#[inline(never)]
pub fn drive<M: Transport<P>, P>(mechanism: &M, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    if role == Role::Broker || case.pattern.is_pipeline() {
        return delegate(mechanism, case, role, ctx);
    }
    let (ends, memory) = open(case, role, ctx, |rendezvous| mechanism.open(case, role, rendezvous))?;
    let loops = Loop::all(case, &ctx.cpus, ends, Loop::blocking)?;
    let lossy = is_lossy(mechanism);
    let played = ChildLoops { case, role, executor: Box::new(Threads), loops, lossy, memory: memory.start()? };
    play(played, ctx)
}

/// As [`drive`], for ends that are futures.
///
/// # Errors
/// Those of [`drive`], and when the runtime cannot be started.
#[inline(never)] // as `drive`
pub fn drive_async<M: AsyncTransport<P>, P>(mechanism: &M, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    if role == Role::Broker || case.pattern.is_pipeline() {
        return delegate(mechanism, case, role, ctx);
    }
    let (ends, memory) = open(case, role, ctx, |rendezvous| mechanism.open(case, role, rendezvous))?;
    let executor = mechanism.executor(case)?;
    let loops = Loop::all(case, &ctx.cpus, ends, Loop::of_tasks)?;
    let lossy = is_lossy(mechanism);
    let played = ChildLoops { case, role, executor, loops, lossy, memory: memory.start()? };
    play(played, ctx)
}

/// Prepares this process and opens the ends of its parties. Also returns the memory around that.
fn open<T, R>(
    case: &Case,
    role: Role,
    ctx: &mut Ctx,
    open: impl FnOnce(&mut Rendezvous) -> Result<Ends<T, R>>,
) -> Result<(Ends<T, R>, Memory)> {
    prepare(case, role, ctx)?;
    let memory = Memory::before(case)?;
    let ends = open(&mut ctx.rendezvous).context("opening")?;
    Ok((ends, memory.opened()?))
}

fn is_lossy(mechanism: &dyn Mechanism) -> bool {
    mechanism.spec().loss == Loss::BestEffort
}

/// The memory around the opening of a mechanism.
enum Memory {
    /// Of a mechanism that is measured at work.
    Working(Option<MemoryProbe>),
    /// The resident memory before a channel is opened that is filled by a burst.
    BeforeBurst(u64),
    /// How much opening that channel took.
    Opened(u64),
}

impl Memory {
    fn before(case: &Case) -> Result<Memory> {
        Ok(if case.pattern.rules().fills_before_receiving() {
            Memory::BeforeBurst(resident()?)
        } else {
            Memory::Working(MemoryProbe::before_opening())
        })
    }

    fn opened(self) -> Result<Memory> {
        match self {
            Memory::BeforeBurst(before) => Ok(Memory::Opened(resident()?.saturating_sub(before))),
            memory => Ok(memory),
        }
    }

    /// What is measured from now on. The runtime has been started: its memory is not part of a
    /// burst's.
    fn start(self) -> Result<LoopMemory> {
        Ok(match self {
            Memory::Working(probe) => LoopMemory { probe, burst: None },
            Memory::BeforeBurst(_) => unreachable!("it was opened"),
            Memory::Opened(empty) => LoopMemory { probe: None, burst: Some(SharedBurst::new(empty, resident()?)) },
        })
    }
}

/// How the loops measure memory.
#[derive(Default)]
struct LoopMemory {
    probe: Option<MemoryProbe>,
    burst: Option<SharedBurst>,
}

/// Lets a mechanism run the roles for which the harness has no loop: a broker, or a role of a
/// pipeline.
///
/// # Errors
/// Those of the mechanism.
pub(crate) fn delegate(mechanism: &dyn Mechanism, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    prepare(case, role, ctx)?;
    if role != Role::Broker {
        return play_pipeline(mechanism, case, role, ctx);
    }
    let spawned = mechanism.broker(case, &mut ctx.rendezvous)?;
    Ok(Report { parties: Vec::new(), usage: Some(ctx.rendezvous.spent().and(&spawned)), memory: None })
}

/// Runs one role of a pipeline: the mechanism makes, checks, counts and times the messages itself.
///
/// # Errors
/// Those of the mechanism.
fn play_pipeline(mechanism: &dyn Mechanism, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    let messages = pipeline_driver::messages(case, ctx.window, mechanism.pipeline_slowness(case));
    let ends = mechanism.pipeline(case, role, messages, &mut ctx.rendezvous)?;
    let usage = ctx.rendezvous.spent().and(&Usage::of_children());
    Ok(Report { parties: ends.into_iter().map(PipelineEnd::report).collect(), usage: Some(usage), memory: None })
}

/// Raises the descriptor limit. If all parties have the same core, also pins this process to that
/// core. It runs before anything is opened, so that threads and servers that the mechanism starts
/// run on that core too.
fn prepare(case: &Case, role: Role, ctx: &Ctx) -> Result<()> {
    if case.pattern.rules().opens_end_per_producer(role) {
        descriptors::raise(case.producers);
    }
    if let [Some(cpu), others @ ..] = &ctx.cpus[..]
        && others.iter().all(|other| *other == Some(*cpu))
    {
        pin_to(*cpu).with_context(|| format!("pinning to core {cpu}"))?;
    }
    Ok(())
}

/// The types of a mechanism's ends are erased here. It is a dynamic call once per instance, and
/// never per message.
type Run = Box<dyn FnOnce(LoopSetup) -> Work<PartyResult>>;

/// A loop that is ready to start.
struct Loop {
    role: Role,
    cpu: Option<usize>,
    run: Run,
}

impl Loop {
    /// The loops of a child whose mechanism opened these ends. `cpus` has the core of each party,
    /// in the order of the roles.
    ///
    /// # Errors
    /// When a party lacks an end that its pattern needs, and those of `run`.
    fn all<T, R>(
        case: &Case,
        cpus: &[Option<usize>],
        mut ends: Ends<T, R>,
        run: impl Fn(&mut Ends<T, R>, LoopKind) -> Result<Run>,
    ) -> Result<Vec<Loop>> {
        let plans = ends.plan(case.pattern)?;
        let mut loops = Vec::with_capacity(plans.len());
        for LoopPlan { role, core_of, kind } in plans {
            let cpu = cpus.get(core_of).copied().flatten();
            loops.push(Loop { role, cpu, run: run(&mut ends, kind)? });
        }
        Ok(loops)
    }

    /// A loop whose ends block.
    ///
    /// # Errors
    /// When another loop has one of its ends.
    #[inline(never)] // as `drive`
    fn blocking<T: Tx, R: Rx>(ends: &mut Ends<T, R>, kind: LoopKind) -> Result<Run> {
        Ok(match kind {
            LoopKind::Sending(at) => {
                let tx = ends.take_tx(at)?;
                on_thread(move |setup| blocking::send(tx, SendLoop::new(setup)))
            }
            LoopKind::Receiving(at) => {
                let rx = ends.take_rx(at)?;
                on_thread(move |setup| blocking::receive(rx, ReceiveLoop::new(setup)?))
            }
            LoopKind::Requesting(at) => {
                let ends = ends.take_both(at)?;
                on_thread(move |setup| blocking::request(ends, RequestLoop::new(setup)?))
            }
            LoopKind::Replying(at) => {
                let ends = ends.take_both(at)?;
                on_thread(move |setup| blocking::reply(ends, ReplyLoop::new(setup)))
            }
            LoopKind::Serving { rx, txs } => {
                let ends = ServerEnds { rx: ends.take_rx(rx)?, txs: ends.take_txs(&txs)? };
                on_thread(move |setup| blocking::serve(ends, ServeLoop::new(setup)))
            }
            LoopKind::SendingInTurn(txs) => {
                let txs = ends.take_txs(&txs)?;
                on_thread(move |setup| blocking::send_in_turn(txs, TurnsLoop::new(setup)))
            }
        })
    }

    /// A loop whose ends are futures.
    ///
    /// # Errors
    /// When there is no such loop: servers, and senders on several connections, are processes. And
    /// when another loop has one of its ends.
    #[inline(never)] // as `drive`
    fn of_tasks<T: AsyncTx, R: AsyncRx>(ends: &mut Ends<T, R>, kind: LoopKind) -> Result<Run> {
        Ok(match kind {
            LoopKind::Sending(at) => {
                let tx = ends.take_tx(at)?;
                Box::new(move |setup| Box::pin(asynchronous::send(tx, setup)))
            }
            LoopKind::Receiving(at) => {
                let rx = ends.take_rx(at)?;
                Box::new(move |setup| Box::pin(asynchronous::receive(rx, setup)))
            }
            LoopKind::Requesting(_) | LoopKind::Replying(_) if !R::ROUND_TRIPS => {
                bail!("this receiving end makes no round trips")
            }
            LoopKind::Requesting(at) => {
                let ends = ends.take_both(at)?;
                Box::new(move |setup| Box::pin(asynchronous::request(ends, setup)))
            }
            LoopKind::Replying(at) => {
                let ends = ends.take_both(at)?;
                Box::new(move |setup| Box::pin(asynchronous::reply(ends, setup)))
            }
            LoopKind::Serving { .. } => bail!("a server of several clients needs ends that block"),
            LoopKind::SendingInTurn(_) => bail!("a sender on several connections needs ends that block"),
        })
    }
}

/// A loop that blocks the thread that polls it.
fn on_thread(run: impl FnOnce(LoopSetup) -> Result<PartyResult> + Send + 'static) -> Run {
    Box::new(move |setup| Box::pin(async move { run(setup) }))
}

/// What a child runs.
struct ChildLoops<'a> {
    case: &'a Case,
    role: Role,
    executor: Box<dyn Executor>,
    loops: Vec<Loop>,
    lossy: bool,
    memory: LoopMemory,
}

/// Waits for the other children, then runs all loops of this child to their end.
fn play(ChildLoops { case, role, executor, loops, lossy, memory }: ChildLoops<'_>, ctx: &mut Ctx) -> Result<Report> {
    let window = case.pattern.rules().window(ctx.window);
    let usage_party = loops.iter().map(|one| one.role).max_by_key(|role| matches!(role, Role::Consumer(_)));
    let (feedback, pacers) = if !lossy || case.pattern.is_bidirectional() {
        Default::default()
    } else if case.load == Load::Saturated {
        open_feedback::open(case, role, ctx)?
    } else {
        // Nobody searches for a rate. The consumers count what is lost.
        ((0..case.consumers()).map(|_| Feedback::new(Vec::new())).collect(), Vec::new())
    };
    let (mut feedback, mut pacers) = (feedback.into_iter(), pacers.into_iter());
    // If messages may be lost, no party waits for one without a limit.
    let exchange = (case.pattern.is_round_trip() && !lossy).then(|| EXCHANGE.address());
    let start_ns = ctx.rendezvous.wait_at_barrier_with(exchange)?;
    let instance = InstanceSetup {
        case,
        seed: ctx.seed,
        secret: ctx.secret,
        window,
        tail_ns: ctx.tail_ns,
        start_ns,
        pauses: ctx.pauses.clone(),
        usage_party,
        lossy,
        // With a number of messages, a sender may close its end before the receiver's window has closed. Then
        // neither has its part of what they share.
        memory: memory.probe.clone().filter(|_| matches!(window, Window::Time { .. })),
        burst: memory.burst,
    };
    let (reports, received) = mpsc::channel();
    let mut jobs = Vec::new();
    for Loop { role, cpu, run } in loops {
        let mut setup = LoopSetup::new(&instance, role);
        match role {
            Role::Consumer(_) => setup.feedback = feedback.next(),
            Role::Producer(_) => setup.pacer = pacers.next(),
            _ => {}
        }
        let (running, reports) = (run(setup), reports.clone());
        let work: Work<()> = Box::pin(async move {
            let (party, usage) = running.await?;
            let is_damaged = party.faults.damaged > 0;
            let _ = reports.send((party, usage));
            // The others may wait for this one for ever.
            ensure!(!is_damaged, "a message was damaged");
            Ok(())
        });
        jobs.push(Job { name: role.to_string(), cpu, work });
    }
    drop(reports);
    let ended = executor.run(jobs);
    let mut report = Report { memory: memory.probe.and_then(|probe| probe.grown()), ..Report::default() };
    for (party, usage) in received.try_iter() {
        report.usage = report.usage.or(usage);
        report.parties.push(party);
    }
    if !report.is_damaged() {
        ended?;
    }
    report.parties.sort_by_key(|party| party.role);
    Ok(report)
}

#[cfg(test)]
mod tests;
