//! Watches external sources and sinks: counts their messages, and detects their end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use estafette_ipc::group::{Counters as RingCounters, RingControl};

use super::outlet::{Stop, Waited};
use crate::config::{End, Topology};
use crate::counters::{Counter, Counters};
use crate::external::{Holder, LeaseWatch};
use crate::supervisor::Fabric;

/// The interval at which the rings are checked.
const LOOK: Duration = Duration::from_millis(20);

/// Watches the rings and the holder of an external end.
pub(super) struct RingWatch {
    end: End,
    lease: Arc<LeaseWatch>,
    rings: Vec<RingControl>,
    stop: Arc<Stop>,
    counters: Arc<Counters>,
}

impl RingWatch {
    pub(super) fn open(
        end: End,
        lease: &Arc<LeaseWatch>,
        topology: &Topology,
        fabric: &Fabric,
        stop: &Arc<Stop>,
        counters: &Arc<Counters>,
    ) -> Result<RingWatch> {
        let rings: Vec<usize> = match topology.membership(end) {
            Some(place) => topology.groups[place.group].rings.clone(),
            None => (0..topology.rings.len()).filter(|ring| topology.rings[*ring].producer == end).collect(),
        };
        let control = |ring| RingControl::open(fabric.ring(ring), fabric.bell(topology.rings[ring].group));
        let rings = rings.into_iter().map(control).collect::<Result<_, _>>()?;
        let lease = Arc::clone(lease);
        Ok(RingWatch { end, lease, rings, stop: Arc::clone(stop), counters: Arc::clone(counters) })
    }

    /// Waits until the end has ended. A source ends once all of its rings are closed, a sink once
    /// they are also drained. Both end when they must stop, or when their holder closes them.
    ///
    /// # Errors
    ///
    /// If the holder died without closing the end.
    pub(super) fn run(&self) -> Result<()> {
        let is_source = matches!(self.end, End::Source(_));
        loop {
            let waited = self.stop.wait(Some(&self.lease), Some(LOOK))?;
            // The holder is checked first: all that it did before its end is then visible in the
            // rings.
            let holder = self.lease.holder();
            let is_ended = self.rings.iter().all(|ring| ring.is_closed() && (is_source || ring.is_drained()));
            self.count(is_source);
            if is_ended || waited == Waited::Stopped {
                return Ok(());
            }
            match holder {
                Holder::Present => {}
                Holder::Closed => return Ok(()),
                Holder::Dead => bail!("its holder died without closing it"),
            }
        }
    }

    fn count(&self, is_source: bool) {
        let of = |count: fn(&RingCounters) -> u64| self.rings.iter().map(move |ring| count(&ring.counters()));
        if is_source {
            // A message is sent to the ring of every group, so the maximum counts it once.
            self.counters.set(Counter::SentMessages, of(|ring| ring.published).max().unwrap_or(0));
        } else {
            self.counters.set(Counter::ReceivedMessages, of(|ring| ring.acked).sum());
        }
    }
}
