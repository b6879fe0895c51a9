//! Looks at the server of a pipeline, and changes nothing there.

use std::sync::Arc;

use anyhow::Result;

use super::super::problem::Problem;
use super::link::{Io, Link};
use super::setup;
use crate::config::{Delivery, Nats, NatsTopic, Pipeline};

/// What the server of a pipeline lacks for the topics that cross hosts, one line each.
///
/// # Errors
///
/// If the server cannot be asked: it cannot be reached, or refuses the connection.
pub(crate) fn missing(pipeline: &Pipeline) -> Result<Vec<String>> {
    let (Some(nats), crossings) = (&pipeline.nats, pipeline.crossings()) else { return Ok(Vec::new()) };
    if crossings.is_empty() {
        return Ok(Vec::new());
    }
    let problem = Arc::new(Problem::new("check"));
    let link = Link::open(nats, "check", &Io::start()?, &problem)?;
    if let (false, Some(problem)) = (link.is_up(), problem.get()) {
        anyhow::bail!("{problem}");
    }
    let topics = crossings.iter().map(|crossing| pipeline.nats_topic(nats, crossing));
    Ok(topics.flat_map(|topic| missing_of(&link, nats, &topic)).collect())
}

fn missing_of(link: &Link, nats: &Nats, topic: &NatsTopic) -> Vec<String> {
    let mut missing: Vec<_> = link.check_max_payload(topic).err().map(|error| error.to_string()).into_iter().collect();
    if topic.delivery == Delivery::AtLeastOnce {
        missing.extend(link.block_on(setup::missing(link, nats, topic)));
    }
    missing
}
