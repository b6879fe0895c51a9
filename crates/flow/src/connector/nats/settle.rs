//! When a message may be acknowledged to the server.
//!
//! The reader of a queue acknowledges a message to its ring after it has sent what follows from it.
//! That then lies in rings of this host, whose memory is lost if the host is. So the message is
//! acknowledged to the server only when everything that its reader sent has left the host too, or
//! has been processed by a sink.
//!
//! The messages of a ring that were published before a moment have left it when its head has passed
//! the tail of that moment. What their reader sent lies in the next ring by then. So the *barrier*
//! repeats this once for each ring that a message can pass, in rounds. Only topics that are
//! delivered at least once count: the others may lose messages.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use estafette_ipc::group::RingControl;

use crate::config::{Delivery, End, Feed, Pipeline, SourceKind, Topology};
use crate::supervisor::Fabric;

/// The ring to the readers of a source's queue.
pub(super) fn own_ring(end: End, topology: &Topology, fabric: &Fabric) -> Result<RingControl> {
    let rings = topology.producer(end).and_then(|producer| producer.outputs.first()).map(|output| &output.rings);
    let ring = *rings.and_then(|rings| rings.first()).context("its queue has no reader")?;
    Ok(RingControl::open(fabric.ring(ring), fabric.bell(topology.rings[ring].group))?)
}

/// All rings of a host whose messages must not be lost, except those of sources from the server.
pub(super) struct Barrier {
    rings: Vec<RingControl>,
    rounds: usize,
}

/// Whether a ring holds messages that the server has not forgotten.
fn is_from_server(producer: End, feed: Feed, pipeline: &Pipeline, topology: &Topology) -> bool {
    let End::Source(at) = producer else { return false };
    let queue = topology.producer(producer).and_then(|producer| producer.outputs.first());
    matches!(pipeline.sources[at].kind, SourceKind::Nats { .. }) && queue.is_some_and(|queue| queue.feed == feed)
}

/// A moment, and how many rounds of the barrier have passed since.
#[derive(Debug)]
pub(super) struct Moment {
    tails: Vec<u64>,
    rounds: usize,
}

impl Barrier {
    /// The barrier of a host.
    ///
    /// # Errors
    ///
    /// If memory or file descriptors are exhausted.
    pub(super) fn open(pipeline: &Pipeline, topology: &Topology, fabric: &Fabric) -> Result<Barrier> {
        let mut rings = Vec::new();
        let mut topics = BTreeSet::new();
        for (at, ring) in topology.rings.iter().enumerate() {
            let feed = topology.groups[ring.group].feed;
            let is_kept = topology.policies(pipeline, feed).delivery == Delivery::AtLeastOnce;
            if is_kept && !is_from_server(ring.producer, feed, pipeline, topology) {
                topics.insert(feed);
                rings.push(RingControl::open(fabric.ring(at), fabric.bell(ring.group))?);
            }
        }
        // A message passes each topic once at most, or a loop of them, in which it is somewhere for
        // as long as the loop turns.
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
