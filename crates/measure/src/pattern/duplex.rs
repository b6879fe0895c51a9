//! Two ends send to each other as fast as they can, at the same time.

use anyhow::{Result, bail};

use super::assignment::{LoopKind, LoopPlan, Opened};
use super::rules::Rules;
use crate::bound::{Cost, Costs};
use crate::case::{Case, Cell, Pattern, Role};
use crate::message::Verifier;
use crate::refusal::{Inadmissible, RefusalKind, require_lossless};
use crate::spec::{Spec, Wait};

pub(super) struct Duplex;

impl Rules for Duplex {
    fn result(&self) -> &'static str {
        "a message of a duplex takes"
    }

    fn is_bidirectional(&self) -> bool {
        true
    }

    fn is_between_hosts(&self) -> bool {
        true
    }

    /// One each way.
    fn messages_on_link(&self) -> f64 {
        2.0
    }

    fn streams(&self, _: &Cell) -> usize {
        2
    }

    fn consumers(&self, _: &Cell) -> usize {
        2
    }

    fn processes(&self, _: &Cell) -> (usize, usize) {
        (1, 1)
    }

    /// The two sides send streams 0 and 1, and each receives the other's stream.
    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        let mut loops = Vec::new();
        for party in parties {
            let (ours, theirs) = match party.role {
                Role::Producer(0) => (0, 1),
                Role::Consumer(0) => (1, 0),
                role => bail!("{role} of a {pattern}: each side has one party only"),
            };
            party.require_sending(pattern)?;
            party.require_receiving(pattern)?;
            loops.push(party.plan(Role::Producer(ours), LoopKind::Sending(party.index)));
            loops.push(party.plan(Role::Consumer(theirs), LoopKind::Receiving(party.index)));
        }
        Ok(loops)
    }

    fn verifier(&self, seed: u64, case: &Case, role: Role) -> Verifier {
        match role {
            Role::Consumer(other) => Verifier::of_producer(seed, other, case.payload.len()),
            _ => Verifier::new(seed, 2, case.payload.len()),
        }
    }

    fn admit(&self, spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if case.wait == Wait::Spin {
            return Err(
                RefusalKind::Cores.because("both ends of one side would spin on the same core: use --wait block")
            );
        }
        require_lossless(
            spec,
            "the search for its highest rate without loss works in one direction only: use the pattern stream",
        )
    }

    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        if costs.is_one_core() { costs.fill_and_check() } else { costs.fill_and_check_on_two_cores() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_sends_its_own_stream_and_receives_the_others() {
        let roles = |role| {
            let opened = Opened { index: 0, order: 0, role, sends: true, receives: true };
            Duplex.assign(Pattern::Duplex, &[opened]).unwrap().iter().map(|plan| plan.role).collect::<Vec<_>>()
        };
        assert_eq!(roles(Role::Producer(0)), [Role::Producer(0), Role::Consumer(1)]);
        assert_eq!(roles(Role::Consumer(0)), [Role::Producer(1), Role::Consumer(0)]);
    }
}
