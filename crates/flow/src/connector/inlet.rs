//! The input of a sink.

use std::sync::Arc;

use anyhow::Result;
use estafette_ipc::WaitMode;
use estafette_ipc::group::{ClaimError, Member};

use super::outlet::Stop;
use crate::config::{End, Pipeline, Topology};
use crate::counters::{Counter, Counters};
use crate::supervisor::Fabric;

/// The maximum bytes and messages that a sink claims at once.
const BATCH: (usize, usize) = (256 << 10, 4096);

/// The topic that a sink reads.
pub(super) struct Inlet {
    member: Member,
    counters: Arc<Counters>,
    max_message: usize,
}

impl Inlet {
    pub(super) fn open(
        end: End,
        pipeline: &Pipeline,
        topology: &Topology,
        fabric: &Fabric,
        stop: &Arc<Stop>,
        counters: &Arc<Counters>,
    ) -> Result<Inlet> {
        let place = topology.membership(end).ok_or_else(|| anyhow::anyhow!("it has no input"))?;
        let group = &topology.groups[place.group];
        let policies = topology.policies(pipeline, group.feed);
        let max_message = policies.max_message;
        let rings = group.rings.iter().map(|ring| fabric.ring(*ring).try_clone()).collect::<Result<_, _>>()?;
        let member = Member::open(rings, fabric.bell(place.group), place.member, WaitMode::Block, stop.interrupt())?;
        let member = if policies.is_copied() { member.with_copies() } else { member };
        Ok(Inlet { member, counters: Arc::clone(counters), max_message })
    }

    /// The longest message of its topic, in bytes.
    pub(super) fn max_message(&self) -> usize {
        self.max_message
    }

    /// Calls `on_message` with each message, until the topic has ended or the sink must stop. Calls
    /// `flush` after each batch, and then acknowledges the batch.
    ///
    /// # Errors
    ///
    /// The errors of the two functions.
    pub(super) fn for_each<S>(
        &mut self,
        state: &mut S,
        mut on_message: impl FnMut(&mut S, &[u8]) -> Result<()>,
        mut flush: impl FnMut(&mut S) -> Result<()>,
    ) -> Result<()> {
        loop {
            let claim = match self.member.claim(BATCH.0, BATCH.1) {
                Ok(claim) => claim,
                Err(ClaimError::Closed | ClaimError::Interrupted) => return Ok(()),
                Err(error) => {
                    tracing::error!("a producer broke its ring: {error}");
                    continue;
                }
            };
            let mut bytes = 0;
            for message in claim.messages() {
                on_message(state, &message)?;
                bytes += message.len() as u64;
            }
            flush(state)?;
            self.counters.add(Counter::ReceivedMessages, claim.count() as u64);
            self.counters.add(Counter::ReceivedBytes, bytes);
            claim.ack();
        }
    }
}
