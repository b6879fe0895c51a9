//! The seam: what a way to pass a message must offer to be measured.
//!
//! A mechanism is opened once in each child process of an instance; from then on the timed loops of
//! [`crate::driver`] call its ends directly. Types are erased once per instance and never per message.

use std::future::Future;
use std::io;

use anyhow::{Result, bail};

use crate::batch::blocking::block;
use crate::case::{Case, Pattern, Role};
use crate::executor::{Executor, Threads};
use crate::message::{Generator, Verifier};
use crate::pipeline::PipelineEnd;
use crate::rendezvous::Rendezvous;
use crate::spec::Spec;
use crate::usage::Usage;

/// The sending end.
///
/// One method serves every kind of end, because the end decides in which shape it takes the message:
/// `source.word()` or [`Value::make`](crate::Value::make) for a value to give away, `source.fill(&mut buffer)` for
/// bytes to copy out of the end's own buffer, or the same on memory that the mechanism lends.
pub trait Tx: Send + 'static {
    /// Sends the next message: takes exactly one out of `source`. An end that blocks does so inside and is ready at once;
    /// one of a few nanoseconds does its work in the call and returns [`std::future::ready`], which is always inlined.
    ///
    /// # Errors
    /// When the message cannot be sent: the other side has gone.
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends so many messages, one after the other. The timed loops call this. An end whose [`Tx::send`] has to wrap the
    /// future of another overrides it with the same loop around that future.
    ///
    /// # Errors
    /// Those of [`Tx::send`].
    #[inline(always)]
    fn send_all(&mut self, source: &mut Generator, count: u64) -> impl Future<Output = io::Result<()>> + Send {
        async move {
            for _ in 0..count {
                self.send(source).await?;
            }
            Ok(())
        }
    }

    /// Makes sure that everything sent so far is on its way. Called after the last message, never inside a window; but of several
    /// connections each time it is another one's turn, and where messages may be lost, now and then before it is asked how much
    /// of what was sent has arrived.
    ///
    /// # Errors
    /// When it cannot be sent.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The receiving end.
pub trait Rx: Send + 'static {
    /// Receives one message and shows all of its bytes to `verifier`.
    ///
    /// # Errors
    /// When no message will come: the other side has gone. A mechanism that may lose messages gives up after some
    /// milliseconds without one, with [`io::ErrorKind::TimedOut`], so that the loop can look at the clock.
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives so many messages, or until every producer has ended ([`Verifier::ended`]). The timed loops call this; it
    /// is overridden as [`Tx::send_all`] is.
    ///
    /// # Errors
    /// Those of [`Rx::recv`].
    #[inline(always)]
    fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> impl Future<Output = io::Result<()>> + Send {
        async move {
            for _ in 0..count {
                self.recv(verifier).await?;
                if verifier.ended() {
                    break;
                }
            }
            Ok(())
        }
    }

    /// As [`Rx::recv_all`], of an end that blocks. One that is told of messages by a callback overrides it.
    ///
    /// # Errors
    /// Those of [`Rx::recv`].
    #[inline(always)]
    fn recv_all_blocking(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        for _ in 0..count {
            block(self.recv(verifier))?;
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }
}

/// The ends that one party of the pattern holds.
#[derive(Debug)]
pub struct PartyEnds<T, R> {
    /// Whose they are: a producer or a consumer.
    pub role: Role,
    /// What it sends with.
    pub tx: Option<T>,
    /// What it receives with.
    pub rx: Option<R>,
}

/// The ends opened in one child process: those of every party it hosts.
#[derive(Debug)]
pub struct Ends<T, R>(pub Vec<PartyEnds<T, R>>);

impl<T, R> Ends<T, R> {
    /// A producer that only sends.
    pub fn producer(index: usize, tx: T) -> Self {
        Ends(vec![PartyEnds { role: Role::Producer(index), tx: Some(tx), rx: None }])
    }

    /// A consumer that only receives.
    pub fn consumer(index: usize, rx: R) -> Self {
        Ends(vec![PartyEnds { role: Role::Consumer(index), tx: None, rx: Some(rx) }])
    }

