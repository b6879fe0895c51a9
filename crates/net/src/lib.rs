//! One node for every transport: TCP, UDP, UNIX sockets, WebSocket and pipes within a process, as streams or as messages, from
//! one thread.
//!
//! ```no_run
//! use estafette_net::{Event, Node};
//!
//! let mut node = Node::<()>::new()?;
//! let handle = node.handle();
//! handle.listen("tcp+msg://127.0.0.1:4000")?; // or ws://, unix+msg:///tmp/a.sock, inproc://, udp://
//! node.run(|event| match event {
//!     Event::Message(from, message) => {
//!         if !handle.send(from, &message).taken() {
//!             handle.close(from); // it sends, and does not read
//!         }
//!     }
//!     Event::Closed { endpoint, reason } => println!("{endpoint:?}: {reason}"),
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - **Order.** Messages that one thread sends to one endpoint arrive in that order. Frames of two threads never interleave.
//! - **Loss.** A message that was [`taken`](Outcome::taken) is lost only if its connection ends first, which
//!   [`Event::Closed`] tells, or [`Event::Lost`], or the node is dropped: to end, [`Handle::close`] and go on until `Closed` is told.
//!   Datagrams may be lost, doubled and reordered by the network.
//! - **Waiting.** Nothing but [`Node::run`], [`Node::poll`] and [`Node::next`] waits, and what looks up the name of a host to
//!   listen at. What cannot be written at once is queued, within [`Limits::queue`]; beyond that a send returns
//!   [`Outcome::Full`], and [`Event::Drained`] tells when to go on.
//! - **Copies.** A message is told where it was read, in memory that is used again: [`Message::take`] keeps it. It is sent
//!   from where it lies; only what the system has no room for is copied, and what a WebSocket's client has to mask.
//! - **Limits.** Whatever a peer does costs a bounded amount of memory and time: [`Limits`].

#![forbid(unsafe_code)]
// Whatever may grow says so, and what may not says why.
#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

// What the guide shows is compiled and run, as the examples here are.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-message-io.md")]
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
mod transport;

pub use address::{Address, AddressError, Place};
pub use batch::Batch;
pub use codec::websocket::Close;
pub use codec::{Kind, Violation};
pub use event::{Endpoint, Event, Late, Message, Outcome, Reason};
pub use handle::{Error, Handle};
pub use limits::Limits;
#[cfg(feature = "tokio")]
pub use node::AsyncNode;
pub use node::Node;
pub use reconnect::Reconnect;
pub use transport::{Datagrams, Link, Listener, Listening, Opened, Options, Received, TellsOfRoom, Transport};
