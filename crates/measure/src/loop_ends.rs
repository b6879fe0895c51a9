//! Assigns the ends that a mechanism has opened to the loops of a child.

use anyhow::{Result, anyhow};

use crate::case::{Pattern, Role};
use crate::mechanism::Ends;
use crate::pattern::{LoopPlan, Opened};

/// The sending and the receiving end of one party.
#[derive(Debug)]
pub(crate) struct BothEnds<T, R> {
    pub(crate) tx: T,
    pub(crate) rx: R,
}

/// A server's ends: one to receive from all clients, and one for the replies to each client or to
/// all of them.
#[derive(Debug)]
pub(crate) struct ServerEnds<T, R> {
    pub(crate) rx: R,
    pub(crate) txs: Vec<T>,
}

// These functions are compiled for every mechanism. Therefore they only move ends to where the plan says.
impl<T, R> Ends<T, R> {
    /// The loops of a child whose mechanism opened these ends.
    ///
    /// # Errors
    /// When a party lacks an end that its pattern needs.
    pub(crate) fn plan(&self, pattern: Pattern) -> Result<Vec<LoopPlan>> {
        let mut opened = Vec::with_capacity(self.0.len());
        for party in &self.0 {
            opened.push((party.role, party.tx.is_some(), party.rx.is_some()));
        }
        plan(pattern, &opened)
    }

    /// The sending end of the party with this index.
    ///
    /// # Errors
    /// When another loop has it.
    pub(crate) fn take_tx(&mut self, at: usize) -> Result<T> {
        self.0[at].tx.take().ok_or_else(missing)
    }

    /// The receiving end of the party with this index.
    ///
    /// # Errors
    /// When another loop has it.
    pub(crate) fn take_rx(&mut self, at: usize) -> Result<R> {
        self.0[at].rx.take().ok_or_else(missing)
    }

    /// Both ends of the party with this index.
    ///
    /// # Errors
    /// When another loop has one of them.
    pub(crate) fn take_both(&mut self, at: usize) -> Result<BothEnds<T, R>> {
        Ok(BothEnds { tx: self.take_tx(at)?, rx: self.take_rx(at)? })
    }

    /// The sending ends of the parties with these indices.
    ///
    /// # Errors
    /// When another loop has one of them.
    pub(crate) fn take_txs(&mut self, indices: &[usize]) -> Result<Vec<T>> {
        let mut txs = Vec::with_capacity(indices.len());
        for &at in indices {
            txs.push(self.take_tx(at)?);
        }
        Ok(txs)
    }
}

/// The error when an end has already been moved to another loop.
#[cold]
fn missing() -> anyhow::Error {
    anyhow!("an end was planned for two loops")
}

/// Decides which loops there are, and which ends each of them uses, for parties with these roles,
/// and with a sending and a receiving end or not.
fn plan(pattern: Pattern, parties: &[(Role, bool, bool)]) -> Result<Vec<LoopPlan>> {
    let mut order: Vec<usize> = (0..parties.len()).collect();
    order.sort_by_key(|&at| parties[at].0);
    let opened = order.iter().enumerate().map(|(position, &at)| {
        let (role, sends, receives) = parties[at];
        Opened { index: at, order: position, role, sends, receives }
    });
    pattern.rules().assign(pattern, &opened.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::PartyEnds;
    use crate::pattern::LoopKind;

    #[test]
    fn a_server_has_one_receiving_end_and_one_sending_end_for_each_client() {
        let mut ends = Ends::server('r', ['a', 'b']);
        let plans = ends.plan(Pattern::RequestReply).unwrap();
        let [LoopPlan { core_of: 0, kind: LoopKind::Serving { rx, txs }, .. }] = &plans[..] else {
            panic!("{plans:?}")
        };
        assert_eq!((ends.take_rx(*rx).unwrap(), ends.take_txs(txs).unwrap()), ('r', vec!['a', 'b']));
        assert!(ends.take_txs(txs).is_err(), "each end belongs to one loop");
        let without_rx = PartyEnds { role: Role::Consumer(0), tx: Some(1), rx: None::<u8> };
        assert!(Ends(vec![without_rx]).plan(Pattern::RequestReply).is_err());
    }

    #[test]
    fn one_loop_has_the_sending_ends_of_all_connections() {
        let parties = [2, 0, 1].map(|index| PartyEnds { role: Role::Producer(index), tx: Some(index), rx: None::<u8> });
        let mut ends = Ends(parties.into());
        let plans = ends.plan(Pattern::Connections).unwrap();
        let [LoopPlan { role: Role::Producer(0), core_of: 0, kind: LoopKind::SendingInTurn(txs) }] = &plans[..] else {
            panic!("{plans:?}")
        };
        assert_eq!(ends.take_txs(txs).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn parties_are_sorted_by_role_and_the_sort_is_stable() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..20 {
            let roles: Vec<_> = (0..len).map(|_| Role::Producer(random.usize(..5))).collect();
            let party = |(place, &role): (usize, &Role)| PartyEnds { role, tx: Some(place), rx: None::<u8> };
            let mut ends = Ends(roles.iter().enumerate().map(party).collect());
            let plans = ends.plan(Pattern::FanIn).unwrap();
            let assigned = plans.iter().map(|plan| match plan.kind {
                LoopKind::Sending(at) => (ends.take_tx(at).unwrap(), plan.role),
                _ => panic!("{plan:?}"),
            });
            let mut sorted: Vec<_> = roles.iter().copied().enumerate().collect();
            sorted.sort_by_key(|(_, role)| *role);
            assert_eq!(assigned.collect::<Vec<_>>(), sorted);
        }
    }
}
