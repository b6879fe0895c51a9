//! The traits that a way to pass a message implements to be measured.
//!
//! A mechanism is opened once in each child process of an instance. From then on the timed loops of
//! [`crate::driver`] call its ends, a batch of messages at a time. There is no dynamic call per
//! message.
//!
//! | the ends | implement | the mechanism implements | its entry |
//! |---|---|---|---|
//! | block their thread | [`Tx`], [`Rx`] | [`Mechanism`], [`Transport`] | [`bytes`](crate::entry::bytes), [`values`](crate::entry::values), [`messages`](crate::entry::messages) |
//! | are futures | [`AsyncTx`], [`AsyncRx`] | [`Mechanism`], [`AsyncMechanism`], [`AsyncTransport`] | [`async_values`](crate::entry::async_values) |

use std::future::Future;
use std::io;

use anyhow::{Result, bail, ensure};

use crate::case::{Case, Pattern, Role};
use crate::executor::Executor;
use crate::message::{Generator, Verifier};
use crate::pipeline_driver::PipelineEnd;
use crate::rendezvous::Rendezvous;
use crate::spec::Spec;
use crate::usage::Usage;

/// A sending end that blocks its thread.
///
/// One method serves every kind of end, because the end chooses the form of the message:
///
/// - `source.word()` or [`Value::make`](crate::Value::make) makes a value whose ownership is passed
///   on.
/// - `source.fill(&mut buffer)` writes bytes into the end's own buffer, or into memory that the
///   mechanism lends.
///
/// Mark `send`, and `recv` of the other end, `#[inline]` if a message takes less than about a
/// microsecond.
pub trait Tx: Send + 'static {
    /// Sends the next message, and blocks until it is sent. Takes exactly one message out of
    /// `source`.
    ///
    /// # Errors
    /// When the message cannot be sent because the peer has closed or died.
    fn send(&mut self, source: &mut Generator) -> io::Result<()>;

    /// Flushes buffered messages to the transport.
    ///
    /// The driver calls it after the last message, outside the measured window. With several
    /// connections it also calls it each time it switches connections. With a lossy mechanism it
    /// also calls it before it checks how many messages have arrived.
    ///
    /// # Errors
    /// When the buffered messages cannot be sent.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A receiving end that blocks its thread.
pub trait Rx: Send + 'static {
    /// Receives one message and passes all of its bytes to `verifier`. Blocks until there is one.
    ///
    /// # Errors
    /// - [`io::ErrorKind::UnexpectedEof`] when every sender has closed and no message is left. In the
    ///   patterns `mpmc` and `cancel` this is the normal end. In other one-way patterns the missing
    ///   end marks count as lost.
    /// - A lossy mechanism may return [`io::ErrorKind::TimedOut`] after some milliseconds without a
    ///   message, so that the loop can read the clock, and also `WouldBlock` and
    ///   `ConnectionRefused`. The loop then calls again.
    /// - Any other error fails the instance.
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()>;

    /// Receives `count` messages, or fewer if every producer has sent its end mark
    /// ([`Verifier::ended`]). The timed loops call this method. An end that receives messages in a
    /// callback overrides it.
    ///
    /// # Errors
    /// Those of [`Rx::recv`].
    #[inline(always)]
    fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        for _ in 0..count {
            self.recv(verifier)?;
            if verifier.ended() {
                break;
            }
        }
        Ok(())
    }
}

/// A sending end whose calls are futures of a runtime. As [`Tx`] otherwise.
pub trait AsyncTx: Send + 'static {
    /// Sends the next message. Takes exactly one message out of `source`.
    ///
    /// # Errors
    /// When the message cannot be sent because the peer has closed or died.
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends `count` messages, one after the other. The timed loops call this method. An end whose
    /// [`AsyncTx::send`] wraps another future overrides this method with the same loop around that
    /// future.
    ///
    /// # Errors
    /// Those of [`AsyncTx::send`].
    #[inline(always)]
    fn send_all(&mut self, source: &mut Generator, count: u64) -> impl Future<Output = io::Result<()>> + Send {
        async move {
            for _ in 0..count {
                self.send(source).await?;
            }
            Ok(())
        }
    }

    /// Flushes buffered messages to the transport; see [`Tx::flush`].
    ///
    /// # Errors
    /// When the buffered messages cannot be sent.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        std::future::ready(Ok(()))
    }
}

