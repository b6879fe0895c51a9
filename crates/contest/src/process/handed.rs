//! How two ends come by what lies between them, where that is a descriptor: the consumer makes it, and hands it on.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Rendezvous};

/// Opens a party's ends. The consumer makes what messages come on, and where they are answered what the answers go on:
/// `there` and `back` return the descriptor for the producer and the consumer's own end. The producer makes its ends of
/// these descriptors with `tx` and `rx`. Several producers share what messages come on; each has answers of its own.
pub(super) fn open<T, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl Fn() -> Result<(OwnedFd, R)>,
    back: impl Fn() -> Result<(OwnedFd, T)>,
    tx: impl Fn(OwnedFd) -> Result<T>,
    rx: impl Fn(OwnedFd) -> Result<R>,
) -> Result<Ends<T, R>> {
    let answers = case.pattern.both_ways();
    match role {
        Role::Consumer(_) if answers => {
            let (theirs, ours) = there()?;
            let mut txs = Vec::new();
            for client in 0..case.producers {
                let (answers, answer) = back()?;
                meet.offer_descriptors(&format!("both:{client}"), &[theirs.as_fd(), answers.as_fd()])?;
                txs.push(answer);
            }
            match <[T; 1]>::try_from(txs) {
                Ok([tx]) => Ok(Ends::both(role, tx, ours)),
                Err(txs) => Ok(Ends::server(ours, txs)),
            }
        }
        Role::Producer(client) if answers => {
            let [there, back] = meet.want_descriptors(&format!("both:{client}"))?;
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

/// Opens a party's ends where one publishes to several: each subscriber makes what its messages come on, and the publisher
/// makes one end of all their descriptors.
pub(super) fn publish<T, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    there: impl Fn() -> Result<(OwnedFd, R)>,
    tx: impl Fn(Vec<OwnedFd>) -> Result<T>,
) -> Result<Ends<T, R>> {
    debug_assert_eq!(case.pattern, Pattern::PubSub);
    if let Role::Consumer(index) = role {
        let (theirs, ours) = there()?;
        meet.offer_descriptors(&format!("there:{index}"), &[theirs.as_fd()])?;
        return Ok(Ends::consumer(index, ours));
    }
    let mut theirs = Vec::new();
    for index in 0..case.consumers() {
        let [there]: [OwnedFd; 1] = meet.want_descriptors(&format!("there:{index}"))?;
        theirs.push(there);
    }
    Ok(Ends::producer(0, tx(theirs)?))
}
