//! Bytes between processes of one machine, over sealed shared memory.
//!
//! A [`channel`] joins two processes. A message is written where it lies, read where it lies, and
//! neither copied nor allocated on the way.
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
//! [`group`] has rings for one producer and a group of competing consumers, of which any may be
//! killed at any moment.
//!
//! # What a channel promises
//!
//! - **Order.** Messages arrive in the order in which they were sent.
//! - **Loss.** None, as long as the receiver lives. What a sender that died had sent is received
//!   before its death is reported. A message that it had not sent is never seen, whole or in part.
//! - **Waiting.** [`Sender::loan`], [`Sender::send`] and [`Sender::send_many`] wait while the channel
//!   is full, [`Receiver::recv`], [`Receiver::recv_timeout`] and [`Receiver::recv_many`] while it is
//!   empty, as the channel's [`WaitMode`] says. Nothing else waits. An idle channel costs no time,
//!   unless it spins.
//! - **Peer death.** An end that waits, awake or asleep, is woken when the other's process dies, and
//!   every later call says so: `PeerDied`, or `Closed` if the other end was dropped. A process that
//!   was forked from one with an open end keeps that end alive.
//! - **Cancelling.** A [`Loan`] that is dropped sends nothing. A [`Message`] or [`Batch`] that is
//!   dropped comes again. No call leaves an end half way.
//! - **Bounds.** The ring takes its capacity and some pages. Longer messages take eight files of
//!   their length at most, which are kept for the next.
//! - **Hostile peers.** Every word that the other end can write is read once and verified. What
//!   cannot be is an error, which closes this end. It never leads this process outside of the shared
//!   memory, nor to a panic. A peer can still change a message while it is read: who must not be
//!   fooled copies it first.

#![cfg_attr(loom, allow(dead_code, reason = "under loom only the models use the rings"))]
#![deny(unsafe_code)]

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
