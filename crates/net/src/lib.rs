//! An event-driven network node for TCP, UDP, UNIX sockets, WebSocket and in-process pipes. One
//! thread serves every connection, as byte streams or as messages.
//!
//! # The node
//!
//! A [`Node`] owns connections, and serves them in the thread that runs it. A [`Handle`] controls
//! it, from any thread and from inside the callback. An [`Address`] is a URL whose scheme chooses
//! the transport: `tcp://` is a stream of bytes, `tcp+msg://` keeps the boundaries of messages, and
//! so on. What happens is an [`Event`] of an [`Endpoint`].
//!
//! ```
//! use estafette_net::{Event, Node};
//!
//! let mut node = Node::<()>::new()?;
//! let handle = node.handle();
//! let server = handle.listen("tcp+msg://127.0.0.1:0")?;
//! let client = handle.connect(handle.local_address(server).ok_or("no address")?)?;
//! handle.send(client, b"hello"); // queued until the connection is open
//! node.run(|event| match event {
//!     Event::Message(_, message) => {
//!         assert_eq!(&message[..], b"hello");
//!         handle.stop();
//!     }
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Node::run`] calls back with each event. [`Node::poll`] and [`Node::next`] are for loops of
//! your own, and `AsyncNode` (feature `tokio`) for a task of a tokio runtime.
//!
//! # A server
//!
//! One node listens at any number of addresses, of any transports. [`Limits`] bound what peers can
//! make it spend. [`EndpointMap`] holds what the program knows about each connection.
//!
//! ```no_run
//! use estafette_net::{EndpointMap, Event, Limits, Node};
//!
//! let mut limits = Limits::default();
//! limits.connections = 1000;
//! let mut node = Node::<()>::with_limits(limits)?;
//! let handle = node.handle();
//! handle.listen("tcp+msg://0.0.0.0:4000")?;
//! handle.listen("ws://0.0.0.0:4001")?;
//! handle.listen("unix+msg:///run/counter.sock")?;
//! let mut counts = EndpointMap::new();
//! node.run(|event| match event {
//!     Event::Accepted { endpoint, .. } => drop(counts.insert(endpoint, 0_u64)),
//!     Event::Message(from, _) => {
//!         if let Some(count) = counts.get_mut(from) {
//!             *count += 1;
//!             if !handle.send(from, &count.to_be_bytes()).is_accepted() {
//!                 handle.close(from); // this peer does not read its answers; see back-pressure for another way
//!             }
//!         }
//!     }
//!     Event::Closed { endpoint, reason } => {
//!         println!("{endpoint:?} after {:?} messages: {reason}", counts.remove(endpoint));
//!     }
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A client
//!
//! [`Handle::connect`] returns at once. `Connected` reports success, `Closed` failure. With
//! [`Options::reconnect`] a lost connection is opened again, under the same endpoint. With
//! [`Options::proxy`] it goes through a SOCKS5 or HTTP proxy.
//!
//! ```no_run
//! use estafette_net::{Event, Node, Options, Reconnect};
//!
//! let mut node = Node::<()>::new()?;
//! let handle = node.handle();
//! let options = Options::default().reconnect(Reconnect::default());
//! let server = handle.connect_with("tcp+msg://example.org:4000", &options)?;
//! node.run(|event| match event {
//!     Event::Connected(_) => println!("the first message: {:?}", handle.send(server, b"hello")),
//!     Event::Message(_, message) => println!("{} bytes", message.len()),
//!     Event::Lost { reason, again_in, .. } => println!("{reason}; again in {again_in:?}"),
//!     Event::Closed { .. } => handle.stop(),
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Back-pressure
//!
//! A send never waits for the peer or the network. What the kernel does not accept at once is
//! queued, up to [`Limits::queue`]; then a send returns [`Outcome::Full`]. [`Event::Drained`]
//! follows when the queue is empty. So a program sends until `Full`, and continues at `Drained`.
//!
//! ```
//! # use estafette_net::{Event, Node, Outcome};
//! # let mut node = Node::<()>::new()?;
//! # let handle = node.handle();
//! # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
//! let to = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
//! let (mut sent, mut received) = (0, 0);
//! node.run(|event| {
//!     match event {
//!         Event::Connected(_) | Event::Drained(_) => {
//!             while sent < 100 && handle.send(to, &[0; 100_000]).is_accepted() {
//!                 sent += 1;
//!             }
//!         }
//!         Event::Message(..) => received += 1,
//!         _ => {}
//!     }
//!     if received == 100 {
//!         handle.stop();
//!     }
//! })?;
//! # assert_eq!(sent, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server that answers each message must also slow its peers down: one that sends without reading
//! would fill the queue. [`Handle::pause`] stops reading from a connection, and the peer's own
//! sends then wait or become `Full`. Messages that were read before the pause are still delivered,
//! so they are kept. (`examples/echo.rs` also answers a peer that has ended its direction; here its
//! unanswered messages are dropped.)
//!
//! ```
//! use std::collections::VecDeque;
//! use estafette_net::{EndpointMap, Event, Node, Outcome};
//!
//! # let mut limits = estafette_net::Limits::default();
//! # limits.queue = 100_000;
//! # let mut node = Node::<()>::with_limits(limits)?;
//! # let handle = node.handle();
//! # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
//! # let client = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
//! # handle.pause(client); // until the server has paused it
//! # handle.signal_after(std::time::Duration::from_secs(60), ());
//! # let (mut asked, mut answered, mut pauses, total) = (0_u32, 0_u32, 0, 3000);
//! let mut unanswered = EndpointMap::<VecDeque<Vec<u8>>>::new();
//! node.run(|event| {
//! #   match &event {
//! #       Event::Message(from, message) if *from == client => {
//! #           assert_eq!(message[..4], answered.to_be_bytes());
//! #           answered += 1;
//! #           if answered == total {
//! #               handle.stop();
//! #           }
//! #           return;
//! #       }
//! #       Event::Signal(()) => panic!("{answered} of {asked} answered"),
//! #       _ => {}
//! #   }
//! #   if matches!(event, Event::Connected(of) | Event::Drained(of) if of == client) {
//! #       while asked < total && handle.send(client, &[&asked.to_be_bytes()[..], &[0; 10_000]].concat()).is_accepted() {
//! #           asked += 1;
//! #       }
//! #   }
//!     match event {
//!         Event::Message(from, message) => match unanswered.get_mut(from) {
//!             Some(queue) => queue.push_back(message.to_vec()),
//!             None => match handle.send(from, &message) {
//!                 Outcome::Full => {
//!                     handle.pause(from);
//! #                   pauses += 1;
//! #                   handle.resume(client);
//!                     unanswered.insert(from, VecDeque::from([message.to_vec()]));
//!                 }
//!                 outcome if outcome.is_accepted() => {}
//!                 _ => handle.close(from),
//!             },
//!         },
//!         Event::Drained(to) => {
//!             let Some(queue) = unanswered.get_mut(to) else { return };
//!             while let Some(message) = queue.front() {
//!                 match handle.send(to, message) {
//!                     Outcome::Full => return,
//!                     outcome if outcome.is_accepted() => drop(queue.pop_front()),
//!                     _ => return handle.close(to),
//!                 }
//!             }
//!             unanswered.remove(to);
//!             handle.resume(to);
//!         }
//!         Event::Closed { endpoint, .. } => drop(unanswered.remove(endpoint)),
//!         _ => {}
//!     }
//! })?;
//! # assert!(answered == total && pauses > 0, "{answered} answered, {pauses} pauses");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # WebSocket routes
//!
//! [`Options::on_upgrade`] decides about each request before there is a WebSocket: by path,
//! headers, cookies, `Origin` and the peer's address. A refused request gets an HTTP status.
//! `examples/chat_server.rs` is a server with rooms, tokens and a page.
//!
//! ```no_run
//! use estafette_net::{Node, Options, UpgradeResponse};
//!
//! let node = Node::<()>::new()?;
//! let options = Options::default().on_upgrade(|request| match request.path() {
//!     "/feed" if request.header("Authorization") == Some("Bearer secret") => UpgradeResponse::accept(),
//!     "/feed" => UpgradeResponse::reject(401, "a token is needed").header("WWW-Authenticate", "Bearer"),
//!     _ => UpgradeResponse::reject(404, "nothing is here"),
//! });
//! node.handle().listen_with("ws://127.0.0.1:4000", &options)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A client sends headers of its own by [`Options::header`]. If the server refuses, `Closed` has
//! the status:
//!
//! ```
//! use estafette_net::{Event, Node, Options, Reason, Violation};
//! # use estafette_net::UpgradeResponse;
//!
//! # let mut node = Node::<()>::new()?;
//! # let handle = node.handle();
//! # let refuse = Options::default().on_upgrade(|_| UpgradeResponse::reject(401, "a token is needed"));
//! # let listener = handle.listen_with("ws://127.0.0.1:0", &refuse)?;
//! # let url = handle.local_address(listener).ok_or("no address")?;
//! # let mut refused = None;
//! let options = Options::default().header("Authorization", "Bearer secret");
//! let client = handle.connect_with(url, &options)?;
//! node.run(|event| match event {
//!     Event::Closed { endpoint, reason: Reason::Violation(Violation::Handshake(error)) } if endpoint == client => {
//!         println!("refused with status {:?}", error.status);
//! #       refused = error.status;
//!         handle.stop();
//!     }
//!     _ => {}
//! })?;
//! # assert_eq!(refused, Some(401));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # TLS
//!
//! With the feature `tls`, `tls://`, `tls+msg://` and `wss://` encrypt by rustls. A client trusts
//! the roots of the system, and needs no more than the address. A listener needs a certificate:
//! `Options::tls_server`. rustls is re-exported; `examples/tls_echo.rs` makes a test certificate.
//!
#![cfg_attr(feature = "tls", doc = "```no_run")]
#![cfg_attr(not(feature = "tls"), doc = "```ignore")]
//! use std::sync::Arc;
//! use estafette_net::rustls::ServerConfig;
//! use estafette_net::rustls::crypto::ring::default_provider;
//! use estafette_net::rustls::pki_types::pem::PemObject;
//! use estafette_net::rustls::pki_types::{CertificateDer, PrivateKeyDer};
//! use estafette_net::{Node, Options};
//!
//! let node = Node::<()>::new()?;
//! let certificates = CertificateDer::pem_file_iter("certificate.pem")?.collect::<Result<_, _>>()?;
//! let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
//!     .with_safe_default_protocol_versions()?
//!     .with_no_client_auth()
//!     .with_single_cert(certificates, PrivateKeyDer::from_pem_file("key.pem")?)?;
//! node.handle().listen_with("wss://0.0.0.0:443", &Options::default().tls_server(Arc::new(config)))?;
//! let client = node.handle().connect("wss://example.org/feed")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Shutdown
//!
//! Dropping a node discards what is queued. [`Handle::shutdown`] ends it in order: listeners stop,
//! connections write their queues and are closed, and after a deadline the rest is cut. Then `run`
//! returns.
//!
//! ```
//! use std::time::Duration;
//! use estafette_net::{Event, Node};
//!
//! let mut node = Node::<&str>::new()?;
//! let handle = node.handle();
//! handle.listen("tcp+msg://127.0.0.1:0")?;
//! handle.signal_after(Duration::from_millis(1), "stop"); // in place of SIGTERM
//! node.run(|event| match event {
//!     Event::Signal("stop") => handle.shutdown(Duration::from_secs(10)),
//!     Event::Closed { reason, .. } => println!("{reason}"),
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Counters
//!
//! Messages, bytes, queued bytes, refused sends and connections are counted for the node
//! ([`Handle::counters`]), each listener and each connection ([`Handle::counters_of`]).
//! The last counters of a connection can be read while its `Closed` is delivered.
//! [`Handle::endpoints`] lists the endpoints. With the feature `tracing`, events of that crate report
//! what happens to them.
//!
//! ```
//! # use estafette_net::Node;
//! # let node = Node::<()>::new()?;
//! # let handle = node.handle();
//! for info in handle.endpoints() {
//!     println!("{:?} {:?}: {:?}", info.kind, info.peer, handle.counters_of(info.endpoint));
//! }
//! println!("{:?}", handle.counters());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Order.** Messages that one thread sends to one endpoint arrive in that order. Frames of two
//!   threads never interleave.
//! - **Loss.** An accepted message (see [`Outcome::is_accepted`]) is lost only in three cases: its
//!   connection ends first ([`Event::Closed`]), its connection is lost and reconnects
//!   ([`Event::Lost`]), or the node is dropped. For an orderly end, call [`Handle::close`] and keep
//!   running the node until `Closed` arrives, or [`Handle::shutdown`]. The network may lose, duplicate and reorder
//!   datagrams.
//! - **Blocking.** Only [`Node::run`], [`Node::poll`] and [`Node::next`] wait for the network, and
//!   listening at a host name, which resolves that name first. What cannot be written at once is
//!   queued, up to [`Limits::queue`]. Beyond that a send returns [`Outcome::Full`], and
//!   [`Event::Drained`] reports when to continue. Threads that send on one connection at the same
//!   time wait for each other, for one system call at most.
//! - **Copies.** A received message is borrowed from a read buffer that is reused;
//!   [`Message::take`] keeps it. A large message to an idle connection is written straight from the
//!   caller's memory. Copied are what has to be queued, messages of up to 256 bytes behind their header,
//!   messages below 16 KiB in a [`Batch`], and what is masked, encrypted or compressed.
//! - **Fairness.** A busy connection keeps others waiting for [`Limits::time_slice`] and a few
//!   messages more, unless a single callback takes longer.
//! - **Limits.** Whatever a peer does costs a bounded amount of memory and time: [`Limits`].
//!
//! # Platforms
//!
//! Linux. The crate also compiles for macOS, where it waits by kqueue; nobody has run its tests
//! there. What macOS does not have is an error: [`Options::device`], [`Options::user_timeout`] and
//! abstract UNIX sockets. Datagrams are sent and received one by one. The file of a UNIX socket
//! may have more permissions than [`Options::permissions`] says, until the socket listens. For any
//! other system, compiling fails.

