//! How two ends come by what lies between them, where that is descriptors: the consumer makes it, and hands it on.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::{Ends, Rendezvous};

/// Opens a party's ends. The consumer makes what messages come on, and where they are answered what the answers go on:
/// `there` and `back` return the descriptor for the producer and the consumer's own end. The producer makes its ends of
/// these descriptors with `tx` and `rx`. With several producers all of them have the same one.
pub(super) fn open<T, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl FnOnce() -> Result<(OwnedFd, R)>,
    back: impl FnOnce() -> Result<(OwnedFd, T)>,
    tx: impl FnOnce(OwnedFd) -> Result<T>,
    rx: impl FnOnce(OwnedFd) -> Result<R>,
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
pub(super) fn open_several<T, R, const N: usize>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl FnOnce() -> Result<([OwnedFd; N], R)>,
    back: impl FnOnce() -> Result<([OwnedFd; N], T)>,
    tx: impl FnOnce([OwnedFd; N]) -> Result<T>,
    rx: impl FnOnce([OwnedFd; N]) -> Result<R>,
) -> Result<Ends<T, R>> {
    let answers = case.pattern.both_ways();
    match role {
        Role::Producer(index) => {
            let tx = tx(meet.want_descriptors("there")?)?;
            match answers {
                true => Ok(Ends::both(role, tx, rx(meet.want_descriptors("back")?)?)),
                false => Ok(Ends::producer(index, tx)),
            }
        }
        _ => {
            let (theirs, ours) = there()?;
            offer(meet, "there", &theirs)?;
            if !answers {
                return Ok(Ends::consumer(0, ours));
            }
            let (theirs, answer) = back()?;
            offer(meet, "back", &theirs)?;
            Ok(Ends::both(role, answer, ours))
        }
    }
}

fn offer<const N: usize>(meet: &mut Rendezvous, name: &str, descriptors: &[OwnedFd; N]) -> Result<()> {
    meet.offer_descriptors(name, &descriptors.each_ref().map(AsFd::as_fd))
}