    /// A party of a ping-pong, which does both; where one thread plays all, both ends of the way.
    pub fn both(role: Role, tx: T, rx: R) -> Self {
        let role = if role == Role::All { Role::Producer(0) } else { role };
        Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }])
    }

    /// A server that hears all its clients on one end and answers each on an end of its own: those of the clients 0, 1, 2
    /// and so on. Where one end answers all of them, it is told whom by [`Generator::producer`].
    pub fn server(rx: R, txs: impl IntoIterator<Item = T>) -> Self {
        let role = Role::Consumer(0);
        let mut ends = Ends::consumer(0, rx);
        ends.0.extend(txs.into_iter().map(|tx| PartyEnds { role, tx: Some(tx), rx: None }));
        ends
    }

    /// Every end of a case inside one process, for a channel that joins one sender and one receiver.
    ///
    /// # Errors
    /// Those of `open`, and for a pattern with several producers.
    pub fn pair(case: &Case, open: impl Fn() -> Result<(T, R)>) -> Result<Self> {
        let (tx, rx) = open()?;
        let (client, server) = (Role::Producer(0), Role::Consumer(0));
        match case.pattern {
            Pattern::PingPong => {
                let (back_tx, back_rx) = open()?;
                let asking = PartyEnds { role: client, tx: Some(tx), rx: Some(back_rx) };
                Ok(Ends(vec![asking, PartyEnds { role: server, tx: Some(back_tx), rx: Some(rx) }]))
            }
            Pattern::Stream | Pattern::Cancel | Pattern::Burst => Ok(Ends::many([tx], [rx])),
            pattern => bail!("one sender and one receiver cannot play {pattern}"),
        }
    }

    /// Every end of a case inside one process, for a channel whose sender can be cloned.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn cloned(case: &Case, open: impl Fn() -> Result<(T, R)>) -> Result<Self>
    where
        T: Clone,
    {
        if case.pattern != Pattern::FanIn {
            return Ends::pair(case, open);
        }
        let (tx, rx) = open()?;
        Ok(Ends::many((0..case.producers).map(|_| tx.clone()), [rx]))
    }

    /// Several producers' ends, or consumers', inside one process: those of a case that one process plays, of the threads that
    /// write to one connection, or of each of several connections. Where one end sends on all of these, it is the only
    /// producer's, and told which one by [`Generator::producer`].
    pub fn many(txs: impl IntoIterator<Item = T>, rxs: impl IntoIterator<Item = R>) -> Self {
        let mut ends = Ends(Vec::new());
        for (index, tx) in (0..).zip(txs) {
            ends.0.push(PartyEnds { role: Role::Producer(index), tx: Some(tx), rx: None });
        }
        for (index, rx) in (0..).zip(rxs) {
            ends.0.push(PartyEnds { role: Role::Consumer(index), tx: None, rx: Some(rx) });
        }
        ends
    }
}

/// What every mechanism says and does, whatever it carries.
pub trait Mechanism: Send + Sync + 'static {
    /// Whether its ends block the thread that calls them. False where they are futures of a runtime, for which
    /// [`Mechanism::executor`] must then be given.
    const BLOCKS: bool = true;

    /// Its description.
    fn spec(&self) -> Spec;

    /// Whether it can take part in this case, beyond what the description says. The instrument has checked patterns,
    /// payloads, sizes, wait modes and numbers of producers by then.
    ///
    /// # Errors
    /// The reason, for the user, where it cannot.
    fn supports(&self, case: &Case) -> Result<(), String> {
        let _ = case;
        Ok(())
    }

    /// How many messages may really be under way in this case, where that can be tried within some milliseconds: the
    /// capacity that counts, whatever is called by that name.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let _ = case;
        None
    }

    /// The child processes of an instance: one that plays all, where the scope lies inside a process, otherwise one
    /// for each party. Where the pattern has all that send in one process, that is producer 0's, which opens the ends of all.
    fn roles(&self, case: &Case) -> Vec<Role> {
        if case.scope.in_process() || case.pattern.in_one_thread() {
            return vec![Role::All];
        }
        // Consumers first: they are the ones who wait.
        let (producers, consumers) = match case.pattern {
            Pattern::PubSub => (1, case.producers),
            pattern if pattern.in_one_process() => (1, 1),
            _ => (case.producers, 1),
        };
        (0..consumers).map(Role::Consumer).chain((0..producers).map(Role::Producer)).collect()
    }

    /// What the parties run on. Threads, unless the mechanism needs a runtime.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        let _ = case;
        Ok(Box::new(Threads))
    }

    /// Plays the broker, where [`Mechanism::roles`] has one: opens its side, waits at the barrier
    /// ([`Rendezvous::ready`]) and passes messages on until the last has gone by, or every party has reported
    /// ([`Rendezvous::over`]). Returns what processes that it started have spent since the barrier.
    ///
    /// # Errors
    /// When it cannot.
    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        let _ = rendezvous;
        bail!("{} has no broker", case.mechanism)
    }

    /// Plays a role of a pipeline ([`Pattern::is_pipeline`]), all ends of it where that is [`Role::All`]: prepares it, waits at
    /// the barrier ([`Rendezvous::ready`]), then sends or receives `messages` and one more, which is marked as the last. Returns
    /// what its ends have done. Processes that it starts must have been waited for by then.
    ///
    /// # Errors
    /// When it cannot.
    fn pipeline(
        &self,
        case: &Case,
        role: Role,
        messages: u64,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<PipelineEnd>> {
        let _ = (role, messages, rendezvous);
        bail!("{} has no {}", case.mechanism, case.pattern)
    }

    /// About how many times longer a message of a pipeline takes than between two native processes. Where an instance lasts for a
    /// time, it has so many times fewer messages.
    fn pipeline_slowness(&self, case: &Case) -> u64 {
        let _ = case;
        1
    }

    /// The server it stands on and its version, asked when somebody wants to know.
    fn server(&self) -> Option<String> {
        None
    }

    /// Whether the mechanism can be had on this machine.
    ///
    /// # Errors
    /// How to get it, where it cannot.
    fn check_available(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A mechanism that carries payloads of kind `P`: a type that implements [`Value`](crate::Value), or
/// [`Raw`] for one that carries slices of bytes. One that carries [`Message`](crate::message::Message) decides itself what
/// a message is before it is written down; its topic and its data are the same in each.
pub trait Transport<P>: Mechanism {
    /// Its sending end.
    type Tx: Tx;
    /// Its receiving end.
    type Rx: Rx;

    /// Opens the ends of every party that this child plays. The children of an instance find each other through `rendezvous`.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>>;
}

/// Marks a mechanism that carries slices of bytes, of any length up to its limit; or, where its description says so, words
/// or nothing but the fact that there was a message.
#[derive(Debug)]
pub enum Raw {}
