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

/// A channel whose ends are made from file descriptors. The fields are functions.
pub struct DescriptorChannel<Forward, Reply, MakeTx, MakeRx> {
    /// Creates the channel for messages, at the consumer. Returns the producer's descriptors and
    /// the consumer's end.
    pub forward: Forward,
    /// Creates a channel for replies, at the consumer. Returns the producer's descriptors and the
    /// consumer's end, which sends.
    pub reply: Reply,
    /// Makes the producer's end from descriptors of `forward`.
    pub tx: MakeTx,
    /// Makes the producer's end from descriptors of `reply`. This end receives.
    pub rx: MakeRx,
}

impl<Forward, Reply, MakeTx, MakeRx> DescriptorChannel<Forward, Reply, MakeTx, MakeRx> {
    /// Opens a party's ends. Several producers share the channel for messages. In patterns with
    /// replies each has a channel of its own for them.
    ///
    /// # Errors
    ///
    /// If an end cannot be created, or the other party has exited.
    pub fn open<T, R, const N: usize>(self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<T, R>>
    where
        Forward: Fn() -> Result<([OwnedFd; N], R)>,
        Reply: Fn() -> Result<([OwnedFd; N], T)>,
        MakeTx: Fn([OwnedFd; N]) -> Result<T>,
        MakeRx: Fn([OwnedFd; N]) -> Result<R>,
    {
        let has_reply = case.pattern.is_bidirectional();
        if let Role::Producer(index) = role {
            let tx = (self.tx)(rendezvous.request_descriptors("forward")?)?;
            if !has_reply {
                return Ok(Ends::producer(index, tx));
            }
            let rx = (self.rx)(rendezvous.request_descriptors(&format!("reply:{index}"))?)?;
            return Ok(Ends::both(role, tx, rx));
        }
        let (theirs, ours) = (self.forward)()?;
        publish(rendezvous, "forward", &theirs)?;
        if !has_reply {
            return Ok(Ends::consumer(0, ours));
        }
        let mut txs = Vec::new();
        for client in 0..case.producers {
            let (theirs, ours) = (self.reply)()?;
            publish(rendezvous, &format!("reply:{client}"), &theirs)?;
            txs.push(ours);
        }
        match <[T; 1]>::try_from(txs) {
            Ok([tx]) => Ok(Ends::both(role, tx, ours)),
            Err(txs) => Ok(Ends::server(ours, txs)),
        }
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
    forward: impl Fn() -> Result<([OwnedFd; 1], R)>,
    tx: impl Fn(Vec<OwnedFd>) -> Result<T>,
) -> Result<Ends<T, R>> {
    debug_assert_eq!(case.pattern, Pattern::PubSub);
    if let Role::Consumer(index) = role {
        let (theirs, ours) = forward()?;
        publish(rendezvous, &format!("forward:{index}"), &theirs)?;
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
