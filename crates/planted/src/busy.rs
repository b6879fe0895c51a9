//! A channel between tasks whose receiver keeps the thread after each message. If the sender runs
//! on the same thread and sends at set times, it is late before the mechanism has the message, so
//! the instance does not count.

use std::io;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::executor::Executor;
use estafette_measure::{
    AsyncMechanism, AsyncRx, AsyncTransport, Ends, Mechanism, PartyEnds, Rendezvous, Spec, Verifier,
};

/// How long the receiver keeps the thread: several times as long as the time between two messages
/// at 1,000 a second.
const BUSY: Duration = Duration::from_millis(5);

/// `task/busy`, around a real channel.
pub(crate) struct Busy<M>(pub(crate) M);

impl<M: Mechanism> Mechanism for Busy<M> {
    fn spec(&self) -> Spec {
        Spec { name: String::from("task/busy"), ..self.0.spec() }
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        self.0.supports(case)
    }
    fn roles(&self, case: &Case) -> Vec<Role> {
        self.0.roles(case)
    }
}

impl<M: AsyncMechanism> AsyncMechanism for Busy<M> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        self.0.executor(case)
    }
}

impl<P, M: AsyncTransport<P>> AsyncTransport<P> for Busy<M> {
    type Tx = M::Tx;
    type Rx = BusyRx<M::Rx>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<M::Tx, Self::Rx>> {
        let Ends(parties) = self.0.open(case, role, rendezvous)?;
        let parties = parties.into_iter().map(|PartyEnds { role, tx, rx }| PartyEnds { role, tx, rx: rx.map(BusyRx) });
        Ok(Ends(parties.collect()))
    }
}

/// The receiving end.
pub(crate) struct BusyRx<R>(R);

impl<R: AsyncRx> AsyncRx for BusyRx<R> {
    async fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.recv(verifier).await?;
        // Not the runtime's sleep: other tasks of the thread have to wait.
        sleep(BUSY);
        Ok(())
    }
}
