//! A ring that a group of competing members reads, each in a process of its own.
//!
//! One [`Publisher`] writes messages, in order. Each is [claimed](Member::claim) by one member of
//! the group, and [acknowledged](Claim::ack) when it is done. A member may read the rings of
//! several publishers. Nobody waits for a lock: any process may be killed at any moment, and the
//! others go on. The supervisor holds the descriptors, so that the rings survive each of their
//! ends, and [recovers](RingControl::recover) what a dead member had claimed.
//!
//! ```
//! use estafette_ipc::WaitMode;
//! use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, RingFile};
//!
//! let (ring, bell) = (RingFile::create(64 << 10, 2)?, BellFile::create()?);
//! let interrupt = Interrupt::new();
//!
//! // In the publisher's process, from the descriptors.
//! let mut publisher = Publisher::open(&ring, &bell, WaitMode::Adaptive, interrupt.clone())?;
//! let mut loan = publisher.reserve(5)?;
//! loan.copy_from_slice(b"hello");
//! loan.send();
//! publisher.send_batch([&b"a"[..], b"b"])?;
//! publisher.close();
//!
//! // In a member's.
//! let mut member = Member::open(vec![ring], &bell, 0, WaitMode::Adaptive, interrupt)?;
//! let claim = member.claim(1 << 20, 100)?;
//! let messages: Vec<&[u8]> = claim.messages().map(|message| message.data).collect();
//! assert_eq!(messages, [&b"hello"[..], b"a", b"b"]);
//! claim.ack();
//! assert_eq!(member.claim(1 << 20, 100).unwrap_err(), ClaimError::Closed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - **Order.** A member gets the messages of one publisher in order. Those that a dead member left
//!   may come to another one later than newer ones.
//! - **Loss.** A message that was published is lost only if it is dropped or discarded on demand
//!   ([`Publisher::discard_oldest`], [`Recovery::Discard`]), or if a member dies that had
//!   copied it. A message of which `send` did not return is published whole or not at all.
//! - **Doubles.** A message that was claimed and not acknowledged when a member died comes again,
//!   with its attempts counted, unless the member had copied it. Other messages come once.
//! - **Waiting.** `reserve`, `send`, `send_batch` and `claim` wait; an [`Interrupt`] ends that.
//!   Nothing else waits.
//! - **Overflow.** A publisher may wait, drop the message it has, or drop the oldest ones
//!   ([`Publisher::send_dropping_oldest`]). The last needs members that copy
//!   ([`Member::with_copies`]), as a claim of records in the ring keeps their space and all behind it.
//! - **Bounds.** A ring takes its capacity and some pages, whatever its ends do.
//! - **Hostile peers.** What others wrote is read once and verified. What cannot be is an error,
//!   and closes the end that saw it. It never leads this process outside of the ring, nor to a panic.
//!
//! | file | what it holds |
//! |---|---|
//! | `claims.rs` | how members share a ring without a lock |
//! | `copies.rs` | how a member copies messages out of a ring |
//! | `recovery.rs` | recovery of the claims of a dead member |
//! | `ring.rs` | positions, records, space |
//! | `slot.rs` | what each member has claimed |
//! | `layout.rs` | the words in shared memory |
//! | `publisher.rs`, `member.rs`, `claim.rs`, `control.rs` | the ends |
//! | `interrupt.rs` | ends an end's waiting from another thread |
//! | `files.rs` | the memory files |

#[cfg(not(loom))]
mod claim;
mod claims;
#[cfg(not(loom))]
mod control;
mod copies;
#[cfg(not(loom))]
mod files;
#[cfg(not(loom))]
mod interrupt;
mod layout;
#[cfg(not(loom))]
mod member;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod publisher;
mod recovery;
mod ring;
mod slot;

pub use self::recovery::{Recovered, Recovery};
#[cfg(not(loom))]
pub use self::{
    claim::{Claim, Message},
    control::{Counters, Depth, RingControl},
    files::{BellFile, RingFile},
    interrupt::Interrupt,
    member::{ClaimError, Member},
    publisher::{Dropped, Loan, PublishError, Publisher},
};
pub use crate::bell::MAX_MEMBERS;
pub use crate::record::{HEADER, record_len};
