//! How two ends come by what lies between them, where that is a descriptor: the consumer makes it, and hands it on.

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
    let answers = case.pattern.both_ways();
    match role {
        Role::Consumer(_) if answers => {
            let ((theirs, ours), (answers, answer)) = (there()?, back()?);
            meet.offer_descriptors("both", &[theirs.as_fd(), answers.as_fd()])?;
            Ok(Ends::both(role, answer, ours))
        }
        Role::Producer(_) if answers => {
            let [there, back] = meet.want_descriptors("both")?;
            Ok(Ends::both(role, tx(there)?, rx(back)?))
        }
        Role::Producer(index) => {
            let [there]: [OwnedFd; 1] = meet.want_descriptors("there")?;
            Ok(Ends::producer(index, tx(there)?))
        }
        _ => {
            let (theirs, ours) = there()?;
            meet.offer_descriptors("there", &[theirs.as_fd()])?;
            Ok(Ends::consumer(0, ours))
        }
    }
}
