//! The common part of all channels of values inside one process. A mechanism's file contains only
//! the rest: its description, how it is opened, and how one message is sent and received.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::executor::Executor;
use estafette_measure::spec::{Ownership, Runtime, Scope, Tier};
use estafette_measure::{
    AsyncMechanism, AsyncRx, AsyncTransport, AsyncTx, Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx,
    Value, Verifier,
};
use futures_util::FutureExt;

use crate::channel_capacity;

/// A channel: its description, and how it is opened. [`ThreadChannel`] or [`TaskChannel`] says how messages are sent and received.
pub(crate) trait Channel: Send + Sync + 'static {
    /// The sending end. A clone is another sender of the same channel.
    type Tx<P: Value>: Clone + Send + 'static;
    /// The receiving end.
    type Rx<P: Value>: Send + 'static;

    /// Returns its description.
    fn spec() -> Spec;

    /// Checks that it supports this capacity and number of senders.
    ///
    /// # Errors
    ///
    /// A reason for the user.
    fn supports(capacity: usize, senders: usize) -> Result<(), String> {
        let _ = (capacity, senders);
        Ok(())
    }

    /// Opens a channel with a capacity in messages for `senders` senders.
    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>);

    /// Returns another receiver of the same channel, if several receivers can share the messages.
    fn receiver<P: Value>(rx: &Self::Rx<P>) -> Option<Self::Rx<P>> {
        let _ = rx;
        None
    }
}

/// A channel whose functions block their thread.
pub(crate) trait ThreadChannel: Channel {
    /// Sends one message.
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Outcome<()>;

    /// Receives one message.
    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Outcome<P>;
}

/// A channel whose functions are futures.
pub(crate) trait TaskChannel: Channel {
    /// Sends one message.
    fn send<P: Value>(tx: &mut Self::Tx<P>, message: P) -> impl Future<Output = impl Outcome<()>> + Send;

    /// Receives one message.
    fn recv<P: Value>(rx: &mut Self::Rx<P>) -> impl Future<Output = impl Outcome<P>> + Send;
}

/// The result of a channel's function: a value, or an error if the other side has closed.
pub(crate) trait Outcome<T> {
    /// Returns the value, or `None` if the other side has closed.
    fn into_option(self) -> Option<T>;
}

impl<T> Outcome<T> for Option<T> {
    #[inline(always)]
    fn into_option(self) -> Option<T> {
        self
    }
}

impl<T, E> Outcome<T> for Result<T, E> {
    #[inline(always)]
    fn into_option(self) -> Option<T> {
        self.ok()
    }
}

/// Returns a description with the properties of most channels: any payload, one receiver, cloned
/// senders.
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
    if spec.scope == Scope::Task { add_pattern(spec.runtimes(&Runtime::TASKS), Pattern::Cancel) } else { spec }
}

/// Adds to a description that several receivers can share the channel.
pub(crate) fn shared(spec: Spec) -> Spec {
    add_pattern(spec, Pattern::Mpmc)
}

fn add_pattern(spec: Spec, pattern: Pattern) -> Spec {
    let patterns = [&*spec.patterns, &[pattern]].concat();
    spec.patterns(&patterns)
}

/// Checks that a capacity can be divided among senders that each have a ring of a power of two.
pub(crate) fn check_ring_capacity(capacity: usize, senders: usize) -> Result<(), String> {
    let each = capacity / senders;
    if each.is_power_of_two() && each * senders == capacity {
        return Ok(());
    }
    Err(format!("each sender's capacity must be a power of two: {capacity} cannot be divided that way among {senders}"))
}

/// A channel between threads as a mechanism.
pub(crate) struct BetweenThreads<C>(PhantomData<C>);

impl<C: ThreadChannel> BetweenThreads<C> {
    pub(crate) fn of(_: C) -> BetweenThreads<C> {
        BetweenThreads(PhantomData)
    }
}

/// A channel between tasks as a mechanism.
pub(crate) struct BetweenTasks<C>(PhantomData<C>);

