//! gRPC with `tonic`: HTTP/2 over a UNIX socket in the instance's directory.
//!
//! A message is a protobuf message with one field of bytes. A round trip is a unary call. One-way
//! messages are the client stream of one call, limited by HTTP/2's flow-control windows. The
//! service is written by hand as
//! `tonic-build` would generate it:
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
//! Each party has one thread. The server's handlers are tasks that run while the party waits in
//! `recv`. They pass received messages to it, and wait for the reply that `send` provides.

use std::convert::Infallible;
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
            .any_language(true)
            .kernel_copies(2)
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
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
        let path = rendezvous.dir().join("socket");
        let has_reply = case.pattern.is_bidirectional();
        let Role::Producer(index) = role else {
            let (tx, rx) = serve(runtime, &path)?;
            rendezvous.publish("server", "listening")?;
            return Ok(if has_reply { Ends::both(role, tx, rx) } else { Ends::consumer(0, rx) });
        };
        rendezvous.request("server")?;
        let path = path.to_str().context("the temporary directory's name is not UTF-8: set TMPDIR to another")?;
        let connect = Endpoint::from_shared(format!("unix://{path}"))?;
        let channel = runtime.block_on(connect.connect()).context("connecting to the server")?;
        let grpc = client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        if has_reply {
            let reply_slot = Slot::default();
            let tx = SendEnd::Requests { runtime, grpc, reply_slot: reply_slot.clone() };
            return Ok(Ends::both(role, tx, RecvEnd::Replies(reply_slot)));
        }
        Ok(Ends::producer(index, stream(runtime, grpc)))
    }
}

/// Starts the call whose request stream is a producer's messages.
fn stream(runtime: Arc<Runtime>, mut grpc: client::Grpc<Channel>) -> SendEnd {
    // Capacity one: a message is accepted immediately if HTTP/2's window has space.
    let (messages, stream) = mpsc::channel(1);
    let call = async move {
        grpc.ready().await.map_err(io::Error::other)?;
        let request = Request::new(ReceiverStream::new(stream));
        let codec = ProstCodec::<Parcel, Received>::default();
        let reply = grpc.client_streaming(request, PathAndQuery::from_static(SEND), codec).await;
        reply.map(drop).map_err(io::Error::other)
    };
    let call = runtime.spawn(call);
    SendEnd::Stream { runtime, messages: Some(messages), call }
}

/// Starts the server. Returns the ends that exchange requests and replies with its handlers.
fn serve(runtime: Arc<Runtime>, path: &Path) -> Result<(SendEnd, RecvEnd)> {
    let _inside = runtime.enter();
    let listener = UnixListener::bind(path).context("listening")?;
    // Capacity one: further messages wait in their connection.
    let (arrivals_tx, arrivals) = mpsc::channel(1);
    let (open, connections) = mpsc::channel(1);
    let service = Courier { arrivals_tx, _open: open };
    let serving = Server::builder().serve_with_incoming(service, UnixListenerStream::new(listener));
    let serving = runtime.spawn(serving).abort_handle();
    let request_slot = Slot::default();
    let tx =
        SendEnd::Replies { runtime: Arc::clone(&runtime), request_slot: request_slot.clone(), serving, connections };
    Ok((tx, RecvEnd::Arrivals { runtime, arrivals, request_slot }))
}

/// A received message, and for a request the sender of its reply.
type Arrival = (Vec<u8>, Option<oneshot::Sender<Vec<u8>>>);

/// The service.
#[derive(Clone)]
struct Courier {
    arrivals_tx: mpsc::Sender<Arrival>,
    /// Each connection has a clone. When the last clone is dropped, all connections have closed.
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

/// The party has ended, so nobody receives any more.
fn consumer_ended<T>(_: T) -> Status {
    Status::unavailable("the consumer has ended")
}

impl UnaryService<Parcel> for Courier {
    type Response = Parcel;
    type Future = BoxFuture<Response<Parcel>, Status>;

    fn call(&mut self, request: Request<Parcel>) -> Self::Future {
        let arrivals_tx = self.arrivals_tx.clone();
        Box::pin(async move {
            let (reply_tx, reply_rx) = oneshot::channel();
            arrivals_tx.send((request.into_inner().data, Some(reply_tx))).await.map_err(consumer_ended)?;
            let data = reply_rx.await.map_err(consumer_ended)?;
            Ok(Response::new(Parcel { data }))
        })
    }
}

impl ClientStreamingService<Parcel> for Courier {
    type Response = Received;
    type Future = BoxFuture<Response<Received>, Status>;

