//! The reference ring: the least that can be written for copying messages between two ends.
//!
//! A bounded ring of byte slots of one size, for one producer and one consumer, between threads ([`heap`]) or between
//! processes ([`create_shared`]). A message is written where it lies and read where it lies; nothing is allocated, moved
//! or copied by the ring itself. What other mechanisms cost beyond it is the price of what they offer beyond it.
//!
//! The algorithm is Lamport's ring with cached indices. Each end counts its messages in an index of its own, publishes it
//! after each message, and keeps a copy of the other's, which it reads again only when the ring seems full or empty. Within
//! a stream an end that spins stands back a little before it does. Sources:
//! - L. Lamport, *Specifying concurrent program modules*, TOPLAS 5(2), 1983: one index for each end, no lock.
//! - J. Giacomoni, T. Moseley, M. Vachharajani, *FastForward for efficient pipeline parallelism*, PPoPP 2008: what such a
//!   ring costs is the cache lines both ends touch, so the ends keep a distance ("temporal slipping").
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009 (MCRingBuffer), and the
//!   crate `rtrb`: the cached copy of the other end's index.
//!
//! | file | what it holds |
//! |---|---|
//! | `shape.rs` | how many bytes a slot has and how many slots there are |
//! | `memory.rs` | where the ring lies: the heap or a mapping; all pointer arithmetic (`modelled.rs` stands in for it under loom) |
//! | `shared.rs` | the sealed memory file, or another one: its header, creating and verifying it |
//! | `lane.rs` | an index, published and awaited: the ordering of memory, spinning, sleeping, waking, closing |
//! | `ring.rs` | the two ends |
//! | `slip.rs` | how long an end that spins stands back |
//! | `sync.rs` | atomics, futex and eventfd, of the machine or of loom |
//!
//! # What a hostile peer can do
//!
//! The bounds of each access follow from an end's own index and from its own [`Shape`], never from what lies in shared
//! memory. A peer that writes whatever it likes there can therefore hand over garbage, change a message while it is read,
//! pretend to be full, empty or closed, and provoke a needless `futex` call for each message. It cannot make this process
//! read or write outside the ring, nor shrink the file beneath it (the file is sealed; one that was opened unsealed is only
//! for peers that are trusted not to). A reader that must not be fooled copies a message before it judges it. To the
//! letter, bytes that change beneath a reference are undefined behaviour whoever changes them; as with every such library,
//! the ends are assumed to keep the protocol where that matters.

#![cfg_attr(all(loom, not(test)), allow(dead_code, reason = "under loom only the models use the ring"))]

#[cfg(not(loom))]
mod error;
mod lane;
#[cfg_attr(loom, path = "modelled.rs")]
mod memory;
mod ring;
mod shape;
#[cfg(not(loom))]
mod shared;
mod slip;
mod sync;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use self::{
    error::Error,
    ring::heap,
    shared::{Opening, create_shared, lay_out, open_consumer, open_producer},
};
pub use self::{
    lane::{Closed, Wait},
    ring::{Consumer, Message, Producer, Slot},
    shape::{Shape, ShapeError},
};
