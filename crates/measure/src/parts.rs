//! What each party of a child has in its hands, once the mechanism has opened its ends: the loop it plays follows from it.

use anyhow::{Context, Result, ensure};

use crate::batch::{Duplex, Several};
use crate::case::{Pattern, Role};
use crate::mechanism::Party;

/// The ends of a loop.
#[derive(Debug)]
pub(crate) enum Holds<T, R> {
    /// Sends.
    Sending(T),
    /// Sends on several connections in turn: an end for each of them, or one for all.
    SendingInTurn(Vec<T>),
    /// Receives.
    Receiving(R),
    /// Asks and waits for the answer.
    Asking(Duplex<T, R>),
    /// Answers one.
    Answering(Duplex<T, R>),
    /// Answers several.
    Serving(Several<T, R>),
}

/// One loop: its role, the core it runs on, and its ends.
#[derive(Debug)]
pub(crate) struct Part<T, R> {
    pub(crate) role: Role,
    pub(crate) cpu: Option<usize>,
    pub(crate) holds: Holds<T, R>,
}

/// The loops of a child whose mechanism opened these ends, in the order of their roles; `cpus` has a core for each of its
/// parties in that order.
///
/// # Errors
/// Where a party lacks an end that its pattern needs.
pub(crate) fn parts<T, R>(
    pattern: Pattern,
    mut parties: Vec<Party<T, R>>,
    cpus: &[Option<usize>],
) -> Result<Vec<Part<T, R>>> {
    let mut parts = Vec::new();
    let mut server = None;
    let mut connections = None;
    // By their roles alone, and without iterators: what is generic here is compiled for every mechanism, and a sort of its
    // ends would be longer than the loops.
    let mut roles = Vec::with_capacity(parties.len());
    for party in &parties {
        roles.push(party.role);
    }
    for (a, b) in sorting(roles) {
        parties.swap(a, b);
    }
    let mut cpus = cpus.iter().copied();
    for Party { role, tx, rx } in parties {
        let lacks = |end: &str| format!("the mechanism opened no {end} end for {role} of a {pattern}");
        let cpu = cpus.next().flatten();
        let mut add = |role, holds| parts.push(Part { role, cpu, holds });
        match (pattern, role) {
            (Pattern::RequestReply, Role::Consumer(_)) => {
                let (_, receiving, sending) = server.get_or_insert_with(|| (cpu, Vec::new(), Vec::new()));
                receiving.extend(rx);
                sending.extend(tx);
            }
            (Pattern::Connections, Role::Producer(_)) => {
                let (_, sending) = connections.get_or_insert_with(|| (cpu, Vec::new()));
                sending.push(tx.with_context(|| lacks("sending"))?);
            }
            (Pattern::PingPong | Pattern::RequestReply | Pattern::OneThread, _) => {
                let tx = tx.with_context(|| lacks("sending"))?;
                let ends = Duplex { tx, rx: rx.with_context(|| lacks("receiving"))? };
                let asks = matches!(role, Role::Producer(_));
                add(role, if asks { Holds::Asking(ends) } else { Holds::Answering(ends) });
            }
            (Pattern::Duplex, Role::Producer(side) | Role::Consumer(side)) => {
                // The two sides send the streams 0 and 1; each hears the other's.
                ensure!(side == 0, "{role} of a {pattern}: there is one on each side");
                let (ours, theirs) = if matches!(role, Role::Producer(_)) { (0, 1) } else { (1, 0) };
                add(Role::Producer(ours), Holds::Sending(tx.with_context(|| lacks("sending"))?));
                add(Role::Consumer(theirs), Holds::Receiving(rx.with_context(|| lacks("receiving"))?));
            }
            (_, Role::Producer(_)) => add(role, Holds::Sending(tx.with_context(|| lacks("sending"))?)),
            (_, Role::Consumer(_)) => add(role, Holds::Receiving(rx.with_context(|| lacks("receiving"))?)),
            (_, Role::All | Role::Broker) => ensure!(false, "{role} is not a party"),
        }
    }
    if let Some((cpu, txs)) = connections {
        parts.push(Part { role: Role::Producer(0), cpu, holds: Holds::SendingInTurn(txs) });
    }
    if let Some((cpu, receiving, txs)) = server {
        let role = Role::Consumer(0);
        let [rx] = <[R; 1]>::try_from(receiving)
            .map_err(|ends| anyhow::anyhow!("a server hears its clients on one end, not on {}", ends.len()))?;
        ensure!(!txs.is_empty(), "the mechanism opened no sending end for {role} of a {pattern}");
        parts.push(Part { role, cpu, holds: Holds::Serving(Several { rx, txs }) });
    }
    Ok(parts)
}

