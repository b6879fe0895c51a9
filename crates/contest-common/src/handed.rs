//! How two ends come by what lies between them, where that is descriptors: the consumer makes it, and hands it on.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Rendezvous};

/// A party's one of a pair of sockets that both directions go through: the consumer makes the pair, and hands one on.
///
/// # Errors
///
/// If an end cannot be made, or the other party has gone.
pub fn of_pair<S, E>(role: Role, meet: &mut Rendezvous, pair: impl FnOnce() -> Result<(S, S), E>) -> Result<OwnedFd>
where
    S: Into<OwnedFd>,
    anyhow::Error: From<E>,
{
    if let Role::Consumer(_) = role {
        let (ours, theirs) = pair()?;
        offer(meet, "socket", &[theirs.into()])?;
        return Ok(ours.into());
    }
    let [socket]: [OwnedFd; 1] = meet.want_descriptors("socket")?;
    Ok(socket)
}

/// Opens a party's ends. The consumer makes what messages come on, and where they are answered what the answers go on:
/// `there` and `back` return the descriptor for the producer and the consumer's own end. The producer makes its ends of
/// these descriptors with `tx` and `rx`. Several producers share what messages come on; each has answers of its own.
///
/// # Errors
///
/// If an end cannot be made, or the other party has gone.
pub fn open<T, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl Fn() -> Result<(OwnedFd, R)>,
    back: impl Fn() -> Result<(OwnedFd, T)>,
    tx: impl Fn(OwnedFd) -> Result<T>,
    rx: impl Fn(OwnedFd) -> Result<R>,
) -> Result<Ends<T, R>> {
    open_several(
        case,
        role,
        meet,
        || there().map(|(theirs, ours)| ([theirs], ours)),
        || back().map(|(theirs, ours)| ([theirs], ours)),
        |[there]| tx(there),
        |[back]| rx(back),
    )
}

/// As [`open`], where each direction has several descriptors.
///
/// # Errors
///
/// If an end cannot be made, or the other party has gone.
pub fn open_several<T, R, const N: usize>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl Fn() -> Result<([OwnedFd; N], R)>,
    back: impl Fn() -> Result<([OwnedFd; N], T)>,
    tx: impl Fn([OwnedFd; N]) -> Result<T>,
    rx: impl Fn([OwnedFd; N]) -> Result<R>,
) -> Result<Ends<T, R>> {
    let answers = case.pattern.both_ways();
    if let Role::Producer(index) = role {
        let tx = tx(meet.want_descriptors("there")?)?;
        return match answers {
            true => Ok(Ends::both(role, tx, rx(meet.want_descriptors(&format!("back:{index}"))?)?)),
            false => Ok(Ends::producer(index, tx)),
        };
    }
    let (theirs, ours) = there()?;
    offer(meet, "there", &theirs)?;
    if !answers {
        return Ok(Ends::consumer(0, ours));
    }
    let mut txs = Vec::new();
    for client in 0..case.producers {
        let (theirs, ours) = back()?;
        offer(meet, &format!("back:{client}"), &theirs)?;
        txs.push(ours);
    }
    match <[T; 1]>::try_from(txs) {
        Ok([tx]) => Ok(Ends::both(role, tx, ours)),
        Err(txs) => Ok(Ends::server(ours, txs)),
    }
}

/// Opens a party's ends where one publishes to several: each subscriber makes what its messages come on, and the publisher
/// makes one end of all their descriptors.
///
/// # Errors
///
/// If an end cannot be made, or the other party has gone.
pub fn publish<T, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl Fn() -> Result<(OwnedFd, R)>,
    tx: impl Fn(Vec<OwnedFd>) -> Result<T>,
) -> Result<Ends<T, R>> {
    debug_assert_eq!(case.pattern, Pattern::PubSub);
    if let Role::Consumer(index) = role {
        let (theirs, ours) = there()?;
        offer(meet, &format!("there:{index}"), &[theirs])?;
        return Ok(Ends::consumer(index, ours));
    }
    let mut theirs = Vec::new();
    for index in 0..case.consumers() {
        let [there]: [OwnedFd; 1] = meet.want_descriptors(&format!("there:{index}"))?;
        theirs.push(there);
    }
    Ok(Ends::producer(0, tx(theirs)?))
}

fn offer<const N: usize>(meet: &mut Rendezvous, name: &str, descriptors: &[OwnedFd; N]) -> Result<()> {
    meet.offer_descriptors(name, &descriptors.each_ref().map(AsFd::as_fd))
}
