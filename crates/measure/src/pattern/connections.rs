//! One thread sends on several connections to one process, as fast as it can. It sends [`TURN`]
//! messages on one connection, which may be sent together, then as many on the next. Each
//! connection carries its own stream of messages. One consumer receives from all connections.

use anyhow::Result;

use super::assignment::{LoopKind, LoopPlan, Opened, one_way};
use super::rules::{Layout, Rules};
use crate::case::{Case, Cell, Pattern, Role};
use crate::descriptors;
use crate::message::{Faults, StreamCount};
use crate::refusal::{Inadmissible, RefusalKind, require_lossless, require_processes};
use crate::spec::{Scope, Spec};

/// The number of messages sent on one of several connections before the sender switches to the
/// next.
pub const TURN: u64 = 16;

pub(super) struct Connections;

impl Rules for Connections {
    fn result(&self) -> &'static str {
        "a message of several connections takes"
    }

    fn is_between_hosts(&self) -> bool {
        true
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn senders(&self, _: &Cell) -> usize {
        1
    }

    fn layout(&self) -> Layout {
        Layout::OneSender
    }

    fn processes(&self, _: &Cell) -> (usize, usize) {
        (1, 1)
    }

    /// One loop has the sending ends of all connections.
    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        let (senders, others): (Vec<Opened>, Vec<Opened>) =
            parties.iter().partition(|party| matches!(party.role, Role::Producer(_)));
        let mut loops = Vec::new();
        if let Some(first) = senders.first() {
            senders.iter().try_for_each(|party| party.require_sending(pattern))?;
            let txs = senders.iter().map(|party| party.index).collect();
            loops.push(first.plan(Role::Producer(0), LoopKind::SendingInTurn(txs)));
        }
        loops.extend(one_way(pattern, &others)?);
        Ok(loops)
    }

    fn default_producers(&self, _: Scope) -> usize {
        100
    }

    fn opens_end_per_producer(&self, _: Role) -> bool {
        true
    }

    fn is_of_producer(&self, _: &StreamCount, _: usize) -> bool {
        // One party has sent all streams.
        true
    }

    fn account(&self, _: usize, sent: u64, counts: &[&StreamCount]) -> Faults {
        // The end mark of each connection has shown that its stream was complete.
        let received: u64 = counts.iter().map(|count| count.received).sum();
        match counts.iter().map(|count| count.announced).sum::<Option<u64>>() {
            Some(announced) => Faults { damaged: u64::from(announced != sent), ..Faults::default() },
            None => Faults { lost: sent.saturating_sub(received), ..Faults::default() },
        }
    }

    fn admit(&self, spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
        require_processes(case)?;
        require_lossless(
            spec,
            "the search for its highest rate without loss needs one stream per process: use the pattern stream or fan-in",
        )?;
        descriptors::suffice(case.producers).map_err(|why| RefusalKind::Machine.because(why))
    }
}