/// The swaps, one after the other, that bring these roles into their order; those that are alike stay as they are.
fn sorting(roles: Vec<Role>) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..roles.len()).collect();
    order.sort_by_key(|&place| roles[place]);
    let mut swaps = Vec::new();
    for to in 0..order.len() {
        let mut from = order[to];
        // What lay there has been swapped on, perhaps more than once.
        while from < to {
            from = order[from];
        }
        if from != to {
            swaps.push((to, from));
        }
    }
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(role: Role) -> Party<u8, u8> {
        Party { role, tx: Some(1), rx: Some(2) }
    }

    fn roles(pattern: Pattern, parties: Vec<Party<u8, u8>>) -> Result<Vec<Role>> {
        Ok(parts(pattern, parties, &[Some(3)])?.iter().map(|part| part.role).collect())
    }

    #[test]
    fn each_side_of_a_duplex_sends_its_own_stream_and_hears_the_others() {
        let here = roles(Pattern::Duplex, vec![both(Role::Producer(0))]).unwrap();
        assert_eq!(here, [Role::Producer(0), Role::Consumer(1)]);
        let there = roles(Pattern::Duplex, vec![both(Role::Consumer(0))]).unwrap();
        assert_eq!(there, [Role::Producer(1), Role::Consumer(0)]);
    }

    #[test]
    fn a_server_has_one_end_to_hear_and_one_for_each_client() {
        let mut parties = vec![Party { role: Role::Consumer(0), tx: None, rx: Some(0) }];
        parties.extend([1, 2].map(|tx| Party { role: Role::Consumer(0), tx: Some(tx), rx: None }));
        let parts = parts(Pattern::RequestReply, parties, &[Some(3)]).unwrap();
        assert!(matches!(&parts[0], Part { cpu: Some(3), holds: Holds::Serving(ends), .. } if ends.txs == [1, 2]));
        assert!(roles(Pattern::RequestReply, vec![Party { role: Role::Consumer(0), tx: Some(1), rx: None }]).is_err());
    }

    #[test]
    fn one_party_has_the_sending_ends_of_all_connections() {
        let parties = [2, 0, 1].map(|index| Party { role: Role::Producer(index), tx: Some(index), rx: None::<u8> });
        let parts = parts(Pattern::Connections, parties.into(), &[Some(3)]).unwrap();
        let [Part { role: Role::Producer(0), cpu: Some(3), holds: Holds::SendingInTurn(txs) }] = &parts[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(txs, &[0, 1, 2]);
    }

    #[test]
    fn parties_are_sorted_and_those_alike_keep_their_order() {
        let mut random = fastrand::Rng::with_seed(1);
        for len in 0..20 {
            let roles: Vec<_> = (0..len).map(|_| Role::Producer(random.usize(..5))).collect();
            let mut swapped: Vec<_> = roles.iter().copied().enumerate().collect();
            let mut sorted = swapped.clone();
            sorted.sort_by_key(|(_, role)| *role);
            sorting(roles).into_iter().for_each(|(a, b)| swapped.swap(a, b));
            assert_eq!(swapped, sorted);
        }
    }

    #[test]
    fn a_missing_end_is_named() {
        let error =
            roles(Pattern::PingPong, vec![Party { role: Role::Producer(0), tx: Some(1), rx: None }]).unwrap_err();
        assert!(error.to_string().contains("no receiving end for producer:0 of a ping-pong"), "{error}");
    }
}
