//! The driver of a child: opens a mechanism's ends, waits for the other children and runs the loop
//! of each party.

mod loops;
mod party;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;

use anyhow::{Context, Result, ensure};

pub(crate) use self::party::histogram;
use self::party::{Party, Setting};
use crate::burst::{Burst, resident};
use crate::case::{BURST, Case, Pattern, Place, Role};
use crate::descriptors;
use crate::exchange::EXCHANGE;
use crate::executor::{Executor, Job, Work};
use crate::limits::pin_to;
use crate::mechanism::{Ends, Mechanism, Transport};
use crate::pace::{Feedback, Pacer};
use crate::parts::{Part, parts};
use crate::pauses::Pauses;
use crate::pipeline;
use crate::protocol::{PartyReport, Report};
use crate::rendezvous::Rendezvous;
use crate::spec::{Loss, Runtime};
use crate::usage::Usage;
use crate::window::Window;

/// The parameters of an instance that a child gets besides the case.
#[derive(Debug)]
pub struct Ctx {
    /// The connection to the coordinator, through which the children of an instance find each
    /// other.
    pub rendezvous: Rendezvous,
    /// The window to measure.
    pub window: Window,
    /// The seed of the messages' contents.
    pub seed: u64,
    /// The secret with which message bodies are made. The ends of the mechanism do not get it.
    pub secret: u64,
    /// The core of each party that this child plays; see [`crate::protocol::Assignment::cpus`].
    pub cpus: Vec<Option<usize>>,
    /// The pauses of an instance that is measured in slices.
    pub pauses: Pauses,
}

/// Opens a mechanism's ends, waits for the other children and runs the loops of the case's pattern.
/// Blocks until all parties of this child have ended.
///
/// # Errors
/// When the mechanism cannot be opened, or when a send or a receive fails.
pub fn drive<M: Transport<P>, P>(mechanism: &M, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    if role == Role::Broker || case.pattern.is_pipeline() {
        return delegate(mechanism, case, role, ctx);
    }
    prepare(case, role, ctx)?;
    let bursts = case.pattern == Pattern::Burst;
    let before = if bursts { resident()? } else { 0 };
    let Ends(parties) = mechanism.open(case, role, &mut ctx.rendezvous).context("opening")?;
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
        // The runtime's memory is not part of the channel's.
        true => Some(Burst::new(opened.saturating_sub(before), resident()?)),
        false => None,
    };
    // The types of the ends are erased from here on.
    let mut starts = Vec::new();
    for Part { role, cpu, holds } in parts(case.pattern, parties, &ctx.cpus)? {
        let run: Run = Box::new(move |party| Box::pin(party.run::<M, _, _>(holds)));
        starts.push(Start { role, cpu, run });
    }
    play(case, role, ctx, executor, starts, mechanism.spec().loss == Loss::BestEffort, burst)
}

/// Lets a mechanism play the roles for which the harness has no loop: a broker, or a role of a
/// pipeline.
///
/// # Errors
/// Those of the mechanism.
pub(crate) fn delegate<M: Mechanism>(mechanism: &M, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
    prepare(case, role, ctx)?;
    if role != Role::Broker {
        return pipeline::play(mechanism, case, role, ctx);
    }
    let spawned = mechanism.broker(case, &mut ctx.rendezvous)?;
    Ok(Report { parties: Vec::new(), usage: Some(ctx.rendezvous.spent().and(&spawned)) })
}

/// Raises the descriptor limit. If all parties have the same core, also pins this process to that
/// core. It runs before anything is opened, so that threads and servers that the mechanism starts
/// run on that core too.
fn prepare(case: &Case, role: Role, ctx: &Ctx) -> Result<()> {
    descriptors::raise(case, role);
    if let [Some(cpu), others @ ..] = &ctx.cpus[..]
        && others.iter().all(|other| *other == Some(*cpu))
    {
        pin_to(*cpu).with_context(|| format!("pinning to core {cpu}"))?;
    }
    Ok(())
}

