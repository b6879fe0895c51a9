//! Several clients each send a request to one server and wait for the reply, over and over.

use anyhow::{Result, bail, ensure};

use super::assignment::{LoopKind, LoopPlan, Opened, requests_and_replies};
use super::rules::{Metric, Rules};
use crate::bound::{Bound, Costs};
use crate::case::{Case, Pattern, Role};
use crate::message::Verifier;
use crate::spec::Scope;

pub(super) struct RequestReply;

impl Rules for RequestReply {
    fn result(&self) -> &'static str {
        "a request takes"
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn is_bidirectional(&self) -> bool {
        true
    }

    /// The request and its reply.
    fn messages_moved(&self) -> Option<f64> {
        Some(2.0)
    }

    fn default_producers(&self, _: Scope) -> usize {
        2
    }

    /// A server has one end to receive from all clients, and one or more for the replies.
    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        let (serving, clients): (Vec<Opened>, Vec<Opened>) =
            parties.iter().partition(|party| matches!(party.role, Role::Consumer(_)));
        let mut loops = requests_and_replies(pattern, &clients)?;
        let Some(first) = serving.first() else { return Ok(loops) };
        let rxs: Vec<usize> = serving.iter().filter(|party| party.receives).map(|party| party.index).collect();
        let txs: Vec<usize> = serving.iter().filter(|party| party.sends).map(|party| party.index).collect();
        let role = Role::Consumer(0);
        let [rx] = rxs[..] else { bail!("a server receives from its clients on one end, not on {}", rxs.len()) };
        ensure!(!txs.is_empty(), "the mechanism opened no sending end for {role} of a {pattern}");
        loops.push(first.plan(role, LoopKind::Serving { rx, txs }));
        Ok(loops)
    }

    fn verifier(&self, seed: u64, case: &Case, role: Role) -> Verifier {
        match role {
            // The replies are in the client's own sequence.
            Role::Producer(client) => Verifier::of_producer(seed, client, case.payload.len()),
            _ => Verifier::new(seed, case.producers, case.payload.len()),
        }
    }

    // The lead is the server: it knows the number of requests. How long one took, its clients know.

    fn metric(&self) -> Metric {
        Metric::RoundTrip
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        costs.of_round_trip()
    }
}
