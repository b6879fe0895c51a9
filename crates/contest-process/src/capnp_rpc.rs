//! Cap'n Proto RPC with `capnp-rpc`, over a pair of UNIX sockets. The interface is `schema/courier.capnp`.
//!
//! A message is written into the request that carries it and read where it arrived. A round trip is a call; one way each
//! message is a call of a streaming method, of which the library lets 64 KiB be under way. Calls, connections and handlers
//! are tasks of the party's own thread, as the library's types cannot leave it.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::rc::Rc;

use ::capnp_rpc::rpc_twoparty_capnp::Side;
use ::capnp_rpc::twoparty::VatNetwork;
use ::capnp_rpc::{RpcSystem, new_client};
use anyhow::{Context, Result};
use capnp::capability::{Client, Response};
use capnp::message::ReaderOptions;
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use tokio::io::{BufReader, BufWriter, split};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, LocalSet, yield_now};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use self::courier_capnp::courier;
use super::slot::Slot;

/// What the schema compiler makes of the interface; see `build.rs`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::unimplemented)]
mod courier_capnp {
    include!(concat!(env!("OUT_DIR"), "/schema/courier_capnp.rs"));
}

/// What a list of bytes holds at most.
const MAX_MESSAGE: usize = (1 << 29) - 1;

pub(super) struct CapnpRpc;

impl Mechanism for CapnpRpc {
    fn spec(&self) -> Spec {
        Spec::new("process/capnp-rpc")
            .version(env!("LOCKED_CAPNP_RPC"))
            .implementation("calls and streaming calls over a socketpair")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_message(MAX_MESSAGE)
            .max_producers(None)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for CapnpRpc {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let tasks = Rc::new(Tasks::new()?);
        let answers = case.pattern.both_ways();
        let Role::Producer(index) = role else {
            let (tx, rx) = serve(&tasks, case.producers, rendezvous)?;
            return Ok(if answers { Ends::both(role, tx, rx) } else { Ends::consumer(0, rx) });
        };
        let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("socket:{index}"))?;
        let mut system = tasks.connect(socket.into(), Side::Client, None)?;
        let courier = system.bootstrap(Side::Server);
        tasks.local.spawn_local(system);
        let answer = Slot::default();
        let rx = Receiving(OwnThread::new(Receives::Answers(answer.clone())));
        let sends = if answers { Sends::Questions { courier, answer } } else { Sends::Stream(courier) };
        let tx = Sending(OwnThread::new((tasks, sends)));
        Ok(if answers { Ends::both(role, tx, rx) } else { Ends::producer(index, tx) })
    }
}

/// Makes the server: accepts every producer. Returns the ends at which its methods pass messages on, and are answered.
fn serve(tasks: &Rc<Tasks>, producers: usize, rendezvous: &mut Rendezvous) -> Result<(Sending, Receiving)> {
    // Room for one: who has more waits in its connection.
    let (fd_passing, arrivals) = mpsc::channel(1);
    let client: courier::Client = new_client(Courier { fd_passing });
    let mut connections = Vec::new();
    for producer in 0..producers {
        let (ours, theirs) = Socket::pair()?;
        rendezvous.offer_descriptors(&format!("socket:{producer}"), &[theirs.as_fd()])?;
        let system = tasks.connect(ours, Side::Server, Some(client.clone().client))?;
        connections.push(tasks.local.spawn_local(system));
    }
    let question = Slot::default();
    let sends = Sends::Answers { question: question.clone(), connections };
    let receives = Receives::Arrivals { tasks: Rc::clone(tasks), arrivals, question };
    Ok((Sending(OwnThread::new((Rc::clone(tasks), sends))), Receiving(OwnThread::new(receives))))
}

/// What runs on the party's thread while it waits.
struct Tasks {
    local: LocalSet,
    runtime: Runtime,
}

impl Tasks {
    fn new() -> Result<Tasks> {
        Ok(Tasks { local: LocalSet::new(), runtime: Builder::new_current_thread().enable_all().build()? })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.local.block_on(&self.runtime, future)
    }

    /// One side of a connection.
    fn connect(&self, socket: Socket, side: Side, serves: Option<Client>) -> Result<RpcSystem<Side>> {
        let _inside = self.runtime.enter();
        socket.set_nonblocking(true)?;
        let (read, write) = split(UnixStream::from_std(socket).context("a socket in the runtime")?);
        let (read, write) = (BufReader::new(read).compat(), BufWriter::new(write).compat_write());
        // A message may be as long as it is: no limit to what is read of one.
        let mut options = ReaderOptions::new();
        options.traversal_limit_in_words(None);
        Ok(RpcSystem::new(Box::new(VatNetwork::new(read, write, side, options)), serves))
    }
}

