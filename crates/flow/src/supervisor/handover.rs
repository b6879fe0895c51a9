//! Gives away the ends that the embedding program holds.

use anyhow::{Context, Result};

use super::{Supervisor, start};
use crate::config::{End, SinkKind, SourceKind};
use crate::external::ExternalEnd;

impl Supervisor {
    /// The end that is the source of this name, of the kind [`SourceKind::External`]: to be
    /// [opened](crate::external) in this process or another. It is given away once.
    ///
    /// # Errors
    ///
    /// If there is no such source, it was given away before, or no descriptor is left.
    pub fn external_source(&mut self, name: &str) -> Result<ExternalEnd> {
        let mut sources = self.pipeline.sources.iter();
        let at = sources.position(|source| source.name == name && source.kind == SourceKind::External);
        self.external(End::Source(at.with_context(|| format!("no external source is called `{name}`"))?), name)
    }

    /// The end that is the sink of this name, of the kind [`SinkKind::External`]: to be
    /// [opened](crate::external) in this process or another. It is given away once.
    ///
    /// # Errors
    ///
    /// If there is no such sink, it was given away before, or no descriptor is left.
    pub fn external_sink(&mut self, name: &str) -> Result<ExternalEnd> {
        let mut sinks = self.pipeline.sinks.iter();
        let at = sinks.position(|sink| sink.name == name && sink.kind == SinkKind::External);
        self.external(End::Sink(at.with_context(|| format!("no external sink is called `{name}`"))?), name)
    }

    fn external(&mut self, end: End, name: &str) -> Result<ExternalEnd> {
        let parts = start::external(end, &self.pipeline, &self.topology, &self.fabric);
        let (plan, rings) = parts.context("no descriptor is left")?;
        let lease = self.connectors.take_lease(end);
        let lease = lease.with_context(|| format!("the external end `{name}` was given away before"))?;
        Ok(ExternalEnd::new(plan, lease, rings))
    }
}
