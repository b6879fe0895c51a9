//! The server of topics that cross hosts. Builds without the feature `nats` have none.

use std::sync::Arc;

use anyhow::Result;

use super::inlet::Inlet;
#[cfg(feature = "nats")]
use super::nats;
use super::outlet::Outlet;
use super::problem::Problem;
use super::{Connector, Work};
use crate::config::{End, NatsTopic, Pipeline, SinkKind, SourceKind, Topology};
use crate::supervisor::Fabric;

/// A connector that needs a connection.
#[cfg_attr(not(feature = "nats"), allow(dead_code))]
pub(super) struct RemoteEnd {
    pub(super) name: String,
    pub(super) topic: NatsTopic,
    pub(super) problem: Arc<Problem>,
}

impl RemoteEnd {
    /// None if the connector needs no connection.
    pub(super) fn of(end: End, name: &str, problem: &Arc<Problem>, pipeline: &Pipeline) -> Option<RemoteEnd> {
        let topic = match end {
            End::Source(at) => match &pipeline.sources[at].kind {
                SourceKind::Nats { topic, .. } => topic,
                _ => return None,
            },
            End::Sink(at) => match &pipeline.sinks[at].kind {
                SinkKind::Nats(topic) => topic,
                _ => return None,
            },
            End::Function { .. } | End::Stream(_) => return None,
        };
        Some(RemoteEnd { name: name.to_owned(), topic: topic.clone(), problem: Arc::clone(problem) })
    }
}

/// The connectors of a pipeline that need a connection, before they are connected.
pub(crate) struct RemoteEnds {
    #[cfg(feature = "nats")]
    nats: Option<crate::config::Nats>,
    #[cfg(feature = "nats")]
    host: String,
    ends: Vec<RemoteEnd>,
}

/// The connections of a pipeline.
pub(crate) struct Connections {
    #[cfg(feature = "nats")]
    nats: Option<nats::Server>,
}

impl RemoteEnds {
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(feature = "nats")]
impl RemoteEnds {
    pub(super) fn new(pipeline: &Pipeline, ends: Vec<RemoteEnd>) -> RemoteEnds {
        RemoteEnds { nats: pipeline.nats.clone(), host: pipeline.host.clone().unwrap_or_default(), ends }
    }

    /// Connects all of them. Blocks for some seconds if no server answers, which is no error.
    ///
    /// # Errors
    ///
    /// If the server refuses a connection or a stream. If another process runs the host.
    pub(crate) fn connect(self) -> Result<Connections> {
        let nats = match self.nats {
            Some(nats) if !self.ends.is_empty() => Some(nats::Server::connect(nats, self.host, &self.ends)?),
            _ => None,
        };
        Ok(Connections { nats })
    }
}

#[cfg(feature = "nats")]
impl Connections {
    fn server(&mut self) -> Result<&mut nats::Server> {
        anyhow::Context::context(self.nats.as_mut(), "the pipeline has no NATS server")
    }

    /// The work of a sink that publishes a topic.
    ///
    /// # Errors
    ///
    /// If it is not connected.
    pub(super) fn sink(&mut self, connector: &Connector, topic: &NatsTopic, inlet: Inlet) -> Result<Work> {
        self.server()?.sink(&connector.name, topic, inlet, &connector.stop)
    }

    /// The work of a source that reads a queue of a topic.
    ///
    /// # Errors
    ///
    /// If it is not connected, or its rings cannot be mapped.
    pub(super) fn source(
        &mut self,
        connector: &Connector,
        topic: &NatsTopic,
        queue: &str,
        outlet: Outlet,
        (pipeline, topology, fabric): (&Pipeline, &Topology, &Fabric),
    ) -> Result<Work> {
        let Connector { end, name, stop, .. } = connector;
        let drain = connector.drain.as_ref().unwrap_or(stop);
        let ends = nats::SourceEnds { end: *end, name, topic, stop, drain, pipeline, topology, fabric };
        self.server()?.source(queue, ends, outlet)
    }
}

#[cfg(not(feature = "nats"))]
impl RemoteEnds {
    pub(super) fn new(_: &Pipeline, ends: Vec<RemoteEnd>) -> RemoteEnds {
        RemoteEnds { ends }
    }

    /// Does nothing.
    ///
    /// # Errors
    ///
    /// If there are any: this build cannot connect them.
    pub(crate) fn connect(self) -> Result<Connections> {
        self.ends.first().map_or(Ok(Connections {}), |end| Err(without_nats(&end.topic)))
    }
}

#[cfg(not(feature = "nats"))]
impl Connections {
    pub(super) fn sink(&mut self, _: &Connector, topic: &NatsTopic, _: Inlet) -> Result<Work> {
        Err(without_nats(topic))
    }

    pub(super) fn source(
        &mut self,
        _: &Connector,
        topic: &NatsTopic,
        _: &str,
        _: Outlet,
        _: (&Pipeline, &Topology, &Fabric),
    ) -> Result<Work> {
        Err(without_nats(topic))
    }
}

#[cfg(not(feature = "nats"))]
fn without_nats(topic: &NatsTopic) -> anyhow::Error {
    anyhow::anyhow!(
        "the topic `{}` has `transport: nats`, and this program was built without it; build it with the feature `nats` of \
         the crate `estafette-flow` (of the command: `flow-nats`)",
        topic.topic
    )
}

/// What the NATS server of a pipeline lacks for its topics that cross hosts, one line each: streams
/// and consumers that do not exist yet, or what does not fit. Changes nothing on the server. Blocks
/// for some seconds if the server does not answer.
///
/// # Errors
///
/// If the server cannot be reached, or refuses the connection. If the build has no feature `nats`
/// and a topic crosses.
pub fn missing_on_server(pipeline: &Pipeline) -> Result<Vec<String>> {
    #[cfg(feature = "nats")]
    return nats::probe::missing(pipeline);
    #[cfg(not(feature = "nats"))]
    match (&pipeline.nats, pipeline.crossings().first()) {
        (Some(nats), Some(crossing)) => Err(without_nats(&pipeline.nats_topic(nats, crossing))),
        _ => Ok(Vec::new()),
    }
}
