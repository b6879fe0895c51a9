//! Opens ends that communicate over file descriptors. The consumer creates the descriptors and
//! passes one to the producer.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Rendezvous};

/// Returns this party's socket of a bidirectional pair. The consumer creates the pair and passes
/// one socket to the producer.
///
/// # Errors
///
/// If an end cannot be created, or the other party has exited.
pub fn of_pair<S, E>(
    role: Role,
    rendezvous: &mut Rendezvous,
    pair: impl FnOnce() -> Result<(S, S), E>,
) -> Result<OwnedFd>
where
    S: Into<OwnedFd>,
    anyhow::Error: From<E>,
{
    if let Role::Consumer(_) = role {
        let (ours, theirs) = pair()?;
        publish(rendezvous, "socket", &[theirs.into()])?;
        return Ok(ours.into());
    }
    let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors("socket")?;
    Ok(socket)
}

/// Opens a party's ends.
///
/// The consumer creates the forward channel with `forward`, and in patterns with replies the reply
/// channel with `reply`. Both closures return the producer's descriptor and the consumer's own end.
/// The producer makes its ends from the descriptors with `tx` and `rx`. Several producers share the
/// forward channel; each has a reply channel of its own.
///
/// # Errors
///
/// If an end cannot be created, or the other party has exited.
pub fn open<T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    forward: impl Fn() -> Result<(OwnedFd, R)>,
    reply: impl Fn() -> Result<(OwnedFd, T)>,
    tx: impl Fn(OwnedFd) -> Result<T>,
    rx: impl Fn(OwnedFd) -> Result<R>,
) -> Result<Ends<T, R>> {
    open_several(
        case,
        role,
        rendezvous,
        || forward().map(|(theirs, ours)| ([theirs], ours)),
        || reply().map(|(theirs, ours)| ([theirs], ours)),
        |[forward]| tx(forward),
        |[reply]| rx(reply),
    )
}

/// Like [`open`], with `N` descriptors for each direction.
///
/// # Errors
///
/// If an end cannot be created, or the other party has exited.
pub fn open_several<T, R, const N: usize>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    forward: impl Fn() -> Result<([OwnedFd; N], R)>,
    reply: impl Fn() -> Result<([OwnedFd; N], T)>,
    tx: impl Fn([OwnedFd; N]) -> Result<T>,
    rx: impl Fn([OwnedFd; N]) -> Result<R>,
) -> Result<Ends<T, R>> {
    let has_reply = case.pattern.is_bidirectional();
    if let Role::Producer(index) = role {
        let tx = tx(rendezvous.request_descriptors("forward")?)?;
        return match has_reply {
            true => Ok(Ends::both(role, tx, rx(rendezvous.request_descriptors(&format!("reply:{index}"))?)?)),
            false => Ok(Ends::producer(index, tx)),
        };
    }
    let (theirs, ours) = forward()?;
    publish(rendezvous, "forward", &theirs)?;
    if !has_reply {
        return Ok(Ends::consumer(0, ours));
    }
    let mut txs = Vec::new();
    for client in 0..case.producers {
        let (theirs, ours) = reply()?;
        publish(rendezvous, &format!("reply:{client}"), &theirs)?;
        txs.push(ours);
    }
    match <[T; 1]>::try_from(txs) {
        Ok([tx]) => Ok(Ends::both(role, tx, ours)),
        Err(txs) => Ok(Ends::server(ours, txs)),
    }
}

/// Opens a party's ends for one publisher and several subscribers. Each subscriber creates its own
/// channel with `forward`. The publisher makes one end from all their descriptors with `tx`.
///
/// # Errors
///
/// If an end cannot be created, or the other party has exited.
pub fn open_pub_sub<T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    forward: impl Fn() -> Result<(OwnedFd, R)>,
    tx: impl Fn(Vec<OwnedFd>) -> Result<T>,
) -> Result<Ends<T, R>> {
    debug_assert_eq!(case.pattern, Pattern::PubSub);
    if let Role::Consumer(index) = role {
        let (theirs, ours) = forward()?;
        publish(rendezvous, &format!("forward:{index}"), &[theirs])?;
        return Ok(Ends::consumer(index, ours));
    }
    let mut theirs = Vec::new();
    for index in 0..case.consumers() {
        let [forward]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("forward:{index}"))?;
        theirs.push(forward);
    }
    Ok(Ends::producer(0, tx(theirs)?))
}

fn publish<const N: usize>(rendezvous: &mut Rendezvous, name: &str, descriptors: &[OwnedFd; N]) -> Result<()> {
    rendezvous.publish_descriptors(name, &descriptors.each_ref().map(AsFd::as_fd))
}
