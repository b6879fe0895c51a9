//! A ring that is read by a group of competing members, each in its own process.
//!
//! One [`Publisher`] writes messages, in order. Each message is [claimed](Member::claim) by one
//! member of the group, and [acknowledged](Claim::ack) when it is done. A member may read the rings
//! of several publishers. There are no locks: any process may be killed at any time, and the others
//! continue. The supervisor keeps the descriptors, so that the rings survive the death of any end.
//! It [recovers](RingControl::recover) the claims of a dead member.
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
//! // In a member's process.
//! let mut member = Member::open(vec![ring], &bell, 0, WaitMode::Adaptive, interrupt)?;
//! let claim = member.claim(1 << 20, 100)?;
//! let messages: Vec<&[u8]> = claim.messages().map(|message| message.data).collect();
//! assert_eq!(messages, [&b"hello"[..], b"a", b"b"]);
//! claim.ack();
//! assert_eq!(member.claim(1 << 20, 100).unwrap_err(), ClaimError::Closed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Order.** A member gets the messages of one publisher in order. Only messages that a dead
//!   member left may come after newer ones.
//! - **Loss.** A published message is lost only if it is dropped or discarded on demand
//!   ([`Publisher::discard_oldest`], [`Recovery::Discard`]), or if a member dies that had copied
//!   it. If a publisher dies during `send`, the message is published whole or not at all.
//! - **Duplicates.** A message that a member had claimed and not acknowledged when it died is
//!   delivered again, with its attempts counted, unless the member had copied it. All other
//!   messages are delivered once.
//! - **Blocking.** `reserve`, `send`, `send_batch` and `claim` wait; an [`Interrupt`] ends that. No
//!   other call waits.
//! - **Overflow.** A publisher may wait, drop the new message, or drop the oldest ones
//!   ([`Publisher::send_dropping_oldest`]). The last needs members that copy
//!   ([`Member::with_copies`]): a claim of records in the ring keeps their space and that of all
//!   later records.
//! - **Memory.** A ring takes its capacity and some pages, whatever its ends do.
//! - **Hostile peers.** What other ends wrote is read once and validated. An invalid value is an
//!   error, which closes the end that read it. It never makes this process access memory outside of
//!   the ring, nor panic.
//!
//! | file | content |
//! |---|---|
//! | `claims.rs` | how members share a ring without a lock |
//! | `copies.rs` | how a member copies messages out of a ring |
//! | `recovery.rs` | recovery of the claims of a dead member |
//! | `ring.rs` | positions, records, space |
//! | `slot.rs` | the slots that record claims |
//! | `layout.rs` | the words in shared memory |
//! | `publisher.rs`, `member.rs`, `claim.rs`, `control.rs` | the ends |
//! | `interrupt.rs` | interrupts waiting ends from another thread |
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
    control::{Counters, Depth, Positions, RingControl},
    files::{BellFile, RingFile},
    interrupt::Interrupt,
    member::{ClaimError, Member},
    publisher::{Dropped, Loan, PublishError, Publisher},
};
pub use crate::bell::MAX_MEMBERS;
pub use crate::record::{HEADER, record_len};