#![forbid(unsafe_code)]
// Types that may grow are `non_exhaustive`; the others state why they are not.
#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

// Compiles and runs the code of the migration guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../from-message-io.md")]
mod from_message_io {}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("estafette-net is for Linux; it also compiles for macOS. Other systems are not supported.");

mod acceptor;
mod address;
mod asleep;
mod backend;
mod batch;
mod buffer_totals;
mod close_requests;
mod codec;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
mod counters;
mod datagrams;
#[cfg(feature = "deflate")]
mod deflate;
#[cfg(not(feature = "deflate"))]
#[path = "no_deflate.rs"]
mod deflate;
mod endpoint;
mod endpoint_info;
mod endpoint_map;
mod error;
mod event;
mod frames;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod incoming;
mod last_counters;
mod lifecycle;
mod limits;
mod line;
mod lock;
mod lookup;
mod new_endpoint;
mod node;
mod partial_message;
mod proxy;
mod queue;
mod read_state;
mod reconnect;
mod reconnecting;
mod resource;
mod route;
mod run;
mod scheme;
mod sender;
mod shared;
mod signals;
mod slab;
mod slice;
mod trace;
mod transport;
mod upgrade;
mod upgrade_rules;

pub use address::{Address, AddressError, Place};
pub use batch::Batch;
pub use codec::websocket::{Close, CloseError};
pub use codec::{Kind, Violation};
pub use counters::Counters;
#[cfg(feature = "deflate")]
pub use deflate::Deflate;
pub use endpoint::Endpoint;
pub use endpoint_info::{ConnectionState, EndpointInfo, EndpointKind};
pub use endpoint_map::EndpointMap;
pub use error::Error;
pub use event::{AcceptFailure, Event, Late, Message, Outcome, Reason};
pub use handle::Handle;
pub use limits::Limits;
#[cfg(feature = "tokio")]
pub use node::AsyncNode;
pub use node::Node;
pub use proxy::{Proxy, ProxyError, ProxyFailure, ProxyUrlError};
pub use reconnect::Reconnect;
/// The TLS library of the feature `tls`, whose configurations [`Options::tls_client`] and
/// [`Options::tls_server`] take.
#[cfg(feature = "tls")]
pub use rustls;
pub use sender::Sender;
pub use signals::Timer;
#[cfg(feature = "tls")]
pub use transport::TlsInfo;
pub use transport::{
    Datagrams, Link, Listener, Listening, Opened, Options, PeerCredentials, Received, Transport, WriteInterest,
};
pub use upgrade::{HandshakeError, Headers, UpgradeHook, UpgradeRequest, UpgradeResponse};
