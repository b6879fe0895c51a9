//! A mechanism with a planted defect: it passes everything to a real mechanism, except one message
//! in the middle, or all of them.

use std::io;
use std::process::{Command, Stdio, abort};
use std::time::Duration;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::driver::Ctx;
use estafette_measure::entry::{AsyncValueTransport, Entry, ValueTransport, async_values, bytes, values};
use estafette_measure::executor::Executor;
use estafette_measure::protocol::Report;
use estafette_measure::usage::Usage;
use estafette_measure::window::Window;
use estafette_measure::{
    AsyncMechanism, AsyncTransport, AsyncTx, Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport,
    Tx,
};

/// The kinds of defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    Drop,
    Duplicate,
    Reorder,
    Corrupt,
    Late,
    Hang,
    Crash,
    Leak,
    /// Takes a message and sends nothing: in a ping-pong both sides wait.
    Swallow,
    /// The same with every message, the end mark too.
    SwallowAll,
    /// Changes every message, the end mark too.
    CorruptAll,
    /// Sends, and never asks for the bytes to send.
    Unfilled,
}

impl Defect {
    pub(crate) const ALL: [Defect; 12] = [
        Defect::Drop,
        Defect::Duplicate,
        Defect::Reorder,
        Defect::Corrupt,
        Defect::Late,
        Defect::Hang,
        Defect::Crash,
        Defect::Leak,
        Defect::Swallow,
        Defect::SwallowAll,
        Defect::CorruptAll,
        Defect::Unfilled,
    ];

    /// Whether it happens to every message.
    fn is_lasting(self) -> bool {
        matches!(self, Defect::SwallowAll | Defect::CorruptAll | Defect::Unfilled)
    }
}

/// The sequence number of the faulty message, well into the stream.
const VICTIM: u64 = 100;
/// How long the late message is delayed. The harness allows 1 s.
const LATE: Duration = Duration::from_millis(1_200);

pub(crate) fn plant<M: Transport<Raw>>(mechanism: M, defect: Defect) -> impl Entry {
    Counted(bytes(Planted { mechanism, defect }))
}

pub(crate) fn plant_values<M: ValueTransport>(mechanism: M, defect: Defect) -> impl Entry {
    Counted(values(Planted { mechanism, defect }))
}

pub(crate) fn plant_tasks<M: AsyncValueTransport>(mechanism: M, defect: Defect) -> impl Entry {
    Counted(async_values(Planted { mechanism, defect }))
}

/// An entry whose window is always a number of messages. Every producer sends the faulty message
/// and as many after it, so the defect occurs even with a slow mechanism on a busy machine.
struct Counted<E>(E);

impl<E: Entry> Entry for Counted<E> {
    fn spec(&self) -> &Spec {
        self.0.spec()
    }
    fn mechanism(&self) -> &dyn Mechanism {
        self.0.mechanism()
    }
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
        ctx.window = Window::Count { warmup: VICTIM / 2, messages: 2 * VICTIM * case.producers as u64 };
        self.0.run(case, role, ctx)
    }
}

struct Planted<M> {
    mechanism: M,
    defect: Defect,
}

impl<M: Mechanism> Mechanism for Planted<M> {
    fn spec(&self) -> Spec {
        let spec = self.mechanism.spec();
        Spec { name: format!("{}/{:?}", spec.scope, self.defect).to_lowercase(), ..spec }
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        self.mechanism.supports(case)
    }
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        if self.defect == Defect::Crash {
            abort();
        }
        self.mechanism.effective_capacity(case)
    }
    fn roles(&self, case: &Case) -> Vec<Role> {
        self.mechanism.roles(case)
    }
    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        self.mechanism.broker(case, rendezvous)
    }
}

impl<M: AsyncMechanism> AsyncMechanism for Planted<M> {
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        self.mechanism.executor(case)
    }
}