    fn call(&mut self, request: Request<Streaming<Parcel>>) -> Self::Future {
        let arrivals_tx = self.arrivals_tx.clone();
        Box::pin(async move {
            let mut messages = request.into_inner();
            while let Some(Parcel { data }) = messages.message().await? {
                arrivals_tx.send((data, None)).await.map_err(consumer_ended)?;
            }
            Ok(Response::new(Received {}))
        })
    }
}

/// The sending end.
pub(super) enum SendEnd {
    /// A client's end: the call completes before `send` returns.
    Requests { runtime: Arc<Runtime>, grpc: client::Grpc<Channel>, reply_slot: Slot<Vec<u8>> },
    /// A producer's end.
    Stream { runtime: Arc<Runtime>, messages: Option<mpsc::Sender<Parcel>>, call: JoinHandle<io::Result<()>> },
    /// The server's end: replies to the request received last.
    Replies {
        runtime: Arc<Runtime>,
        request_slot: Slot<oneshot::Sender<Vec<u8>>>,
        serving: AbortHandle,
        connections: mpsc::Receiver<Infallible>,
    },
}

impl SendEnd {
    fn finish(&mut self) -> io::Result<()> {
        match self {
            SendEnd::Requests { .. } => Ok(()),
            SendEnd::Stream { runtime, messages, call } => {
                // The call ends when the consumer has received everything and replies, or closes
                // the connection after the end mark.
                drop(messages.take());
                runtime.block_on(call).map(drop).map_err(io::Error::other)
            }
            SendEnd::Replies { runtime, serving, connections, .. } => {
                // Waits until the clients have closed, which have received all replies. If the
                // server closed first, a client would abort on a failed send although the last
                // reply is still unread.
                serving.abort();
                runtime.block_on(connections.recv());
                Ok(())
            }
        }
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let data = Vec::<u8>::make(source);
        match self {
            SendEnd::Requests { runtime, grpc, reply_slot } => {
                let reply: Response<Parcel> = runtime.block_on(async {
                    grpc.ready().await.map_err(io::Error::other)?;
                    let codec = ProstCodec::default();
                    let call = grpc.unary(Request::new(Parcel { data }), PathAndQuery::from_static(ASK), codec);
                    call.await.map_err(io::Error::other)
                })?;
                reply_slot.send(reply.into_inner().data);
                Ok(())
            }
            SendEnd::Stream { runtime, messages, .. } => {
                let messages = messages.as_ref().ok_or(ErrorKind::BrokenPipe)?;
                runtime.block_on(async {
                    messages.send(Parcel { data }).await.map_err(|_| ErrorKind::BrokenPipe)?;
                    // Waits until the message has left the channel, so that it does not wait there for the next one.
                    messages.reserve().await.map(drop).map_err(|_| ErrorKind::BrokenPipe.into())
                })
            }
            // The reply is sent as soon as the server waits for the next request.
            SendEnd::Replies { request_slot, .. } => {
                let request_slot = request_slot.take().ok_or(ErrorKind::InvalidInput)?;
                request_slot.send(data).map_err(|_| ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish()
    }
}

/// The receiving end.
pub(super) enum RecvEnd {
    /// The end of a client that has sent a request.
    Replies(Slot<Vec<u8>>),
    /// The server's end.
    Arrivals { runtime: Arc<Runtime>, arrivals: mpsc::Receiver<Arrival>, request_slot: Slot<oneshot::Sender<Vec<u8>>> },
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            RecvEnd::Replies(reply_slot) => verifier.bytes(&reply_slot.take().ok_or(ErrorKind::InvalidInput)?),
            RecvEnd::Arrivals { runtime, arrivals, request_slot } => {
                let (data, reply_tx) = runtime.block_on(arrivals.recv()).ok_or(ErrorKind::UnexpectedEof)?;
                verifier.bytes(&data);
                if let Some(reply_tx) = reply_tx {
                    request_slot.send(reply_tx);
                }
            }
        }
        Ok(())
    }
}
