//! The channel of two processes; see the crate's documentation.
//!
//! | file | what it holds |
//! |---|---|
//! | `ring.rs` | what one end publishes and the other awaits: all ordering of memory |
//! | `layout.rs` | the words in shared memory |
//! | `descriptor.rs` | what the word says that announces a message |
//! | `sender.rs`, `receiver.rs` | the ends |
//! | `slip.rs` | how long an end that spins stands back |
//! | `peer.rs` | whether the other end still lives |
//! | `pool.rs` | memory for messages that are longer than the ring |
//! | `handle.rs` | how a channel is made, handed on and opened |

#[cfg(not(loom))]
mod descriptor;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod handle;
mod layout;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod peer;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod receiver;
mod ring;
#[cfg(not(loom))]
mod sender;
mod slip;

#[cfg(not(loom))]
pub use self::{
    error::{RecvError, SendError},
    handle::{Options, ReceiverHandle, SenderHandle, channel},
    receiver::{Batch, Message, Receiver},
    sender::{Loan, Sender},
};
