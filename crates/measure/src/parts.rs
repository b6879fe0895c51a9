//! Assigns the ends that a mechanism has opened to the loops of a child.

use anyhow::{Result, anyhow};

use crate::case::{Pattern, Role};
use crate::mechanism::PartyEnds;
use crate::pattern::{LoopKind, LoopPlan, Opened};

/// The sending and the receiving end of one party.
#[derive(Debug)]
pub(crate) struct Duplex<T, R> {
    pub(crate) tx: T,
    pub(crate) rx: R,
}

/// A server's ends: one to receive from all clients, and one for the replies to each client or to all of them.
#[derive(Debug)]
pub(crate) struct ServerEnds<T, R> {
    pub(crate) rx: R,
    pub(crate) txs: Vec<T>,
}

/// The kind of a loop, with the ends it uses.
#[derive(Debug)]
pub(crate) enum LoopEnds<T, R> {
    /// Sends.
    Sending(T),
    /// Sends on several connections in turn. There is one end for each connection, or one for all.
    SendingInTurn(Vec<T>),
    /// Receives.
    Receiving(R),
    /// Sends requests and waits for the replies.
    Requesting(Duplex<T, R>),
    /// Replies to one client.
    Replying(Duplex<T, R>),
    /// Replies to several clients.
    Serving(ServerEnds<T, R>),
}

/// A loop: its role, the core it runs on, and its ends.
#[derive(Debug)]
pub(crate) struct Part<T, R> {
    pub(crate) role: Role,
    pub(crate) cpu: Option<usize>,
    pub(crate) ends: LoopEnds<T, R>,
}

/// The loops of a child whose mechanism opened these ends. `cpus` has the core of each party, in the order of the roles.
///
/// This function is compiled for every mechanism. Therefore it only moves ends to where the pattern
/// says.
///
/// # Errors
/// When a party lacks an end that its pattern needs.
pub(crate) fn parts<T, R>(
    pattern: Pattern,
    mut parties: Vec<PartyEnds<T, R>>,
    cpus: &[Option<usize>],
) -> Result<Vec<Part<T, R>>> {
    let mut opened = Vec::with_capacity(parties.len());
    for party in &parties {
        opened.push((party.role, party.tx.is_some(), party.rx.is_some()));
    }
    let loops = plan(pattern, &opened)?;
    let mut parts = Vec::with_capacity(loops.len());
    for LoopPlan { role, core_of, kind } in loops {
        let cpu = cpus.get(core_of).copied().flatten();
        let ends = match kind {
            LoopKind::Sending(at) => LoopEnds::Sending(take(&mut parties[at].tx)?),
            LoopKind::Receiving(at) => LoopEnds::Receiving(take(&mut parties[at].rx)?),
            LoopKind::Requesting(at) => LoopEnds::Requesting(both(&mut parties[at])?),
            LoopKind::Replying(at) => LoopEnds::Replying(both(&mut parties[at])?),
            LoopKind::SendingInTurn(txs) => LoopEnds::SendingInTurn(all(&mut parties, &txs)?),
            LoopKind::Serving { rx, txs } => {
                LoopEnds::Serving(ServerEnds { rx: take(&mut parties[rx].rx)?, txs: all(&mut parties, &txs)? })
            }
        };
        parts.push(Part { role, cpu, ends });
    }
    Ok(parts)
}

fn both<T, R>(party: &mut PartyEnds<T, R>) -> Result<Duplex<T, R>> {
    Ok(Duplex { tx: take(&mut party.tx)?, rx: take(&mut party.rx)? })
}

fn all<T, R>(parties: &mut [PartyEnds<T, R>], txs: &[usize]) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(txs.len());
    for &at in txs {
        all.push(take(&mut parties[at].tx)?);
    }
    Ok(all)
}

fn take<E>(end: &mut Option<E>) -> Result<E> {
    match end.take() {
        Some(end) => Ok(end),
        None => Err(missing()),
    }
}

/// The error when an end has already been moved to another loop.
#[cold]
fn missing() -> anyhow::Error {
    anyhow!("an end was planned for two loops")
}

/// Decides which loops there are, and which ends each of them uses, for parties with these roles, and with a sending and a receiving end
/// or not.
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

    fn roles(pattern: Pattern, parties: Vec<PartyEnds<u8, u8>>) -> Result<Vec<Role>> {
        Ok(parts(pattern, parties, &[Some(3)])?.iter().map(|part| part.role).collect())
    }

    #[test]
    fn a_server_has_one_receiving_end_and_one_sending_end_for_each_client() {
        let mut parties = vec![PartyEnds { role: Role::Consumer(0), tx: None, rx: Some(0) }];
        parties.extend([1, 2].map(|tx| PartyEnds { role: Role::Consumer(0), tx: Some(tx), rx: None }));
        let parts = parts(Pattern::RequestReply, parties, &[Some(3)]).unwrap();
        assert!(matches!(&parts[0], Part { cpu: Some(3), ends: LoopEnds::Serving(ends), .. } if ends.txs == [1, 2]));
        assert!(
            roles(Pattern::RequestReply, vec![PartyEnds { role: Role::Consumer(0), tx: Some(1), rx: None }]).is_err()
        );
    }

    #[test]
    fn one_loop_has_the_sending_ends_of_all_connections() {
        let parties = [2, 0, 1].map(|index| PartyEnds { role: Role::Producer(index), tx: Some(index), rx: None::<u8> });
        let parts = parts(Pattern::Connections, parties.into(), &[Some(3)]).unwrap();
        let [Part { role: Role::Producer(0), cpu: Some(3), ends: LoopEnds::SendingInTurn(txs) }] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(txs, &[0, 1, 2]);
    }

    #[test]
    fn parties_are_sorted_by_role_and_the_sort_is_stable() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..20 {
            let roles: Vec<_> = (0..len).map(|_| Role::Producer(random.usize(..5))).collect();
            let party = |(place, &role): (usize, &Role)| PartyEnds { role, tx: Some(place), rx: None::<u8> };
            let parts = parts(Pattern::FanIn, roles.iter().enumerate().map(party).collect(), &[]).unwrap();
            let assigned = parts.iter().map(|part| match part.ends {
                LoopEnds::Sending(place) => (place, part.role),
                _ => panic!("{part:?}"),
            });
            let mut sorted: Vec<_> = roles.iter().copied().enumerate().collect();
            sorted.sort_by_key(|(_, role)| *role);
            assert_eq!(assigned.collect::<Vec<_>>(), sorted);
        }
    }
}
