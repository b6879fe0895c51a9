//! The ends of topics that cross hosts on a NATS server: a sink that publishes, and sources that
//! read the queues.
//!
//! Each has a connection of its own, so that an error of the server belongs to one of them. They
//! share a thread that reads and writes all connections.
//!
//! | file | content |
//! |---|---|
//! | `link.rs` | a connection: reconnection, and what the server refuses |
//! | `claim.rs` | one process for each host |
//! | `probe.rs` | what the server lacks |
//! | `setup.rs` | streams and their consumers |
//! | `publish.rs` | the sink |
//! | `subscribe.rs` | the source of a topic that is delivered at most once |
//! | `consume.rs` | the source of a topic that is delivered at least once |
//! | `settle.rs` | when a message may be acknowledged |

mod claim;
mod consume;
mod link;
pub(super) mod probe;
mod publish;
mod settle;
mod setup;
mod subscribe;

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Context, Result};

use self::link::{Io, Link, Signal};
use super::Work;
use super::inlet::Inlet;
use super::outlet::{Outlet, Stop};
use super::problem::Problem;
use crate::config::{Delivery, End, Nats, NatsTopic, Pipeline, Topology, encoded};
use crate::supervisor::Fabric;

/// The settings of the server, and the thread of all connections.
pub(super) struct Server {
    nats: Nats,
    host: String,
    /// Whether a connection has been made that claims the host.
    is_claimed: Cell<bool>,
    io: Arc<Io>,
}

impl Server {
    /// The server of a pipeline, if it has one. Does not connect.
    ///
    /// # Errors
    ///
    /// If the system has no thread or file descriptor left.
    pub(super) fn of(pipeline: &Pipeline) -> Result<Option<Server>> {
        let Some(nats) = pipeline.nats.clone() else { return Ok(None) };
        let host = pipeline.host.clone().unwrap_or_default();
        Ok(Some(Server { nats, host, is_claimed: Cell::new(false), io: Io::start()? }))
    }

    fn connect(&self, name: &str, topic: &NatsTopic, problem: &Arc<Problem>) -> Result<Link> {
        let link = Link::open(&self.nats, &format!("{}/{name}", self.host), &self.io, problem)?;
        if !self.is_claimed.replace(true) {
            claim::claim(&link, &self.nats, &self.host)?;
        }
        if topic.delivery == Delivery::AtLeastOnce {
            link.first_setup(&self.nats, topic)?;
        }
        link.check_max_payload(topic)?;
        Ok(link)
    }

    /// The work of a sink that publishes a topic. Connects.
    ///
    /// # Errors
    ///
    /// If the server refuses the connection or the stream. A server that cannot be reached is no
    /// error: the work waits for it.
    pub(super) fn sink(
        &self,
        name: &str,
        topic: &NatsTopic,
        inlet: Inlet,
        stop: &Arc<Stop>,
        problem: &Arc<Problem>,
    ) -> Result<Work> {
        let link = self.connect(name, topic, problem)?;
        let (nats, topic, stop) = (self.nats.clone(), topic.clone(), Signal::of(stop));
        let publisher = publish::Sender::new(link, nats, topic, &encoded(&self.host), stop);
        Ok(Box::new(move || publisher.run(inlet)))
    }

    /// The work of a source that reads a queue of a topic. Connects.
    ///
    /// # Errors
    ///
    /// As [`Server::sink`].
    pub(super) fn source(&self, queue: &str, ends: SourceEnds<'_>, outlet: Outlet) -> Result<Work> {
        let SourceEnds { end, name, topic, stop, drain, problem, pipeline, topology, fabric } = ends;
        let link = self.connect(name, topic, problem)?;
        let (drain, stop) = (Signal::of(drain), Signal::of(stop));
        let (topic, queue) = (topic.clone(), queue.to_owned());
        match topic.delivery {
            Delivery::AtMostOnce => Ok(Box::new(move || subscribe::run(&link, &topic, &queue, outlet, &drain))),
            Delivery::AtLeastOnce => {
                let barrier = settle::Barrier::open(end, pipeline, topology, fabric);
                let barrier = barrier.context("cannot open the rings of the pipeline")?;
                let own = settle::own_ring(end, topology, fabric)?;
                let consumer = consume::Consumer::new(link, self.nats.clone(), topic, queue, outlet, own, barrier);
                Ok(Box::new(move || consumer.run(&drain, &stop)))
            }
        }
    }
}

/// What a source is made of.
pub(super) struct SourceEnds<'a> {
    pub(super) end: End,
    pub(super) name: &'a str,
    pub(super) topic: &'a NatsTopic,
    pub(super) stop: &'a Arc<Stop>,
    pub(super) drain: &'a Arc<Stop>,
    pub(super) problem: &'a Arc<Problem>,
    pub(super) pipeline: &'a Pipeline,
    pub(super) topology: &'a Topology,
    pub(super) fabric: &'a Fabric,
}
