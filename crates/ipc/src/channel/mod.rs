//! The channel between two processes; see the crate's documentation.
//!
//! | file | content |
//! |---|---|
//! | `ring.rs` | publishing and waiting, with all memory ordering |
//! | `layout.rs` | the words in shared memory |
//! | `descriptor.rs` | the word that announces a message |
//! | `sender.rs`, `receiver.rs` | the ends |
//! | `slip.rs` | how long a spinning end pauses before it polls again |
//! | `peer.rs` | whether the other end is alive |
//! | `pool.rs` | memory for messages that are longer than the ring |
//! | `handle.rs` | how a channel is created, passed to a process and opened |

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
