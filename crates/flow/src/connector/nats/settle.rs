//! When a message may be acknowledged to the server.
//!
//! The reader of a queue acknowledges a message to its ring after it has sent what follows from it.
//! That then lies in rings of this host, whose memory is lost if the host is. So the message is
//! acknowledged to the server only when everything that its reader sent has left the host too, or
//! has been processed by a sink.
//!
//! The messages of a ring that were published before a moment have left it when its head has passed
//! the tail of that moment. What their reader sent lies in the next ring by then. So the *barrier*
//! repeats this once for each topic that a message can pass, in rounds. It has only the rings that
//! a message of this source can reach: another ring may wait for this acknowledgement. Only topics
//! that are delivered at least once count: the others may lose messages.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use estafette_ipc::group::RingControl;

use crate::config::{Delivery, End, Feed, Pipeline, Topology};
use crate::supervisor::Fabric;

/// The ring to the readers of a source's queue.
pub(super) fn own_ring(end: End, topology: &Topology, fabric: &Fabric) -> Result<RingControl> {
    let rings = topology.producer(end).and_then(|producer| producer.outputs.first()).map(|output| &output.rings);
    let ring = *rings.and_then(|rings| rings.first()).context("its queue has no reader")?;
    Ok(RingControl::open(fabric.ring(ring), fabric.bell(topology.rings[ring].group))?)
}

/// The rings that a message of a source can reach, and must not be lost in.
pub(super) struct Barrier {
    rings: Vec<RingControl>,
    rounds: usize,
}

/// The rings that what follows from a message of a source can reach, each with its topic: from the
/// readers of its queue, and from the readers of the dead letters that the source itself sends.
fn reachable(source: End, pipeline: &Pipeline, topology: &Topology) -> BTreeMap<usize, Feed> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::from([source]);
    let mut producers = vec![source];
    let own: &[usize] = topology.producer(source).and_then(|it| it.outputs.first()).map_or(&[], |queue| &queue.rings);
    while let Some(end) = producers.pop() {
        let Some(producer) = topology.producer(end) else { continue };
        for output in producer.outputs.iter().chain(&producer.answers).chain(&producer.dead_letter) {
            if topology.policies(pipeline, output.feed).delivery != Delivery::AtLeastOnce {
                continue;
            }
            for ring in &output.rings {
                // The server has not forgotten the messages of the source's own ring.
                if !own.contains(ring) {
                    found.insert(*ring, output.feed);
                }
                let readers = &topology.groups[topology.rings[*ring].group].members;
                producers.extend(readers.iter().filter(|reader| seen.insert(**reader)));
            }
        }
    }
    found
}

/// A moment, and how many rounds of the barrier have passed since.
#[derive(Debug)]
pub(super) struct Moment {
    tails: Vec<u64>,
    rounds: usize,
}

impl Barrier {
    /// The barrier of a source.
    ///
    /// # Errors
    ///
    /// If memory or file descriptors are exhausted.
    pub(super) fn open(source: End, pipeline: &Pipeline, topology: &Topology, fabric: &Fabric) -> Result<Barrier> {
        let mut rings = Vec::new();
        let reachable = reachable(source, pipeline, topology);
        for ring in reachable.keys() {
            rings.push(RingControl::open(fabric.ring(*ring), fabric.bell(topology.rings[*ring].group))?);
        }
        // A message passes each topic once at most, or a loop of them, in which it is somewhere for
        // as long as the loop turns.
        let topics: BTreeSet<_> = reachable.into_values().collect();
        Ok(Barrier { rings, rounds: topics.len() })
    }

    /// The current moment.
    pub(super) fn now(&self) -> Moment {
        Moment { tails: self.tails(), rounds: 0 }
    }

    /// Whether everything that was sent before a moment, and what followed from it, has left the
    /// host. Call it again if not.
    pub(super) fn has_passed(&self, moment: &mut Moment) -> bool {
        while moment.rounds < self.rounds {
            let mut rings = self.rings.iter().zip(&moment.tails);
            if !rings.all(|(ring, tail)| ring.positions().head >= *tail) {
                return false;
            }
            *moment = Moment { tails: self.tails(), rounds: moment.rounds + 1 };
        }
        true
    }

    fn tails(&self) -> Vec<u64> {
        self.rings.iter().map(|ring| ring.positions().tail).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{CheckedHost, Options, check};

    const YAML: &str = "
hosts: [edge, center]
nats: { servers: ['nats://127.0.0.1:4222'], prefix: t }
functions:
  - { name: on, on: edge, module: { path: forward.wat }, input: { topic: done }, output: { topics: [last, lossy] } }
  - { name: loses, on: edge, module: { path: forward.wat }, input: { topic: lossy }, output: { topics: [beyond] } }
sources:
  - { name: in, on: edge, timer: { every: 1s }, output: { topics: [raw] } }
  - { name: in2, on: center, timer: { every: 1s }, output: { topics: [done] } }
sinks:
  - { name: far, on: center, input: { topic: raw }, file: { path: far.txt } }
  - { name: out, on: edge, input: { topic: last }, file: { path: out.txt } }
  - { name: end, on: edge, input: { topic: beyond }, file: { path: end.txt } }
  - { name: dead, on: edge, input: { topic: dead }, file: { path: dead.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once }
  done: { transport: nats, delivery: at-least-once, dead_letter: dead }
  last: { delivery: at-least-once }
  beyond: { delivery: at-least-once }
  dead: { delivery: at-least-once }
";

    /// The ring of `raw` is full until the other host acknowledges, which may wait for this host.
    #[test]
    fn a_barrier_has_only_rings_that_a_message_of_its_source_can_reach() {
        let folder = tempfile::tempdir().unwrap();
        let forward = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/wat/forward.wat");
        std::fs::copy(forward, folder.path().join("forward.wat")).unwrap();
        let file = folder.path().join("pipeline.yml");
        std::fs::write(&file, YAML).unwrap();
        let checked = check(&file, &Options { host: CheckedHost::Named("edge"), ..Options::default() });
        let part = checked.pipeline.unwrap_or_else(|| panic!("{:?}", checked.diagnostics)).part("edge").unwrap();
        let topology = Topology::of(&part);
        let at = part.sources.iter().position(|source| source.name == "nats:done:all").unwrap();
        let rings = reachable(End::Source(at), &part, &topology);
        let mut topics: Vec<_> = rings
            .values()
            .map(|feed| match feed {
                Feed::Topic(topic) => topology.topics[*topic].as_str(),
                _ => panic!("{feed:?}"),
            })
            .collect();
        topics.sort_unstable();
        assert_eq!(topics, ["dead", "dead", "last"], "of the function, and of the source");
    }
}