impl<C: TaskChannel> BetweenTasks<C> {
    pub(crate) fn of(_: C) -> BetweenTasks<C> {
        BetweenTasks(PhantomData)
    }
}

impl<C: ThreadChannel> Mechanism for BetweenThreads<C> {
    fn spec(&self) -> Spec {
        C::spec()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        C::supports(case.capacity, case.sending())
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        channel_capacity::of_threads::<C>(case.capacity, case.sending())
    }
}

impl<C: TaskChannel> Mechanism for BetweenTasks<C> {
    fn spec(&self) -> Spec {
        C::spec()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        C::supports(case.capacity, case.sending())
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        channel_capacity::of_tasks::<C>(case.capacity, case.sending())
    }
}

impl<C: TaskChannel> AsyncMechanism for BetweenTasks<C> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        crate::runtime::executor(case)
    }
}

/// Opens the ends of all parties of a case.
fn open<C: Channel, P: Value>(case: &Case) -> Result<Ends<SendEnd<C, P>, RecvEnd<C, P>>> {
    let open = || {
        let (tx, rx) = C::open(case.capacity, case.sending());
        (SendEnd::<C, P>(tx), RecvEnd::<C, P>(rx))
    };
    if !case.pattern.has_several_parties() {
        return Ends::pair(case, || Ok(open()));
    }
    let (tx, rx) = open();
    let mut txs: Vec<_> = (1..case.sending()).map(|_| SendEnd(tx.0.clone())).collect();
    txs.push(tx);
    let mut rxs: Vec<_> = (1..case.consumers()).filter_map(|_| C::receiver(&rx.0).map(RecvEnd)).collect();
    rxs.push(rx);
    anyhow::ensure!(rxs.len() == case.consumers(), "{} has one receiver", case.mechanism);
    Ok(Ends::many(txs, rxs))
}

impl<C: ThreadChannel, P: Value> Transport<P> for BetweenThreads<C> {
    type Tx = SendEnd<C, P>;
    type Rx = RecvEnd<C, P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open(case)
    }
}

impl<C: TaskChannel, P: Value> AsyncTransport<P> for BetweenTasks<C> {
    type Tx = SendEnd<C, P>;
    type Rx = RecvEnd<C, P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open(case)
    }
}

/// The sending end.
pub(crate) struct SendEnd<C: Channel, P: Value>(pub(crate) C::Tx<P>);

/// The receiving end.
pub(crate) struct RecvEnd<C: Channel, P: Value>(C::Rx<P>);

impl<C: ThreadChannel, P: Value> Tx for SendEnd<C, P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        C::send(&mut self.0, P::make(source)).into_option().ok_or_else(|| ErrorKind::BrokenPipe.into())
    }
}

impl<C: ThreadChannel, P: Value> Rx for RecvEnd<C, P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        C::recv(&mut self.0).into_option().ok_or(ErrorKind::UnexpectedEof)?.check(verifier);
        Ok(())
    }
}

// The loops are around the channel's own future, as in a user's program. A wrapper future per
// message would have to move that future, which costs up to as much as a whole message of the
// fastest channels.

impl<C: TaskChannel, P: Value> AsyncTx for SendEnd<C, P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        let send = C::send(&mut self.0, P::make(source));
        send.map(|sent| sent.into_option().ok_or_else(|| ErrorKind::BrokenPipe.into()))
    }

    #[inline(always)]
    async fn send_all(&mut self, source: &mut Generator, count: u64) -> io::Result<()> {
        for _ in 0..count {
            C::send(&mut self.0, P::make(source)).await.into_option().ok_or(ErrorKind::BrokenPipe)?;
        }
        Ok(())
    }
}

impl<C: TaskChannel, P: Value> AsyncRx for RecvEnd<C, P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        C::recv(&mut self.0).map(|received| {
            let message: P = received.into_option().ok_or(ErrorKind::UnexpectedEof)?;
            message.check(verifier);
            Ok(())
        })
    }

    #[inline(always)]
    async fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        for _ in 0..count {
            C::recv(&mut self.0).await.into_option().ok_or(ErrorKind::UnexpectedEof)?.check(verifier);
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }
}
