//! Cap'n Proto RPC with `capnp-rpc` over a pair of UNIX sockets. The interface is
//! `schema/courier.capnp`.
//!
//! A message is built in its request and read in the receive buffer. A round trip is a call. Each
//! one-way message is a call of a streaming method; the library limits these to 64 KiB in flight.
//! Calls, connections and handlers are tasks on the party's own thread, because the library's types
//! are not `Send`.

use std::future::Future;
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

/// The generated code of the interface; see `build.rs`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::unimplemented)]
mod courier_capnp {
    include!(concat!(env!("OUT_DIR"), "/schema/courier_capnp.rs"));
}

/// The longest list of bytes.
const MAX_MESSAGE: usize = (1 << 29) - 1;

pub(super) struct CapnpRpc;

impl Mechanism for CapnpRpc {
    fn spec(&self) -> Spec {
        Spec::new("process/capnp-rpc")
            .any_language(true)
            .kernel_copies(2)
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
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let tasks = Rc::new(Tasks::new()?);
        let has_reply = case.pattern.is_bidirectional();
        let Role::Producer(index) = role else {
            let (tx, rx) = serve(&tasks, case.producers, rendezvous)?;
            return Ok(if has_reply { Ends::both(role, tx, rx) } else { Ends::consumer(0, rx) });
        };
        let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("socket:{index}"))?;
        let mut system = tasks.connect(socket.into(), Side::Client, None)?;
        let courier = system.bootstrap(Side::Server);
        tasks.local.spawn_local(system);
        let answer = Slot::default();
        let rx = RecvEnd(OwnThread::new(Receives::Replies(answer.clone())));
        let sends = if has_reply { Sends::Calls { courier, answer } } else { Sends::Stream(courier) };
        let tx = SendEnd(OwnThread::new((tasks, sends)));
        Ok(if has_reply { Ends::both(role, tx, rx) } else { Ends::producer(index, tx) })
    }
}

/// Creates the server and a connection for every producer. Returns the ends that exchange requests
/// and replies with its methods.
fn serve(tasks: &Rc<Tasks>, producers: usize, rendezvous: &mut Rendezvous) -> Result<(SendEnd, RecvEnd)> {
    // Capacity one: further messages wait in their connection.
    let (arrivals_tx, arrivals) = mpsc::channel(1);
    let client: courier::Client = new_client(Courier { arrivals_tx });
    let mut connections = Vec::new();
    for producer in 0..producers {
        let (ours, theirs) = Socket::pair()?;
        rendezvous.publish_descriptors(&format!("socket:{producer}"), &[theirs.as_fd()])?;
        let system = tasks.connect(ours, Side::Server, Some(client.clone().client))?;
        connections.push(tasks.local.spawn_local(system));
    }
    let pending_call = Slot::default();
    let sends = Sends::Replies { pending_call: pending_call.clone(), connections };
    let receives = Receives::Arrivals { tasks: Rc::clone(tasks), arrivals, pending_call };
    Ok((SendEnd(OwnThread::new((Rc::clone(tasks), sends))), RecvEnd(OwnThread::new(receives))))
}

/// The runtime and the tasks that run on the party's thread while it waits.
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

    /// Creates one side of a connection.
    fn connect(&self, socket: Socket, side: Side, serves: Option<Client>) -> Result<RpcSystem<Side>> {
        let _inside = self.runtime.enter();
        socket.set_nonblocking(true)?;
        let (read, write) = split(UnixStream::from_std(socket).context("a socket in the runtime")?);
        let (read, write) = (BufReader::new(read).compat(), BufWriter::new(write).compat_write());
        // Messages may have any length, so reading is not limited.
        let mut options = ReaderOptions::new();
        options.traversal_limit_in_words(None);
        Ok(RpcSystem::new(Box::new(VatNetwork::new(read, write, side, options)), serves))
    }
}

/// A received message.
enum Arrival {
    PendingCall(courier::AskParams, PendingCall),
    Message(courier::SendParams),
}

/// The results of a call, and the channel that reports that they are written.
struct PendingCall {
    results: courier::AskResults,
    answered: oneshot::Sender<()>,
}

