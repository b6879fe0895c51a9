//! Passes messages between processes, over the network and through WASM functions.
//!
//! This crate has no code of its own. Each module is one of Estafette's libraries, behind a feature
//! of the same name:
//!
//! | module | crate | what it is |
//! |---|---|---|
//! | `ipc` | `estafette-ipc` | channels between processes of one machine, over shared memory |
//! | `net` | `estafette-net` | a node for TCP, UDP, UNIX sockets and WebSocket |
//! | `flow` | `estafette-flow` | pipelines of WASM functions |
//!
//! `ipc` and `net` are on by default. `flow` compiles a WASM engine, which takes minutes. Three
//! more features are those of the module `net`: `tls` (rustls), `deflate` (compressed WebSockets)
//! and `tokio` (a node that is driven by a tokio runtime). A program that needs one library only
//! may depend on its crate instead; the types are the same.
//!
//! # Between processes
//!
#![cfg_attr(feature = "ipc", doc = "```")]
#![cfg_attr(not(feature = "ipc"), doc = "```ignore")]
//! use estafette::ipc::{Options, channel};
//!
//! let (sender, receiver) = channel(&Options::new().capacity(64 << 10))?;
//! // Each process opens one of the handles; `send_over` hands a handle to another process.
//! let (mut sender, mut receiver) = (sender.open()?, receiver.open()?);
//! sender.send(b"hello")?;
//!
//! let message = receiver.recv()?;
//! assert_eq!(&message[..], b"hello"); // in place: nothing was copied
//! message.release();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Over the network
//!
#![cfg_attr(feature = "net", doc = "```")]
#![cfg_attr(not(feature = "net"), doc = "```ignore")]
//! use estafette::net::{Event, Node};
//!
//! let mut node = Node::<()>::new()?;
//! let handle = node.handle();
//! let server = handle.listen("tcp+msg://127.0.0.1:0")?; // or ws://, unix+msg://, udp://, inproc://
//! let address = handle.local_address(server).ok_or("the server has an address")?;
//! let client = handle.connect(&address)?;
//! handle.send(client, b"hello"); // waits for the connection
//!
//! node.run(|event| match event {
//!     Event::Message(from, message) if from == client => {
//!         assert_eq!(&message[..], b"hello");
//!         handle.stop();
//!     }
//!     Event::Message(from, message) => drop(handle.send(from, &message)), // the server echoes
//!     _ => {}
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Pipelines of WASM functions
//!
#![cfg_attr(feature = "flow", doc = "```")]
#![cfg_attr(not(feature = "flow"), doc = "```ignore")]
//! use std::path::Path;
//! use estafette::flow::config::{Options, check};
//!
//! let checked = check(Path::new("no-such-pipeline.yml"), &Options::default());
//! assert!(!checked.is_ok());
//! for finding in &checked.diagnostics {
//!     println!("{finding}"); // file, line, column, and the remedy
//! }
//! ```
//!
//! # Guarantees
//!
//! Order, loss, blocking, cancel safety, memory, and what a hostile peer can do: the first page of
//! each module states them.
#![forbid(unsafe_code)]

#[cfg(feature = "flow")]
#[doc(inline)]
pub use estafette_flow as flow;
#[cfg(feature = "ipc")]
#[doc(inline)]
pub use estafette_ipc as ipc;
#[cfg(feature = "net")]
#[doc(inline)]
pub use estafette_net as net;

// Compiles and runs the README's example.
#[cfg(all(doctest, feature = "ipc"))]
#[doc = include_str!("../README.md")]
mod readme {}
