//! The ends of topics that cross hosts on a NATS server: a sink that publishes, and sources that
//! read the queues.
//!
//! Each has a connection of its own, so that an error of the server belongs to one of them. They
//! share a thread that reads and writes all connections. The sources are tasks of it, and their own
//! threads only wait for that. A sink waits for its ring on a thread of its own; its batches are
//! published by the shared one.
//!
//! | file | content |
//! |---|---|
//! | `connect.rs` | makes a connection: addresses, the user, TLS |
//! | `link.rs` | the connection of one connector |
//! | `state.rs` | what its events say: whether it is up, and what the server refuses |
//! | `timing.rs`, `errors.rs` | timeouts and delays; errors as text |
//! | `claim.rs` | one process for each host |
//! | `probe.rs` | what the server lacks |
//! | `setup.rs` | streams and their consumers |
//! | `interest.rs` | whether the replicas of a stream know its consumers |
//! | `publish.rs` | the sink |
//! | `pack.rs` | several messages in one |
//! | `store.rs` | how the sink publishes to a stream, in order |
//! | `subscribe.rs` | the source of a topic that is delivered at most once |
//! | `consume.rs` | the source of a topic that is delivered at least once |
//! | `pull.rs` | its requests for messages |
//! | `unacked.rs` | its messages that are not acknowledged |
//! | `version.rs` | the oldest server that is supported |
//! | `settle.rs` | when a message may be acknowledged |

mod claim;
mod connect;
mod consume;
mod errors;
mod interest;
mod link;
mod pack;
pub(super) mod probe;
mod publish;
mod pull;
mod settle;
mod setup;
mod state;
mod store;
mod subscribe;
mod timer;
mod timing;
mod unacked;
mod version;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;

use self::link::{Io, Link, Signal};
use super::Work;
use super::inlet::Inlet;
use super::outlet::{Outlet, Stop};
use super::remote::RemoteEnd;
use crate::config::{Delivery, End, Nats, NatsTopic, Pipeline, Topology, encoded};
use crate::supervisor::Fabric;

/// The settings of the server, and the connections of the connectors.
pub(super) struct Server {
    nats: Nats,
    host: String,
    /// By the names of the connectors. Each takes its own when it starts.
    links: HashMap<String, Link>,
}

impl Server {
    /// Connects all ends at once, and claims the host's name. Blocks for some seconds if no server
    /// answers, which is no error: the connections are made later.
    ///
    /// # Errors
    ///
    /// If the server refuses a connection or a stream. If another process runs the host. If the
    /// system has no thread or file descriptor left.
    pub(super) fn connect(nats: Nats, host: String, ends: &[RemoteEnd]) -> Result<Server> {
        let io = Io::start()?;
        let links = io.block_on(connect_all(&nats, &host, &io, ends))?;
        Ok(Server { nats, host, links })
    }

    fn take(&mut self, name: &str) -> Result<Link> {
        self.links.remove(name).context("it has no connection")
    }

    /// The work of a sink that publishes a topic.
    ///
    /// # Errors
    ///
    /// If it has no connection.
    pub(super) fn sink(&mut self, name: &str, topic: &NatsTopic, inlet: Inlet, stop: &Arc<Stop>) -> Result<Work> {
        let link = self.take(name)?;
        let (nats, topic, stop) = (self.nats.clone(), topic.clone(), Signal::of(stop));
        let publisher = publish::Sender::new(link, nats, topic, &encoded(&self.host), stop);
        Ok(Box::new(move || publisher.run(inlet)))
    }

    /// The work of a source that reads a queue of a topic.
    ///
    /// # Errors
    ///
    /// If it has no connection, or its rings cannot be mapped.
    pub(super) fn source(&mut self, queue: &str, ends: SourceEnds<'_>, outlet: Outlet) -> Result<Work> {
        let SourceEnds { end, name, topic, stop, drain, pipeline, topology, fabric } = ends;
        let link = self.take(name)?;
        let (drain, stop) = (Signal::of(drain), Signal::of(stop));
        let (topic, queue) = (topic.clone(), queue.to_owned());
        let own = settle::own_ring(end, topology, fabric)?;
        let io = link.io();
        match topic.delivery {
            Delivery::AtMostOnce => {
                let source = subscribe::Source::new(link, outlet, own);
                Ok(Box::new(move || io.run(source.run(topic.subject, queue, drain))))
            }
            Delivery::AtLeastOnce => {
                let barrier = settle::Barrier::open(end, pipeline, topology, fabric);
                let barrier = barrier.context("cannot open the rings of the pipeline")?;
                let consumer = consume::Consumer::new(link, self.nats.clone(), topic, queue, outlet, own, barrier);
                Ok(Box::new(move || io.run(consumer.run(drain, stop))))
            }
        }
    }
}

/// The connections of all ends, by their names.
async fn connect_all(nats: &Nats, host: &str, io: &Arc<Io>, ends: &[RemoteEnd]) -> Result<HashMap<String, Link>> {
    let cannot = |end: &RemoteEnd| format!("cannot start `{}`", end.name);
    let links = try_join_all(ends.iter().map(async |end| {
        let link = Link::connect(nats, &format!("{host}/{}", end.name), io, &end.problem).await;
        link.with_context(|| cannot(end))
    }));
    let links = links.await?;
    if let Some(first) = links.first() {
        claim::claim(first, nats, host).await?;
    }
    try_join_all(
        ends.iter()
            .zip(&links)
            .map(async |(end, link)| prepare(link, nats, &end.topic).await.with_context(|| cannot(end))),
    )
    .await?;
    Ok(ends.iter().map(|end| end.name.clone()).zip(links).collect())
}

/// Prepares what a topic needs on the server.
async fn prepare(link: &Link, nats: &Nats, topic: &NatsTopic) -> Result<()> {
    if topic.delivery == Delivery::AtLeastOnce {
        setup::prepare_at_start(link, nats, topic).await?;
    }
    link.check_max_payload(topic)
}

/// What a source is made of.
pub(super) struct SourceEnds<'a> {
    pub(super) end: End,
    pub(super) name: &'a str,
    pub(super) topic: &'a NatsTopic,
    pub(super) stop: &'a Arc<Stop>,
    pub(super) drain: &'a Arc<Stop>,
    pub(super) pipeline: &'a Pipeline,
    pub(super) topology: &'a Topology,
    pub(super) fabric: &'a Fabric,
}
