//! Channels as mechanisms: opens the ends of all parties, and calls the channel for each message.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::executor::Executor;
use estafette_measure::{
    AsyncMechanism, AsyncRx, AsyncTransport, AsyncTx, Ends, Generator, Mechanism, PartyEnds, Rendezvous, Rx, Spec,
    Transport, Tx, Value, Verifier,
};
use futures_util::FutureExt;

use super::{Channel, Outcome, TaskChannel, ThreadChannel, probe};

/// A channel between threads as a mechanism.
pub struct BetweenThreads<C>(PhantomData<C>);

impl<C: ThreadChannel> BetweenThreads<C> {
    /// Makes a mechanism of a channel.
    pub fn of(_: C) -> BetweenThreads<C> {
        BetweenThreads(PhantomData)
    }
}

/// A channel between tasks as a mechanism.
pub struct BetweenTasks<C>(PhantomData<C>);

impl<C: TaskChannel> BetweenTasks<C> {
    /// Makes a mechanism of a channel.
    pub fn of(_: C) -> BetweenTasks<C> {
        BetweenTasks(PhantomData)
    }
}

impl<C: ThreadChannel> Mechanism for BetweenThreads<C> {
    fn spec(&self) -> Spec {
        C::spec()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        C::supports(case.capacity, case.senders())
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        probe::of_threads::<C>(case.capacity, case.senders())
    }
}

impl<C: TaskChannel> Mechanism for BetweenTasks<C> {
    fn spec(&self) -> Spec {
        C::spec()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        C::supports(case.capacity, case.senders())
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        probe::of_tasks::<C>(case.capacity, case.senders())
    }
}

impl<C: TaskChannel> AsyncMechanism for BetweenTasks<C> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        super::executor(case)
    }
}

/// Opens the ends of all parties of a case.
fn open<C: Channel, P: Value>(case: &Case) -> Result<Ends<SendEnd<C, P>, RecvEnd<C, P>>> {
    let open = || {
        let (tx, rx) = C::open(case.capacity, case.senders());
        (SendEnd::<C, P>(tx), RecvEnd::<C, P>(rx))
    };
    if !case.pattern.has_several_parties() {
        return Ends::pair(case, || Ok(open()));
    }
    let (tx, rx) = open();
    // Not `Ends::many`: its iterators would be compiled for each channel and type of message.
    let mut parties = Vec::with_capacity(case.senders() + case.consumers());
    for index in 1..case.senders() {
        parties.push(PartyEnds { role: Role::Producer(index), tx: Some(SendEnd(tx.0.clone())), rx: None });
    }
    for index in 1..case.consumers() {
        let Some(rx) = C::receiver(&rx.0) else { anyhow::bail!("{} has one receiver", case.mechanism) };
        parties.push(PartyEnds { role: Role::Consumer(index), tx: None, rx: Some(RecvEnd(rx)) });
    }
    parties.push(PartyEnds { role: Role::Producer(0), tx: Some(tx), rx: None });
    parties.push(PartyEnds { role: Role::Consumer(0), tx: None, rx: Some(rx) });
    Ok(Ends(parties))
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
pub struct SendEnd<C: Channel, P: Value>(pub C::Tx<P>);

/// The receiving end.
pub struct RecvEnd<C: Channel, P: Value>(C::Rx<P>);

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