/// The object that the server provides.
struct Courier {
    arrivals_tx: mpsc::Sender<Arrival>,
}

impl Courier {
    async fn pass_on(&self, arrival: Arrival) -> Result<(), capnp::Error> {
        self.arrivals_tx.send(arrival).await.map_err(consumer_ended)
    }
}

/// The party has ended, so nobody receives any more.
fn consumer_ended<E>(_: E) -> capnp::Error {
    capnp::Error::disconnected(String::from("the consumer has ended"))
}

impl courier::Server for Courier {
    async fn ask(self: Rc<Self>, params: courier::AskParams, results: courier::AskResults) -> capnp::Result<()> {
        let (answered, answer) = oneshot::channel();
        self.pass_on(Arrival::PendingCall(params, PendingCall { results, answered })).await?;
        answer.await.map_err(consumer_ended)
    }

    async fn send(self: Rc<Self>, params: courier::SendParams) -> capnp::Result<()> {
        self.pass_on(Arrival::Message(params)).await
    }

    async fn finish(self: Rc<Self>, _: courier::FinishParams, _: courier::FinishResults) -> capnp::Result<()> {
        Ok(())
    }
}

fn failed(error: capnp::Error) -> io::Error {
    io::Error::other(error)
}

/// The sending end.
pub(super) struct SendEnd(OwnThread<(Rc<Tasks>, Sends)>);

/// What it sends.
enum Sends {
    /// A client's requests: a call completes before `send` returns.
    Calls { courier: courier::Client, answer: Slot<Response<courier::ask_results::Owned>> },
    /// A producer's messages.
    Stream(courier::Client),
    /// The server's replies, each to the request received last.
    Replies { pending_call: Slot<PendingCall>, connections: Vec<JoinHandle<capnp::Result<()>>> },
}

impl SendEnd {
    fn finish(&mut self) -> io::Result<()> {
        let (tasks, sends) = &mut *self.0;
        match sends {
            Sends::Calls { .. } => {}
            Sends::Stream(courier) => {
                // The consumer replies when it has received everything, or closes the connection
                // after the end mark.
                let _ = tasks.wait(courier.finish_request().send().promise);
            }
            Sends::Replies { connections, .. } => {
                // Waits until the clients have closed, which have received all replies.
                for connection in connections {
                    let _ = tasks.wait(connection);
                }
            }
        }
        Ok(())
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let (tasks, sends) = &mut *self.0;
        let len = source.len() as u32;
        match sends {
            Sends::Calls { courier, answer } => {
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
                    // Lets the connection's task write the message.
                    yield_now().await;
                    Ok(())
                });
                sent.map_err(failed)
            }
            // The reply is sent as soon as the server waits for the next request.
            Sends::Replies { pending_call, .. } => {
                let mut pending_call = pending_call.take().ok_or(ErrorKind::InvalidInput)?;
                source.fill(pending_call.results.get().init_data(len));
                pending_call.answered.send(()).map_err(|()| ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish()
    }
}

/// The receiving end.
pub(super) struct RecvEnd(OwnThread<Receives>);

/// What it receives.
enum Receives {
    /// A client's replies.
    Replies(Slot<Response<courier::ask_results::Owned>>),
    /// What the server's methods pass on.
    Arrivals { tasks: Rc<Tasks>, arrivals: mpsc::Receiver<Arrival>, pending_call: Slot<PendingCall> },
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match &mut *self.0 {
            Receives::Replies(answer) => {
                let answer = answer.take().ok_or(ErrorKind::InvalidInput)?;
                verifier.bytes(answer.get().and_then(|answer| answer.get_data()).map_err(failed)?);
            }
            Receives::Arrivals { tasks, arrivals, pending_call } => {
                match tasks.wait(arrivals.recv()).ok_or(ErrorKind::UnexpectedEof)? {
                    Arrival::PendingCall(params, asked) => {
                        verifier.bytes(params.get().and_then(|params| params.get_data()).map_err(failed)?);
                        pending_call.send(asked);
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
