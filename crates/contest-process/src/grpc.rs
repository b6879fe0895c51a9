//! gRPC with `tonic`, HTTP/2 over a UNIX socket in the instance's directory.
//!
//! A message is a protobuf message with one field of bytes. A round trip is a unary call; one way the messages are the
//! stream of one call of their producer, and HTTP/2's windows hold it back. The service is written out as `tonic-build`
//! would generate it:
//!
//! ```protobuf
//! message Parcel { bytes data = 1; }
//! message Received {}
//! service Courier {
//!     rpc Ask(Parcel) returns (Parcel);
//!     rpc Send(stream Parcel) returns (Received);
//! }
//! ```
//!
//! Each party has one thread. The server's handlers are tasks that run while it waits in `get`: they pass what arrives on
//! to it, and wait for what `put` answers.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use prost::Message;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{ClientStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming, client, server};
use tonic_prost::ProstCodec;

use super::slot::Slot;

const ASK: &str = "/estafette.Courier/Ask";
const SEND: &str = "/estafette.Courier/Send";

#[derive(Clone, PartialEq, Message)]
pub(super) struct Parcel {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Received {}

pub(super) struct Grpc;

impl Mechanism for Grpc {
    fn spec(&self) -> Spec {
        Spec::new("process/grpc-unix")
            .version(concat!("tonic ", env!("LOCKED_TONIC")))
            .implementation("HTTP/2 on a UNIX socket, unary calls and client streams")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Grpc {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let path = rendezvous.dir().join("socket");
        let answers = case.pattern.both_ways();
        let Role::Producer(index) = role else {
            let (tx, rx) = serve(runtime, &path)?;
            rendezvous.publish("server", "listening")?;
            return Ok(if answers { Ends::both(role, tx, rx) } else { Ends::consumer(0, rx) });
        };
        rendezvous.request("server")?;
        let path = path.to_str().context("the temporary directory's name is not UTF-8: set TMPDIR to another")?;
        let connect = Endpoint::from_shared(format!("unix://{path}"))?;
        let channel = runtime.block_on(connect.connect()).context("connecting to the server")?;
        let grpc = client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        if answers {
            let answer = Slot::default();
            let tx = Sending::Questions { runtime, grpc, answer: answer.clone() };
            return Ok(Ends::both(role, tx, Receiving::Answers(answer)));
        }
        Ok(Ends::producer(index, stream(runtime, grpc)))
    }
}

/// Starts the call whose stream is a producer's messages.
fn stream(runtime: Arc<Runtime>, mut grpc: client::Grpc<Channel>) -> Sending {
    // Room for one: a message is taken at once where HTTP/2's window has room.
    let (messages, stream) = mpsc::channel(1);
    let call = async move {
        grpc.ready().await.map_err(io::Error::other)?;
        let request = Request::new(ReceiverStream::new(stream));
        let codec = ProstCodec::<Parcel, Received>::default();
        let answer = grpc.client_streaming(request, PathAndQuery::from_static(SEND), codec).await;
        answer.map(drop).map_err(io::Error::other)
    };
    let call = runtime.spawn(call);
    Sending::Stream { runtime, messages: Some(messages), call }
}

/// Starts the server. Returns the ends at which its handlers pass messages on, and are answered.
fn serve(runtime: Arc<Runtime>, path: &Path) -> Result<(Sending, Receiving)> {
    let _inside = runtime.enter();
    let listener = UnixListener::bind(path).context("listening")?;
    // Room for one: who has more waits in its connection.
    let (fd_passing, arrivals) = mpsc::channel(1);
    let (open, connections) = mpsc::channel(1);
    let service = Courier { fd_passing, _open: open };
    let serving = Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener));
    let serving = runtime.spawn(serving).abort_handle();
    let question = Slot::default();
    let tx = Sending::Answers { runtime: Arc::clone(&runtime), question: question.clone(), serving, connections };
    Ok((tx, Receiving::Arrivals { runtime, arrivals, question }))
}

/// What has arrived, and where its answer goes, if it is a question.
type Arrival = (Vec<u8>, Option<oneshot::Sender<Vec<u8>>>);

/// The service.
#[derive(Clone)]
struct Courier {
    fd_passing: mpsc::Sender<Arrival>,
    /// Every connection has a clone of it: when the last has gone, all have closed.
    _open: mpsc::Sender<Infallible>,
}

