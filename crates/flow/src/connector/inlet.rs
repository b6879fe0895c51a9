//! The input of a sink.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Result;
use estafette_ipc::WaitMode;
use estafette_ipc::group::{ClaimError, Member};

use super::outlet::Stop;
use crate::config::{End, Pipeline, Topic, Topology};
use crate::counters::{Counter, Counters};
use crate::supervisor::Fabric;

/// The most bytes and messages of a batch.
const MAX_BATCH: (usize, usize) = (Topic::MAX_NATS_BATCH, 4096);

/// The topic that a sink reads.
pub(super) struct Inlet {
    member: Member,
    counters: Arc<Counters>,
    stop: Arc<Stop>,
    max_message: usize,
    /// Whether messages are copied out of the ring when they are claimed. Then only one batch is in
    /// work: if the sink ends, one claim that is not acknowledged is counted as lost.
    is_copied: bool,
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
        let is_copied = policies.is_copied();
        let member = if is_copied { member.with_copies() } else { member };
        Ok(Inlet { member, counters: Arc::clone(counters), stop: Arc::clone(stop), max_message, is_copied })
    }

    /// The counters of its connector.
    #[cfg(feature = "nats")]
    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
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
        on_message: impl FnMut(&mut S, &[u8]) -> Result<()>,
        flush: impl FnMut(&mut S) -> Result<()>,
    ) -> Result<()> {
        self.for_each_ahead(1, state, on_message, flush, |_| Ok(()))
    }

    /// Calls `on_message` with each message, until the topic has ended or the sink must stop. Calls
    /// `start` after each batch. Messages that wait then are read while the work on the batch
    /// lasts, up to `most` batches in work. Calls `finish` to wait for the work on the oldest of
    /// them, and then acknowledges that one.
    ///
    /// # Errors
    ///
    /// The errors of the three functions. Batches in work are then not acknowledged.
    pub(super) fn for_each_ahead<S>(
        &mut self,
        most: usize,
        state: &mut S,
        mut on_message: impl FnMut(&mut S, &[u8]) -> Result<()>,
        mut start: impl FnMut(&mut S) -> Result<()>,
        mut finish: impl FnMut(&mut S) -> Result<()>,
    ) -> Result<()> {
        let most = if self.is_copied { 1 } else { most };
        let mut in_work: VecDeque<Batch> = VecDeque::new();
        loop {
            let claim = match in_work.len() {
                0 => self.member.claim(MAX_BATCH.0, MAX_BATCH.1).map(Some),
                some if some < most && !self.stop.is_set() => self.member.try_claim(MAX_BATCH.0, MAX_BATCH.1),
                _ => Ok(None),
            };
            match claim {
                Ok(Some(claim)) => {
                    let mut batch = Batch { messages: claim.count() as u64, bytes: 0 };
                    for message in claim.messages() {
                        on_message(state, &message)?;
                        batch.bytes += message.len() as u64;
                    }
                    start(state)?;
                    if most == 1 {
                        finish(state)?;
                        claim.ack();
                        batch.count(&self.counters);
                    } else {
                        claim.ack_later();
                        in_work.push_back(batch);
                    }
                }
                Err(error @ ClaimError::Violation { .. }) => tracing::error!("a producer broke its ring: {error}"),
                Ok(None) | Err(_) => {
                    let Some(batch) = in_work.pop_front() else { return Ok(()) };
                    finish(state)?;
                    self.member.ack_oldest();
                    batch.count(&self.counters);
                }
            }
        }
    }
}

/// A batch in work.
struct Batch {
    messages: u64,
    /// The bytes of all messages.
    bytes: u64,
}

impl Batch {
    /// Counts it as received.
    fn count(&self, counters: &Counters) {
        counters.add(Counter::ReceivedMessages, self.messages);
        counters.add(Counter::ReceivedBytes, self.bytes);
    }
}