impl<P, M: Transport<P>> Transport<P> for Planted<M> {
    type Tx = Faulty<M::Tx>;
    type Rx = M::Rx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, M::Rx>> {
        Ok(self.faulty(self.mechanism.open(case, role, rendezvous)?))
    }
}

impl<P, M: AsyncTransport<P>> AsyncTransport<P> for Planted<M> {
    type Tx = Faulty<M::Tx>;
    type Rx = M::Rx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, M::Rx>> {
        Ok(self.faulty(self.mechanism.open(case, role, rendezvous)?))
    }
}

impl<M> Planted<M> {
    /// The ends with the defect. Only the first producer's end is faulty. In a ping-pong it sends
    /// the requests.
    fn faulty<T, R>(&self, Ends(parties): Ends<T, R>) -> Ends<Faulty<T>, R> {
        let parties = parties.into_iter().map(|PartyEnds { role, tx, rx }| {
            let defect = (role == Role::Producer(0)).then_some(self.defect);
            PartyEnds { role, tx: tx.map(|inner| Faulty { inner, defect }), rx }
        });
        Ends(parties.collect())
    }
}

struct Faulty<T> {
    inner: T,
    defect: Option<Defect>,
}

/// What is sent in the place of one message: each part that is there, in this order.
struct Sends {
    before: Option<Generator>,
    message: bool,
    after: Option<Generator>,
}

impl Sends {
    /// The message as it is.
    const MESSAGE: Sends = Sends { before: None, message: true, after: None };
    const NOTHING: Sends = Sends { before: None, message: false, after: None };

    /// A message with another seed: it has the right length and form, but the wrong content.
    fn other(len: usize) -> Sends {
        Sends { before: Some(Generator::new(!0, 0, len)), ..Sends::NOTHING }
    }
}

impl<T> Faulty<T> {
    /// Decides what to send in the place of the next message.
    fn next(&mut self, source: &mut Generator) -> io::Result<Sends> {
        let due = self.defect.filter(|defect| defect.is_lasting() || source.made() == VICTIM);
        let Some(defect) = due else { return Ok(Sends::MESSAGE) };
        if !defect.is_lasting() {
            self.defect = None;
        }
        let mut skipped = vec![0; source.len()];
        Ok(match defect {
            Defect::Drop => {
                source.fill(&mut skipped);
                Sends::MESSAGE
            }
            Defect::Duplicate => Sends { before: Some(source.clone()), ..Sends::MESSAGE },
            Defect::Reorder => {
                let earlier = source.clone();
                source.fill(&mut skipped);
                Sends { after: Some(earlier), ..Sends::MESSAGE }
            }
            Defect::Swallow | Defect::SwallowAll => {
                source.fill(&mut skipped);
                Sends::NOTHING
            }
            Defect::Unfilled => Sends::other(source.len()),
            Defect::Corrupt | Defect::CorruptAll => {
                source.fill(&mut skipped);
                Sends::other(source.len())
            }
            Defect::Late => {
                std::thread::sleep(LATE);
                Sends::MESSAGE
            }
            Defect::Hang => loop {
                std::thread::sleep(LATE);
            },
            Defect::Crash => abort(),
            Defect::Leak => {
                // In a new session, like a daemon, so it is not in the child's process group.
                let mut command = Command::new("setsid");
                command.args(["sleep", "1000"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn()?;
                Sends::MESSAGE
            }
        })
    }
}

impl<T: Tx> Tx for Faulty<T> {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let Sends { mut before, message, mut after } = self.next(source)?;
        let message = message.then_some(source);
        before.as_mut().into_iter().chain(message).chain(after.as_mut()).try_for_each(|one| self.inner.send(one))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: AsyncTx> AsyncTx for Faulty<T> {
    async fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let Sends { mut before, message, mut after } = self.next(source)?;
        let message = message.then_some(source);
        for one in before.as_mut().into_iter().chain(message).chain(after.as_mut()) {
            self.inner.send(one).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().await
    }
}
