//! Message channels between processes of one machine, over sealed shared memory.
//!
//! A [`channel`] connects two processes. Messages are written and read in place in shared memory.
//! Nothing is copied or allocated on the way.
//!
//! ```
//! use estafette_ipc::{Options, RecvError, channel};
//!
//! let (sender, receiver) = channel(&Options::new().capacity(64 << 10))?;
//! // Each process opens one of the handles. `send_over` hands them to another process.
//! let (mut sender, mut receiver) = (sender.open()?, receiver.open()?);
//!
//! let mut loan = sender.loan(5)?;
//! loan.copy_from_slice(b"hello"); // or fill it in place
//! loan.send();
//! sender.send(b"a copy")?;
//! sender.send_many([&b"two"[..], b"at once"])?;
//! drop(sender);
//!
//! let message = receiver.recv()?;
//! assert_eq!(&message[..], b"hello");
//! message.release();
//! let batch = receiver.recv_many(10)?;
//! assert!(batch.iter().eq([&b"a copy"[..], b"two", b"at once"]));
//! batch.release();
//! assert_eq!(receiver.recv().unwrap_err(), RecvError::Closed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`group`] has rings for one producer and a group of competing consumers. Any of these processes
//! may be killed at any time.
//!
//! # Guarantees of a channel
//!
//! - **Order.** Messages arrive in the order in which they were sent.
//! - **Loss.** None, as long as the receiver lives. If the sender dies, the receiver first receives
//!   all messages that were sent, then the error. A message that was not sent is never visible,
//!   whole or in part.
//! - **Blocking.** [`Sender::loan`], [`Sender::send`] and [`Sender::send_many`] wait while the
//!   channel is full. [`Receiver::recv`], [`Receiver::recv_timeout`] and [`Receiver::recv_many`]
//!   wait while it is empty. The channel's [`WaitMode`] says how. No other call waits. An idle
//!   channel uses no CPU time, unless an end spins.
//! - **Peer death.** An end that waits, spinning or asleep, wakes when the other process dies. That
//!   call and every later one return `PeerDied`, or `Closed` if the other end was dropped. An open
//!   end stays alive as long as a process lives that was forked from its owner.
//! - **Cancel safety.** A [`Loan`] that is dropped sends nothing. A [`Message`] or [`Batch`] that
//!   is dropped is received again by the next call. No call leaves an end in a partial state.
//! - **Memory.** The ring takes its capacity and some pages. Messages that are longer than the ring
//!   take at most eight files of their length, which are reused.
//! - **Hostile peers.** Every word that the other end can write is read once and validated. An
//!   invalid word is an error, which closes this end. It never makes this process access memory
//!   outside of the shared memory, nor panic. A peer can still change a message while it is read;
//!   copy the message first if that matters.

#![cfg_attr(loom, allow(dead_code, reason = "under loom only the models use the rings"))]
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(all(doctest, not(loom)))]
#[doc = include_str!("../README.md")]
mod readme {}

mod bell;
mod channel;
mod error;
#[cfg(not(loom))]
pub mod fd_passing;
#[cfg(not(loom))]
mod file;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
pub mod group;
#[cfg_attr(loom, path = "modelled.rs")]
#[allow(unsafe_code)]
mod memory;
mod record;
#[cfg(not(loom))]
mod spin;
mod sync;
mod wait;

#[cfg(not(loom))]
pub use self::channel::{
    Batch, Loan, Message, Options, Receiver, ReceiverHandle, RecvError, SendError, Sender, SenderHandle, channel,
};
pub use self::error::{OpenError, Violation};
pub use self::wait::WaitMode;