/// A receiving end whose calls are futures of a runtime. As [`Rx`] otherwise.
pub trait AsyncRx: Send + 'static {
    /// Whether this end can be used in round trips. If not, their loops are not compiled for it,
    /// and its description must not list a pattern with replies.
    const ROUND_TRIPS: bool = true;

    /// Receives one message and passes all of its bytes to `verifier`.
    ///
    /// # Errors
    /// Those of [`Rx::recv`].
    ///
    /// # Cancel safety
    /// In the pattern `cancel` this future is polled once and dropped if it is pending; a message
    /// that is lost by that is counted. In all other patterns it is not dropped before it is ready.
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives `count` messages, or fewer if every producer has sent its end mark
    /// ([`Verifier::ended`]). The timed loops call this method. It is overridden for the same
    /// reason as [`AsyncTx::send_all`].
    ///
    /// # Errors
    /// Those of [`AsyncRx::recv`].
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
}

/// The ends that one party of the pattern owns.
#[derive(Debug)]
pub struct PartyEnds<T, R> {
    /// The party's role: a producer or a consumer.
    pub role: Role,
    /// The sending end, if the party sends.
    pub tx: Option<T>,
    /// The receiving end, if the party receives.
    pub rx: Option<R>,
}

/// The ends opened in one child process, for all parties that run in it.
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

    /// A party that sends and receives: one side of a ping-pong. For [`Role::All`], where one
    /// thread runs every party, both ends of the channel.
    pub fn both(role: Role, tx: T, rx: R) -> Self {
        let role = if role == Role::All { Role::Producer(0) } else { role };
        Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }])
    }

    /// A server that receives from all its clients on one end and replies on `txs`: one end for
    /// each client, in the order of the clients' numbers. If `txs` has a single end, it replies to
    /// every client, and [`Generator::producer`] says to which one.
    pub fn server(rx: R, txs: impl IntoIterator<Item = T>) -> Self {
        let role = Role::Consumer(0);
        let mut ends = Ends::consumer(0, rx);
        ends.0.extend(txs.into_iter().map(|tx| PartyEnds { role, tx: Some(tx), rx: None }));
        ends
    }

    /// All ends of a case inside one process, for a channel with one sender and one receiver.
    ///
    /// # Errors
    /// Those of `open`, and when the pattern needs more than one sender or receiver per direction.
    pub fn pair(case: &Case, open: impl Fn() -> Result<(T, R)>) -> Result<Self> {
        let pattern = case.pattern;
        let is_pair = !pattern.has_several_parties() && !pattern.is_one_thread() && !pattern.is_pipeline();
        ensure!(is_pair && pattern != Pattern::Duplex, "one sender and one receiver cannot run {pattern}");
        let (tx, rx) = open()?;
        let reply = if pattern.is_bidirectional() { Some(open()?) } else { None };
        let (reply_tx, reply_rx) = reply.unzip();
        Ok(Ends(vec![
            PartyEnds { role: Role::Producer(0), tx: Some(tx), rx: reply_rx },
            PartyEnds { role: Role::Consumer(0), tx: reply_tx, rx: Some(rx) },
        ]))
    }

    /// All ends of a case inside one process, for a channel whose sender can be cloned.
    ///
    /// # Errors
    /// Those of [`Ends::pair`].
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

    /// The ends of several producers, of several consumers, or of both, inside one process.
    ///
    /// All producers and consumers that this process runs: of a whole case in one process, of
    /// several threads on one connection, or of several connections. If one end sends on all
    /// connections, it is the only element of `txs`, and [`Generator::producer`] says on which
    /// connection to send.
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