/// A message that has arrived.
enum Arrival {
    Question(courier::AskParams, Question),
    Message(courier::SendParams),
}

/// Where the answer to a question is written, and how to say that it has been.
struct Question {
    results: courier::AskResults,
    answered: oneshot::Sender<()>,
}

/// The object that is served.
struct Courier {
    fd_passing: mpsc::Sender<Arrival>,
}

impl Courier {
    async fn hand(&self, arrival: Arrival) -> Result<(), capnp::Error> {
        self.fd_passing.send(arrival).await.map_err(gone)
    }
}

/// Nobody receives any more: the party has ended.
fn gone<E>(_: E) -> capnp::Error {
    capnp::Error::disconnected(String::from("the consumer has ended"))
}

impl courier::Server for Courier {
    async fn ask(self: Rc<Self>, params: courier::AskParams, results: courier::AskResults) -> capnp::Result<()> {
        let (answered, answer) = oneshot::channel();
        self.hand(Arrival::Question(params, Question { results, answered })).await?;
        answer.await.map_err(gone)
    }

    async fn send(self: Rc<Self>, params: courier::SendParams) -> capnp::Result<()> {
        self.hand(Arrival::Message(params)).await
    }

    async fn finish(self: Rc<Self>, _: courier::FinishParams, _: courier::FinishResults) -> capnp::Result<()> {
        Ok(())
    }
}

fn failed(error: capnp::Error) -> io::Error {
    io::Error::other(error)
}

/// The sending end.
pub(super) struct Sending(OwnThread<(Rc<Tasks>, Sends)>);

/// What it sends.
enum Sends {
    /// A client's questions: a call is over before `put` returns.
    Questions { courier: courier::Client, answer: Slot<Response<courier::ask_results::Owned>> },
    /// A producer's messages.
    Stream(courier::Client),
    /// The server's answers, each to what was received last.
    Answers { question: Slot<Question>, connections: Vec<JoinHandle<capnp::Result<()>>> },
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let (tasks, sends) = &mut *self.0;
        let len = source.len() as u32;
        match sends {
            Sends::Questions { courier, answer } => {
                let mut request = courier.ask_request();
                source.fill(request.get().init_data(len));
                answer.send(tasks.wait(request.send().promise).map_err(failed)?);
                Ok(())
            }
            Sends::Stream(courier) => {
                let mut request = courier.send_request();
                source.fill(request.get().init_data(len));
                let sent = tasks.wait(async {
                    request.send().await?;
                    // The connection's task writes it.
                    yield_now().await;
                    Ok(())
                });
                sent.map_err(failed)
            }
            // It goes out as soon as the server waits for the next question.
            Sends::Answers { question, .. } => {
                let mut question = question.take().ok_or(ErrorKind::InvalidInput)?;
                source.fill(question.results.get().init_data(len));
                question.answered.send(()).map_err(|()| ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let (tasks, sends) = &mut *self.0;
        match sends {
            Sends::Questions { .. } => {}
            Sends::Stream(courier) => {
                // The consumer answers when it has heard all; or closes the connection, when it has had the end mark.
                let _ = tasks.wait(courier.finish_request().send().promise);
            }
            Sends::Answers { connections, .. } => {
                // Until the clients have closed, who have had their answers.
                for connection in connections {
                    let _ = tasks.wait(connection);
                }
            }
        }
        Ok(())
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.finish())
    }
}

/// The receiving end.
pub(super) struct Receiving(OwnThread<Receives>);

/// What it receives.
enum Receives {
    /// A client's answers.
    Answers(Slot<Response<courier::ask_results::Owned>>),
    /// What the server's methods hand on.
    Arrivals { tasks: Rc<Tasks>, arrivals: mpsc::Receiver<Arrival>, question: Slot<Question> },
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match &mut *self.0 {
            Receives::Answers(answer) => {
                let answer = answer.take().ok_or(ErrorKind::InvalidInput)?;
                verifier.bytes(answer.get().and_then(|answer| answer.get_data()).map_err(failed)?);
            }
            Receives::Arrivals { tasks, arrivals, question } => {
                match tasks.wait(arrivals.recv()).ok_or(ErrorKind::UnexpectedEof)? {
                    Arrival::Question(params, asked) => {
                        verifier.bytes(params.get().and_then(|params| params.get_data()).map_err(failed)?);
                        question.send(asked);
                    }
                    Arrival::Message(params) => {
                        verifier.bytes(params.get().and_then(|params| params.get_data()).map_err(failed)?);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
