//! The reference ring: a minimal implementation of copying messages between two ends.
//!
//! A bounded single-producer, single-consumer ring of byte slots of one size. It connects threads
//! ([`heap`]) or processes ([`create_shared`]). A message is written and read in place: the ring
//! itself allocates, moves and copies nothing. The extra cost of another mechanism is the price of
//! its extra features.
//!
//! The algorithm is Lamport's ring with cached indices. Each end counts its messages in its own
//! index and publishes that index after each message. Each end caches the other's index and reloads
//! it only when the ring seems full or empty. Within a stream, a spinning end backs off briefly
//! before it reloads. Sources:
//! - L. Lamport, *Specifying concurrent program modules*, TOPLAS 5(2), 1983: one index per end, no
//!   lock.
//! - J. Giacomoni, T. Moseley, M. Vachharajani, *FastForward for efficient pipeline parallelism*,
//!   PPoPP 2008: the cost of such a ring is the cache lines that both ends touch, so the ends keep
//!   a distance ("temporal slipping").
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009
//!   (MCRingBuffer), and the crate `rtrb`: the cached copy of the other end's index.
//!
//! | file | content |
//! |---|---|
//! | `shape.rs` | the number of slots and the bytes of a slot |
//! | `memory.rs` | the ring's memory, on the heap or mapped; all pointer arithmetic (`modelled.rs` replaces it under loom) |
//! | `shared.rs` | the file of a ring between processes, sealed or not: its header, creation and verification |
//! | `lane.rs` | an index that one end publishes and the other waits for: memory ordering, spinning, sleeping, waking, closing |
//! | `ring.rs` | the two ends |
//! | `slip.rs` | how long a spinning end backs off |
//! | `sync.rs` | atomics, futex and eventfd, of the machine or of loom |
//!
//! # What a hostile peer can do
//!
//! The bounds of each access follow from an end's own index and its own [`Shape`], never from
//! shared memory. A hostile peer can therefore send garbage, change a message while it is read,
//! pretend to be full, empty or closed, and cause an unnecessary `futex` call per message. It
//! cannot make this process access memory outside the ring. It cannot shrink the file, because the
//! file is sealed; an unsealed file is only for peers that are trusted not to shrink it. A reader
//! that must not be deceived copies a message before it validates it.
//!
//! Strictly, bytes that change beneath a reference are undefined behaviour, no matter who changes
//! them. As with every such library, the ends are assumed to follow the protocol where that
//! matters.

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
