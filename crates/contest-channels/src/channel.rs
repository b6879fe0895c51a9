//! Channels of values inside one process: what all of them have in common, so that a mechanism's file holds what is its
//! own: what it says of itself, how it is opened, one message sent, one received.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::entry::{Entry, values};
use estafette_measure::executor::Executor;
use estafette_measure::spec::{Ownership, Runtime, Scope, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use futures_util::FutureExt;
use futures_util::future::{Either, ready};

use crate::channel_capacity;

/// A channel. Its functions are futures; one that blocks is ready at once.
pub(crate) trait Channel: Send + Sync + 'static {
    /// Whether its functions block.
    const BLOCKS: bool;
    /// The sending end. A clone is another sender of the same channel.
    type Tx<P: Value>: Clone + Send + 'static;
    /// The receiving end.
    type Rx<P: Value>: Send + 'static;

    /// What it says of itself.
    fn spec() -> Spec;

    /// Whether it can have this capacity with so many senders.
    ///
    /// # Errors
    /// Why not, for the user.
    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        let _ = (capacity, senders);
        Ok(())
    }

    /// Opens one for so many messages under way and so many senders.
    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>);

    /// Another receiver of the same channel, where messages can be shared out.
    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        let _ = rx;
        None
    }

    /// Sends one message.
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send;

    /// Receives one message.
    fn receive<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send;
}

/// What a channel's own functions return: something, or that the other side has gone.
pub(crate) trait Outcome<T> {
    /// What it holds, where the other side is still there.
    fn got(self) -> Option<T>;
}

impl<T> Outcome<T> for Option<T> {
    #[inline(always)]
    fn got(self) -> Option<T> {
        self
    }
}

impl<T, E> Outcome<T> for Result<T, E> {
    #[inline(always)]
    fn got(self) -> Option<T> {
        self.ok()
    }
}

/// A description with what most channels answer: any payload, one receiver, cloned senders.
pub(crate) fn spec(name: &str, version: &str, implementation: &str) -> Spec {
    let spec = Spec::new(name)
        .version(version)
        .implementation(implementation)
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::Burst])
        .payloads(&[
            PayloadKind::U64,
            PayloadKind::Bytes,
            PayloadKind::Inline,
            PayloadKind::Shared,
            PayloadKind::Unread,
        ])
        .ownership(Ownership::Owned)
        .max_producers(None)
        .tier(Tier::Suite);
    if spec.scope == Scope::Task { with(spec.runtimes(&Runtime::TASKS), Pattern::Cancel) } else { spec }
}

/// The description of a channel that several receivers can share.
pub(crate) fn shared(spec: Spec) -> Spec {
    with(spec, Pattern::Mpmc)
}

fn with(spec: Spec, pattern: Pattern) -> Spec {
    let patterns = [&*spec.patterns, &[pattern]].concat();
    spec.patterns(&patterns)
}

/// Whether a capacity can be shared out among senders that each have a ring of a power of two.
pub(crate) fn in_rings(capacity: usize, senders: usize) -> Result<(), String> {
    let each = capacity / senders;
    if each.is_power_of_two() && each * senders == capacity {
        return Ok(());
    }
    Err(format!("its capacity is a power of two for each sender: {capacity} cannot be shared out among {senders}"))
}

/// A channel as an entry.
pub(crate) fn channel<C: Channel>(channel: C) -> impl Entry {
    values(Between::of(channel))
}

/// A channel as a mechanism.
pub(crate) struct Between<C>(PhantomData<C>);

impl<C: Channel> Between<C> {
    pub(crate) fn of(_: C) -> Between<C> {
        Between(PhantomData)
    }
}

impl<C: Channel> Mechanism for Between<C> {
    const BLOCKS: bool = C::BLOCKS;

    fn spec(&self) -> Spec {
        C::spec()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        C::supports(case.capacity, case.producers)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        channel_capacity::tried::<C>(case.capacity, case.producers)
    }

    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        crate::runtime::executor(case)
    }
}

impl<C: Channel, P: Value> Transport<P> for Between<C> {
    type Tx = Sending<C, P>;
    type Rx = Receiving<C, P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let open = || {
            let (tx, rx) = C::open(case.capacity, case.producers);
            (Sending::<C, P>(tx), Receiving::<C, P>(rx))
        };
        if !case.pattern.gathers() {
            return Ends::pair(case, || Ok(open()));
        }
        let (tx, rx) = open();
        let mut txs: Vec<_> = (1..case.producers).map(|_| Sending(tx.0.clone())).collect();
        txs.push(tx);
        let mut rxs: Vec<_> = (1..case.consumers()).filter_map(|_| C::receiver(&rx.0).map(Receiving)).collect();
        rxs.push(rx);
        anyhow::ensure!(rxs.len() == case.consumers(), "{} has one receiver", case.mechanism);
        Ok(Ends::many(txs, rxs))
    }
}

// The loops of tasks stand here, around the channel's own future, as they would in a user's program: wrapped once more a
// message, that future is moved about, which costs up to as much as the fastest channels take in all. A channel that blocks
// is ready at once, so its message is made or checked in the call.

/// The sending end.
pub(crate) struct Sending<C: Channel, P: Value>(pub(crate) C::Tx<P>);

impl<C: Channel, P: Value> Tx for Sending<C, P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        let send = C::send(&mut self.0, P::make(source));
        if C::BLOCKS {
            let sent = send.now_or_never().and_then(Outcome::got);
            return Either::Left(ready(sent.ok_or_else(|| ErrorKind::BrokenPipe.into())));
        }
        Either::Right(send.map(|sent| sent.got().ok_or_else(|| ErrorKind::BrokenPipe.into())))
    }

    #[inline(always)]
    async fn send_all(&mut self, source: &mut Generator, count: u64) -> io::Result<()> {
        for _ in 0..count {
            C::send(&mut self.0, P::make(source)).await.got().ok_or(ErrorKind::BrokenPipe)?;
        }
        Ok(())
    }
}

/// The receiving end.
pub(crate) struct Receiving<C: Channel, P: Value>(C::Rx<P>);

impl<C: Channel, P: Value> Rx for Receiving<C, P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        let receive = C::receive(&mut self.0);
        if C::BLOCKS {
            let Some(message) = receive.now_or_never().and_then(Outcome::got) else {
                return Either::Left(ready(Err(ErrorKind::UnexpectedEof.into())));
            };
            message.check(verifier);
            return Either::Left(ready(Ok(())));
        }
        Either::Right(receive.map(|received| {
            let message: P = received.got().ok_or(ErrorKind::UnexpectedEof)?;
            message.check(verifier);
            Ok(())
        }))
    }

    #[inline(always)]
    async fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        for _ in 0..count {
            C::receive(&mut self.0).await.got().ok_or(ErrorKind::UnexpectedEof)?.check(verifier);
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }
}
