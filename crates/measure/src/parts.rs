//! Assigns the ends that a mechanism has opened to the loops of a child.

use anyhow::{Result, anyhow, bail, ensure};

use crate::batch::{Duplex, ServerEnds};
use crate::case::{Pattern, Role};
use crate::mechanism::PartyEnds;

/// The kind of a loop, with the ends it uses.
#[derive(Debug)]
pub(crate) enum Holds<T, R> {
    /// Sends.
    Sending(T),
    /// Sends on several connections in turn. There is one end for each connection, or one for all.
    SendingInTurn(Vec<T>),
    /// Receives.
    Receiving(R),
    /// Sends requests and waits for the replies.
    Asking(Duplex<T, R>),
    /// Replies to one client.
    Answering(Duplex<T, R>),
    /// Replies to several clients.
    Serving(ServerEnds<T, R>),
}

/// A loop: its role, the core it runs on, and its ends.
#[derive(Debug)]
pub(crate) struct Part<T, R> {
    pub(crate) role: Role,
    pub(crate) cpu: Option<usize>,
    pub(crate) holds: Holds<T, R>,
}

/// The loops of a child whose mechanism opened these ends, sorted by role. `cpus` has the core of
/// each party in the same order.
///
/// This function is compiled for every mechanism. Therefore it only moves ends to where [`plan`]
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
        opened.push(Opened { role: party.role, sends: party.tx.is_some(), receives: party.rx.is_some() });
    }
    let steps = plan(pattern, &opened, cpus)?;
    let mut parts = Vec::with_capacity(steps.len());
    for Step { role, cpu, takes } in steps {
        let holds = match takes {
            Takes::Sending(at) => Holds::Sending(take(&mut parties[at].tx)?),
            Takes::Receiving(at) => Holds::Receiving(take(&mut parties[at].rx)?),
            Takes::Asking(at) => Holds::Asking(both(&mut parties[at])?),
            Takes::Answering(at) => Holds::Answering(both(&mut parties[at])?),
            Takes::SendingInTurn(txs) => Holds::SendingInTurn(all(&mut parties, &txs)?),
            Takes::Serving { rx, txs } => {
                Holds::Serving(ServerEnds { rx: take(&mut parties[rx].rx)?, txs: all(&mut parties, &txs)? })
            }
        };
        parts.push(Part { role, cpu, holds });
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

/// A party without its ends: its role, and which ends it has.
struct Opened {
    role: Role,
    sends: bool,
    receives: bool,
}

/// One loop of [`plan`].
struct Step {
    role: Role,
    cpu: Option<usize>,
    takes: Takes,
}

/// The parties whose ends a loop uses, as indices; see [`Holds`].
enum Takes {
    Sending(usize),
    SendingInTurn(Vec<usize>),
    Receiving(usize),
    Asking(usize),
    Answering(usize),
    Serving { rx: usize, txs: Vec<usize> },
}

/// Decides which loops there are, and which ends each of them uses.
fn plan(pattern: Pattern, parties: &[Opened], cpus: &[Option<usize>]) -> Result<Vec<Step>> {
    let mut order: Vec<usize> = (0..parties.len()).collect();
    order.sort_by_key(|&at| parties[at].role);
    let mut steps = Vec::new();
    for (nth, &at) in order.iter().enumerate() {
        let Opened { role, sends, receives } = parties[at];
        let cpu = cpus.get(nth).copied().flatten();
        let has = |is_there: bool, end: &str| {
            ensure!(is_there, "the mechanism opened no {end} end for {role} of a {pattern}");
            Ok(())
        };
        let mut add = |role, takes| steps.push(Step { role, cpu, takes });
        match (pattern, role) {
            // These parties share one loop; see below.
            (Pattern::RequestReply, Role::Consumer(_)) => {}
            (Pattern::Connections, Role::Producer(_)) => has(sends, "sending")?,
            (Pattern::PingPong | Pattern::RequestReply | Pattern::SameThread, _) => {
                has(sends, "sending")?;
                has(receives, "receiving")?;
                let asks = matches!(role, Role::Producer(_));
                add(role, if asks { Takes::Asking(at) } else { Takes::Answering(at) });
            }
            (Pattern::Duplex, Role::Producer(side) | Role::Consumer(side)) => {
                // The two sides send streams 0 and 1, and each receives the other's stream.
                ensure!(side == 0, "{role} of a {pattern}: each side has one party only");
                has(sends, "sending")?;
                has(receives, "receiving")?;
                let (ours, theirs) = if matches!(role, Role::Producer(_)) { (0, 1) } else { (1, 0) };
                add(Role::Producer(ours), Takes::Sending(at));
                add(Role::Consumer(theirs), Takes::Receiving(at));
            }
            (_, Role::Producer(_)) => {
                has(sends, "sending")?;
                add(role, Takes::Sending(at));
            }
            (_, Role::Consumer(_)) => {
                has(receives, "receiving")?;
                add(role, Takes::Receiving(at));
            }
            (_, Role::All | Role::Broker) => bail!("{role} is not a party"),
        }
    }
    match pattern {
        Pattern::Connections => steps.extend(in_turn(parties, &order, cpus)),
        Pattern::RequestReply => steps.extend(server(parties, &order, cpus)?),
        _ => {}
    }
    Ok(steps)
}

/// The loop that uses the sending ends of all connections.
fn in_turn(parties: &[Opened], order: &[usize], cpus: &[Option<usize>]) -> Option<Step> {
    let sends = |at: &usize| matches!(parties[*at].role, Role::Producer(_));
    let first = order.iter().position(sends)?;
    let txs = order.iter().copied().filter(sends).collect();
    Some(Step { role: Role::Producer(0), cpu: cpus.get(first).copied().flatten(), takes: Takes::SendingInTurn(txs) })
}

/// The loop of a server. It has one end to receive from all clients, and one or more for the
/// replies.
fn server(parties: &[Opened], order: &[usize], cpus: &[Option<usize>]) -> Result<Option<Step>> {
    let serves = |at: &usize| matches!(parties[*at].role, Role::Consumer(_));
    let Some(first) = order.iter().position(serves) else { return Ok(None) };
    let ends = || order.iter().copied().filter(serves);
    let rxs: Vec<usize> = ends().filter(|&at| parties[at].receives).collect();
    let txs: Vec<usize> = ends().filter(|&at| parties[at].sends).collect();
    let role = Role::Consumer(0);
    let [rx] = rxs[..] else { bail!("a server receives from its clients on one end, not on {}", rxs.len()) };
    ensure!(!txs.is_empty(), "the mechanism opened no sending end for {role} of a {}", Pattern::RequestReply);
    Ok(Some(Step { role, cpu: cpus.get(first).copied().flatten(), takes: Takes::Serving { rx, txs } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(role: Role) -> PartyEnds<u8, u8> {
        PartyEnds { role, tx: Some(1), rx: Some(2) }
    }

    fn roles(pattern: Pattern, parties: Vec<PartyEnds<u8, u8>>) -> Result<Vec<Role>> {
        Ok(parts(pattern, parties, &[Some(3)])?.iter().map(|part| part.role).collect())
    }

    #[test]
    fn each_side_of_a_duplex_sends_its_own_stream_and_receives_the_others() {
        let producer_side = roles(Pattern::Duplex, vec![both(Role::Producer(0))]).unwrap();
        assert_eq!(producer_side, [Role::Producer(0), Role::Consumer(1)]);
        let consumer_side = roles(Pattern::Duplex, vec![both(Role::Consumer(0))]).unwrap();
        assert_eq!(consumer_side, [Role::Producer(1), Role::Consumer(0)]);
    }

    #[test]
    fn a_server_has_one_receiving_end_and_one_sending_end_for_each_client() {
        let mut parties = vec![PartyEnds { role: Role::Consumer(0), tx: None, rx: Some(0) }];
        parties.extend([1, 2].map(|tx| PartyEnds { role: Role::Consumer(0), tx: Some(tx), rx: None }));
        let parts = parts(Pattern::RequestReply, parties, &[Some(3)]).unwrap();
        assert!(matches!(&parts[0], Part { cpu: Some(3), holds: Holds::Serving(ends), .. } if ends.txs == [1, 2]));
        assert!(
            roles(Pattern::RequestReply, vec![PartyEnds { role: Role::Consumer(0), tx: Some(1), rx: None }]).is_err()
        );
    }

    #[test]
    fn one_loop_has_the_sending_ends_of_all_connections() {
        let parties = [2, 0, 1].map(|index| PartyEnds { role: Role::Producer(index), tx: Some(index), rx: None::<u8> });
        let parts = parts(Pattern::Connections, parties.into(), &[Some(3)]).unwrap();
        let [Part { role: Role::Producer(0), cpu: Some(3), holds: Holds::SendingInTurn(txs) }] = &parts[..] else {
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
            let assigned = parts.iter().map(|part| match part.holds {
                Holds::Sending(place) => (place, part.role),
                _ => panic!("{part:?}"),
            });
            let mut sorted: Vec<_> = roles.iter().copied().enumerate().collect();
            sorted.sort_by_key(|(_, role)| *role);
            assert_eq!(assigned.collect::<Vec<_>>(), sorted);
        }
    }

    #[test]
    fn the_error_names_a_missing_end() {
        let error =
            roles(Pattern::PingPong, vec![PartyEnds { role: Role::Producer(0), tx: Some(1), rx: None }]).unwrap_err();
        assert!(error.to_string().contains("no receiving end for producer:0 of a ping-pong"), "{error}");
    }
}
