//! Access to external ends for the embedding program.

use anyhow::{Context, Result};

use super::{Supervisor, start};
use crate::config::{End, SinkKind, SourceKind};
use crate::external::ExternalEnd;

impl Supervisor {
    /// Takes the end of the source with this name, which must be of the kind
    /// [`SourceKind::External`]. The end can be [opened](crate::external) in this process or
    /// another. It can be taken once.
    ///
    /// # Errors
    ///
    /// If there is no such source, it was taken before, or no file descriptor is left.
    pub fn external_source(&mut self, name: &str) -> Result<ExternalEnd> {
        let mut sources = self.pipeline.sources.iter();
        let at = sources.position(|source| source.name == name && source.kind == SourceKind::External);
        self.external(End::Source(at.with_context(|| format!("no external source is called `{name}`"))?), name)
    }

    /// Takes the end of the sink with this name, which must be of the kind [`SinkKind::External`].
    /// The end can be [opened](crate::external) in this process or another. It can be taken once.
    ///
    /// # Errors
    ///
    /// If there is no such sink, it was taken before, or no file descriptor is left.
    pub fn external_sink(&mut self, name: &str) -> Result<ExternalEnd> {
        let mut sinks = self.pipeline.sinks.iter();
        let at = sinks.position(|sink| sink.name == name && sink.kind == SinkKind::External);
        self.external(End::Sink(at.with_context(|| format!("no external sink is called `{name}`"))?), name)
    }

    fn external(&mut self, end: End, name: &str) -> Result<ExternalEnd> {
        let parts = start::external(end, &self.pipeline, &self.topology, &self.fabric);
        let (plan, rings) = parts.context("no descriptor is left")?;
        let lease = self.connectors.take_lease(end);
        let lease = lease.with_context(|| format!("the external end `{name}` was taken before"))?;
        Ok(ExternalEnd::new(plan, lease, rings))
    }
}