/// The loop of a party. It is a dynamic call once per instance, and never per message.
type Run = Box<dyn FnOnce(Party) -> Work<(PartyReport, Option<Usage>)>>;

/// A party that is ready to start.
struct Start {
    role: Role,
    cpu: Option<usize>,
    run: Run,
}

/// Waits for the other children, then runs all parties of this child to their end.
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
    let (feedback, pacers) = if paced { feedback(case, role, &mut ctx.rendezvous)? } else { Default::default() };
    let (mut feedback, mut pacers) = (feedback.into_iter(), pacers.into_iter());
    // Where messages may be lost, nobody waits for one for ever.
    let exchange = (case.pattern.asks() && !lossy).then(|| EXCHANGE.address());
    let start_ns = ctx.rendezvous.ready_with(exchange)?;
    let (reports, received) = mpsc::channel();
    let pauses = ctx.pauses.clone();
    let setting = Setting { case, seed: ctx.seed, secret: ctx.secret, window, start_ns, pauses, leader, lossy, burst };
    let jobs = starts.into_iter().map(|Start { role, cpu, run }| {
        let mut party = Party::new(&setting, role);
        match role {
            Role::Consumer(_) => party.feedback = feedback.next(),
            Role::Producer(_) => party.pacer = pacers.next(),
            _ => {}
        }
        let name = role.to_string();
        let reports = reports.clone();
        let running = run(party);
        let work: Work<()> = Box::pin(async move {
            let (party, usage) = running.await?;
            let is_damaged = party.faults.damaged > 0;
            let _ = reports.send((party, usage));
            // The others may wait for this one for ever.
            ensure!(!is_damaged, "a message was damaged");
            Ok(())
        });
        Job { name, cpu, work }
    });
    let jobs = jobs.collect();
    drop(reports);
    let ended = executor.run(jobs);
    let mut report = Report::default();
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

/// The window to measure. A burst always has the same number of messages.
fn window(case: &Case, ctx: &Ctx) -> Window {
    match case.pattern {
        Pattern::Burst => Window::Count { warmup: 1, messages: BURST - 1 },
        _ => ctx.window,
    }
}

/// Opens the feedback channels of a lossy mechanism. On them its consumers report to its producers
/// which messages have arrived. Returns the ends of the consumers and of the producers that this
/// child plays.
fn feedback(case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<(Vec<Feedback>, Vec<Pacer>)> {
    let yields = case.place == Place::SameCore;
    let name = |producer, consumer| format!("feedback:{producer}:{consumer}");
    if let Role::Producer(producer) = role {
        let mut ends = Vec::new();
        for consumer in 0..case.consumers() {
            let [end]: [OwnedFd; 1] = rendezvous.request_descriptors(&name(producer, consumer))?;
            ends.push(end.into());
        }
        return Ok((Vec::new(), vec![Pacer::new(ends, yields)]));
    }
    let consumers = if let Role::Consumer(index) = role { index..index + 1 } else { 0..case.consumers() };
    let mut producer_ends: Vec<Vec<UnixDatagram>> = (0..case.senders()).map(|_| Vec::new()).collect();
    let mut feedbacks = Vec::new();
    for consumer in consumers {
        let mut ends = Vec::new();
        for (producer, producer_ends) in producer_ends.iter_mut().enumerate() {
            let (ours, theirs) = UnixDatagram::pair()?;
            ours.set_nonblocking(true)?;
            theirs.set_nonblocking(true)?;
            if role == Role::All {
                producer_ends.push(theirs);
            } else {
                rendezvous.offer_descriptors(&name(producer, consumer), &[theirs.as_fd()])?;
            }
            ends.push(ours);
        }
        feedbacks.push(Feedback::new(ends));
    }
    let producer_ends = if role == Role::All { producer_ends } else { Vec::new() };
    Ok((feedbacks, producer_ends.into_iter().map(|ends| Pacer::new(ends, yields)).collect()))
}

#[cfg(test)]
mod tests;
