//! Opens the feedback channels of a lossy mechanism, by the rendezvous. On them its consumers
//! report to its producers which messages have arrived.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use anyhow::{Context as _, Result};

use crate::case::{Case, Place, Role};
use crate::context::Ctx;
use crate::pace::{ConsumerEnd, Feedback, Pacer, ReportPort, Reports};

/// Opens the ends of the consumers and of the producers that this child runs.
///
/// # Errors
/// When the coordinator has ended, or a socket cannot be opened.
pub(super) fn open(case: &Case, role: Role, ctx: &mut Ctx) -> Result<(Vec<Feedback>, Vec<Pacer>)> {
    match role {
        Role::Producer(producer) => Ok((Vec::new(), vec![of_producer(case, producer, ctx)?])),
        Role::Consumer(consumer) => {
            let ends = (0..case.streams()).map(|producer| of_consumer(case, producer, consumer, ctx));
            Ok((vec![Feedback::new(ends.collect::<Result<_>>()?)], Vec::new()))
        }
        _ => within_child(case),
    }
}

/// The name under which a consumer publishes the producer's end.
fn name(producer: usize, consumer: usize) -> String {
    format!("feedback:{producer}:{consumer}")
}

fn of_producer(case: &Case, producer: usize, ctx: &mut Ctx) -> Result<Pacer> {
    let mut reports = Vec::new();
    for consumer in 0..case.consumers() {
        let name = name(producer, consumer);
        reports.push(if case.place == Place::OtherHost {
            let published = ctx.rendezvous.request(&name)?;
            Reports::of_port(&published).with_context(|| format!("`{name}`"))?
        } else {
            let [end]: [OwnedFd; 1] = ctx.rendezvous.request_descriptors(&name)?;
            Reports::of_socket(end.into())
        });
    }
    let pacer = pacer(case, reports);
    if case.place == Place::OtherHost {
        let link = ctx.link.as_ref().context("the assignment says nothing about the link to the other host")?;
        return Ok(pacer.over_link(link, case.payload.len()));
    }
    Ok(pacer)
}

fn of_consumer(case: &Case, producer: usize, consumer: usize, ctx: &mut Ctx) -> Result<ConsumerEnd> {
    let name = name(producer, consumer);
    if case.place == Place::OtherHost {
        let (port, published) = ReportPort::bind(ctx.rendezvous.address())?;
        ctx.rendezvous.publish(&name, &published)?;
        return Ok(ConsumerEnd::OtherHost(port));
    }
    let (ours, theirs) = socket_pair()?;
    ctx.rendezvous.publish_descriptors(&name, &[theirs.as_fd()])?;
    Ok(ConsumerEnd::SameHost(ours))
}

/// The ends of all consumers and producers, which are in this child.
fn within_child(case: &Case) -> Result<(Vec<Feedback>, Vec<Pacer>)> {
    let mut reports: Vec<Vec<Reports>> = (0..case.streams()).map(|_| Vec::new()).collect();
    let mut feedback = Vec::new();
    for _ in 0..case.consumers() {
        let mut ends = Vec::new();
        for reports in &mut reports {
            let (ours, theirs) = socket_pair()?;
            reports.push(Reports::of_socket(theirs));
            ends.push(ConsumerEnd::SameHost(ours));
        }
        feedback.push(Feedback::new(ends));
    }
    Ok((feedback, reports.into_iter().map(|reports| pacer(case, reports)).collect()))
}

fn pacer(case: &Case, reports: Vec<Reports>) -> Pacer {
    Pacer::new(reports, case.place == Place::SameCore)
}

/// Two sockets that do not block.
fn socket_pair() -> Result<(UnixDatagram, UnixDatagram)> {
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs))
}