impl Service<http::Request<Body>> for Courier {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let courier = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                ASK => {
                    let codec = ProstCodec::<Parcel, Parcel>::default();
                    server::Grpc::new(codec).max_decoding_message_size(usize::MAX).unary(courier, request).await
                }
                SEND => {
                    let codec = ProstCodec::<Received, Parcel>::default();
                    let mut grpc = server::Grpc::new(codec).max_decoding_message_size(usize::MAX);
                    grpc.client_streaming(courier, request).await
                }
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

/// Nobody receives any more: the party has ended.
fn gone<T>(_: T) -> Status {
    Status::unavailable("the consumer has ended")
}

impl UnaryService<Parcel> for Courier {
    type Response = Parcel;
    type Future = BoxFuture<Response<Parcel>, Status>;

    fn call(&mut self, request: Request<Parcel>) -> Self::Future {
        let fd_passing = self.fd_passing.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            fd_passing.send((request.into_inner().data, Some(answer))).await.map_err(gone)?;
            let data = answered.await.map_err(gone)?;
            Ok(Response::new(Parcel { data }))
        })
    }
}

impl ClientStreamingService<Parcel> for Courier {
    type Response = Received;
    type Future = BoxFuture<Response<Received>, Status>;

    fn call(&mut self, request: Request<Streaming<Parcel>>) -> Self::Future {
        let fd_passing = self.fd_passing.clone();
        Box::pin(async move {
            let mut messages = request.into_inner();
            while let Some(Parcel { data }) = messages.message().await? {
                fd_passing.send((data, None)).await.map_err(gone)?;
            }
            Ok(Response::new(Received {}))
        })
    }
}

/// The sending end.
pub(super) enum Sending {
    /// A client's that asks: the call is over before it returns.
    Questions { runtime: Arc<Runtime>, grpc: client::Grpc<Channel>, answer: Slot<Vec<u8>> },
    /// A producer's.
    Stream { runtime: Arc<Runtime>, messages: Option<mpsc::Sender<Parcel>>, call: JoinHandle<io::Result<()>> },
    /// The server's: answers what was received last.
    Answers {
        runtime: Arc<Runtime>,
        question: Slot<oneshot::Sender<Vec<u8>>>,
        serving: AbortHandle,
        connections: mpsc::Receiver<Infallible>,
    },
}

impl Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let data = Vec::<u8>::make(source);
        match self {
            Sending::Questions { runtime, grpc, answer } => {
                let reply: Response<Parcel> = runtime.block_on(async {
                    grpc.ready().await.map_err(io::Error::other)?;
                    let codec = ProstCodec::default();
                    let call = grpc.unary(Request::new(Parcel { data }), PathAndQuery::from_static(ASK), codec);
                    call.await.map_err(io::Error::other)
                })?;
                answer.send(reply.into_inner().data);
                Ok(())
            }
            Sending::Stream { runtime, messages, .. } => {
                let messages = messages.as_ref().ok_or(ErrorKind::BrokenPipe)?;
                runtime.block_on(async {
                    messages.send(Parcel { data }).await.map_err(|_| ErrorKind::BrokenPipe)?;
                    // Until it has been taken: nothing waits here for the next one.
                    messages.reserve().await.map(drop).map_err(|_| ErrorKind::BrokenPipe.into())
                })
            }
            // It goes out as soon as the server waits for the next question.
            Sending::Answers { question, .. } => {
                let question = question.take().ok_or(ErrorKind::InvalidInput)?;
                question.send(data).map_err(|_| ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Sending::Questions { .. } => Ok(()),
            Sending::Stream { runtime, messages, call } => {
                // The consumer has heard all when it answers; or closes the connection, when it has had the end mark.
                drop(messages.take());
                runtime.block_on(call).map(drop).map_err(io::Error::other)
            }
            Sending::Answers { runtime, serving, connections, .. } => {
                // Until the clients have closed, who have had their answers. Were the server first to close, a client would
                // break off on what it can no longer send, with the answer still to be read.
                serving.abort();
                runtime.block_on(connections.recv());
                Ok(())
            }
        }
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
pub(super) enum Receiving {
    /// A client's that has asked.
    Answers(Slot<Vec<u8>>),
    /// The server's.
    Arrivals { runtime: Arc<Runtime>, arrivals: mpsc::Receiver<Arrival>, question: Slot<oneshot::Sender<Vec<u8>>> },
}

impl Receiving {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            Receiving::Answers(answer) => verifier.bytes(&answer.take().ok_or(ErrorKind::InvalidInput)?),
            Receiving::Arrivals { runtime, arrivals, question } => {
                let (data, answer) = runtime.block_on(arrivals.recv()).ok_or(ErrorKind::UnexpectedEof)?;
                verifier.bytes(&data);
                if let Some(answer) = answer {
                    question.send(answer);
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