/// A way to pass messages: the part that does not depend on the kind of payload.
pub trait Mechanism: Send + Sync + 'static {
    /// The description of the mechanism.
    fn spec(&self) -> Spec;

    /// Checks whether the mechanism can run this case, beyond what its description says. The
    /// harness has already checked patterns, payloads, sizes, wait modes and numbers of producers.
    ///
    /// # Errors
    /// The reason why it cannot, for the user.
    fn supports(&self, case: &Case) -> Result<(), String> {
        let _ = case;
        Ok(())
    }

    /// The number of messages that fit between the ends of this case, probed by sending until a
    /// send would block. This may differ from what the mechanism calls its capacity. May
    /// block: it runs in a child process, which is killed after five seconds. `None` if it cannot be
    /// probed.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let _ = case;
        None
    }

    /// The roles of an instance, one child process each.
    ///
    /// Inside one process, a single child runs [`Role::All`]. Otherwise each party is a child of
    /// its own. If the pattern puts all senders in one process, producer 0 is that process and
    /// opens the ends of all senders.
    fn roles(&self, case: &Case) -> Vec<Role> {
        if case.scope.in_process() || case.pattern.is_one_thread() {
            return vec![Role::All];
        }
        // Consumers start first, because they wait for the producers.
        let (producers, consumers) = case.processes();
        (0..consumers).map(Role::Consumer).chain((0..producers).map(Role::Producer)).collect()
    }

    /// Runs the broker, if [`Mechanism::roles`] has one.
    ///
    /// Opens its side and waits at the barrier ([`Rendezvous::wait_at_barrier`]). Then it forwards
    /// messages until the last one has passed, or until every party has reported
    /// ([`Rendezvous::wait_until_all_reported`]). Returns the processor time and context switches
    /// that the processes it started have used since the barrier.
    ///
    /// # Errors
    /// Whatever stops the broker.
    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        let _ = rendezvous;
        bail!("{} has no broker", case.mechanism)
    }

    /// Runs a role of a pipeline ([`Pattern::is_pipeline`]), or all of its ends for [`Role::All`].
    ///
    /// Prepares the pipeline and waits at the barrier ([`Rendezvous::wait_at_barrier`]). Then it
    /// sends or receives `messages` messages and one more, which is marked as the last. Returns a
    /// summary of each end. It must wait for every process that it starts before it returns.
    ///
    /// # Errors
    /// Whatever stops the pipeline.
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

    /// Roughly how many times longer a message takes in this pipeline than between two native
    /// processes. If the window is a time, the instance has that many times fewer messages.
    fn pipeline_slowness(&self, case: &Case) -> u64 {
        let _ = case;
        1
    }

    /// The name and version of the server that the mechanism needs, if any. Looked up only when it
    /// is printed or recorded.
    fn server(&self) -> Option<String> {
        None
    }

    /// Checks whether everything that the mechanism needs is installed on this machine.
    ///
    /// # Errors
    /// What is missing and how to install it.
    fn check_available(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A mechanism whose ends are futures of a runtime.
pub trait AsyncMechanism: Mechanism {
    /// The runtime that the parties run on.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>>;
}

/// A mechanism with blocking ends that carries payloads of type `P`: a type that implements
/// [`Value`](crate::Value), or [`Raw`] for slices of bytes.
///
/// A mechanism that carries [`Message`](crate::message::Message) chooses its own type for a message
/// before serialization. Topic and data are the same for every mechanism.
pub trait Transport<P>: Mechanism {
    /// The sending end.
    type Tx: Tx;
    /// The receiving end.
    type Rx: Rx;

    /// Opens the ends of every party that this child runs. The children of an instance exchange
    /// addresses and descriptors through `rendezvous`.
    ///
    /// # Errors
    /// When an end cannot be opened.
    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>>;
}

/// As [`Transport`], with ends that are futures.
pub trait AsyncTransport<P>: AsyncMechanism {
    /// The sending end.
    type Tx: AsyncTx;
    /// The receiving end.
    type Rx: AsyncRx;

    /// Opens the ends of every party that this child runs; see [`Transport::open`].
    ///
    /// # Errors
    /// When an end cannot be opened.
    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>>;
}

/// Payload type of a mechanism that carries slices of bytes, of any length up to its maximum. If
/// its description says so, it carries machine words, or events without data.
#[derive(Debug)]
pub enum Raw {}
