//! An event-driven network node for TCP, UDP, UNIX sockets, WebSocket and in-process pipes. One
//! thread serves every connection, as byte streams or as messages.
//!
//! ```no_run
//! use estafette_net::{Event, Node};
//!
//! let mut node = Node::<()>::new()?;
//! let handle = node.handle();
//! handle.listen("tcp+msg://127.0.0.1:4000")?; // or ws://, unix+msg:///tmp/a.sock, inproc://, udp://
//! node.run(|event| match event {
//!     Event::Message(from, message) => {
//!         if !handle.send(from, &message).is_accepted() {
//!             handle.close(from); // this peer sends faster than it reads
//!         }
//!     }
//!     Event::Closed { endpoint, reason } => println!("{endpoint:?}: {reason}"),
//!     _ => {}
//! })?;
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
//!   running the node until `Closed` arrives. The network may lose, duplicate and reorder
//!   datagrams.
//! - **Blocking.** Only [`Node::run`], [`Node::poll`] and [`Node::next`] block, and listening at a
//!   host name, which resolves that name first. What cannot be written at once is queued, up to
//!   [`Limits::queue`]. Beyond that a send returns [`Outcome::Full`], and [`Event::Drained`]
//!   reports when to continue.
//! - **Copies.** A received message is borrowed from a read buffer that is reused;
//!   [`Message::take`] keeps it. A sent message is written straight from the caller's memory. Only
//!   two things are copied: the part that the kernel does not accept at once, and what a WebSocket
//!   client has to mask.
//! - **Fairness.** A busy connection keeps others waiting for [`Limits::time_slice`] and a few
//!   messages more, unless a single callback takes longer.
//! - **Limits.** Whatever a peer does costs a bounded amount of memory and time: [`Limits`].

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

mod address;
mod asleep;
mod backend;
mod batch;
mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
mod datagrams;
#[cfg(feature = "deflate")]
mod deflate;
#[cfg(not(feature = "deflate"))]
#[path = "no_deflate.rs"]
mod deflate;
mod event;
mod frames;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod incoming;
mod limits;
mod line;
mod lookup;
mod node;
mod queue;
mod reconnect;
mod run;
mod scheme;
mod shared;
mod signals;
mod slab;
mod slice;
mod transport;
mod upgrade;

pub use address::{Address, AddressError, Place};
pub use batch::Batch;
pub use codec::websocket::{Close, CloseError};
pub use codec::{Kind, Violation};
#[cfg(feature = "deflate")]
pub use deflate::Deflate;
pub use event::{AcceptFailure, Endpoint, Event, Late, Message, Outcome, Reason};
pub use handle::{Error, Handle};
pub use limits::Limits;
#[cfg(feature = "tokio")]
pub use node::AsyncNode;
pub use node::Node;
pub use reconnect::Reconnect;
pub use transport::{Datagrams, Link, Listener, Listening, Opened, Options, Received, Transport, WriteInterest};
pub use upgrade::{HandshakeError, Headers, UpgradeHook, UpgradeRequest, UpgradeResponse};
