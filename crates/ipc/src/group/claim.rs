//! A claim: the messages that a member has claimed.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;

use super::claims::ClaimedRange;
use super::copies::Copied;
use super::member::{Claimed, Member};
use super::ring::Ring;
use crate::memory::Bytes;
use crate::record::HEADER;

/// Messages that one member owns until it [acknowledges](Self::ack) them.
///
/// A claim that is dropped is not acknowledged: the member's next claim returns the same messages
/// again. If the member dies, the supervisor returns the claim to the group or discards it (see
/// [`Recovery`](super::Recovery)).
#[must_use = "`ack` releases the messages of a claim"]
pub struct Claim<'a> {
    /// The records in the ring; none if the member has copied them.
    in_ring: Option<Bytes>,
    /// The number of messages that are done, and the bytes of their records.
    done: Cell<(usize, u64)>,
    member: &'a mut Member,
}

impl<'a> Claim<'a> {
    /// The claim that is recorded in the member.
    pub(super) fn new(member: &'a mut Member) -> Self {
        let in_ring = match member.claimed.expect("find() has claimed something") {
            (_, Claimed::Copied) => None,
            (ring, Claimed::InRing(range)) => Some(Self::borrow_records(member.ring(ring), range)),
        };
        Self { in_ring, done: Cell::new((0, 0)), member }
    }

    fn borrow_records(ring: &Ring, range: ClaimedRange) -> Bytes {
        // SAFETY: this process does not write the bytes, unless it is also the producer. The
        // producer writes through another mapping, and only after the bytes were acknowledged,
        // which ends this claim: the head does not pass a slot that is not empty. A peer that
        // breaks this rule is another process, not part of this one.
        #[allow(unsafe_code)]
        unsafe {
            ring.memory().bytes(range.from, (range.to - range.from) as usize)
        }
    }

    /// The records, back to back: a header of eight bytes, the payload, padding to eight bytes.
    ///
    /// The lengths in the headers are the validated ones, unless the producer's process is
    /// malicious and has changed them. If the consumer of these bytes trusts the headers, use
    /// [`messages`](Self::messages).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.in_ring {
            Some(bytes) => bytes,
            None => self.member.copied.as_ref().map_or(&[], Copied::bytes),
        }
    }

    /// The number of messages, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.member.headers.len()
    }

    /// The index of the messages' ring, in the order in which the member opened its rings.
    #[must_use]
    pub fn ring(&self) -> usize {
        self.member.claimed.map_or(0, |(ring, _)| ring)
    }

    /// The messages, in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        // Uses the lengths that were read once and validated. The headers in the ring may have
        // changed.
        let mut rest = self.bytes();
        self.member.headers.iter().map(move |header| {
            let (record, behind) = rest.split_at(header.record() as usize);
            rest = behind;
            Message { attempts: header.attempts, data: &record[HEADER..HEADER + header.len as usize] }
        })
    }

    /// Records that the first `messages` messages are done. If the member dies now, only the others
    /// are returned to the group or discarded. This is not an acknowledgement: the space is not
    /// released.
    pub fn progress(&self, messages: usize) {
        let Some((ring, claimed)) = self.member.claimed else { return };
        let (known, bytes) = self.done.get();
        let (known, bytes) = if messages < known { (0, 0) } else { (known, bytes) };
        let more = self.member.headers.get(known..messages.min(self.count())).unwrap_or_default();
        let done = bytes + more.iter().map(|header| header.record()).sum::<u64>();
        self.done.set((known + more.len(), done));
        let ring = self.member.ring(ring);
        match claimed {
            Claimed::InRing(range) => ring.progress(&range, range.from + done),
            Claimed::Copied => ring.count_copies_done(self.member.index(), known + more.len()),
        }
    }

    /// Acknowledges all messages, and releases their space.
    pub fn ack(self) {
        let Self { in_ring, member, .. } = self;
        end_reading(in_ring);
        member.ack();
    }

    /// Leaves the acknowledgement to [`Member::ack_oldest`], so that the member can
    /// [claim](Member::try_claim) more while the work on these messages lasts. They can no longer
    /// be read. At most two claims of a member are not acknowledged.
    ///
    /// If the member dies before the acknowledgement, the messages are returned to the group or
    /// discarded, as those of any claim. Those of two claims may be returned in any order.
    ///
    /// A member that [copies](Member::with_copies) has no claim to keep: its messages are
    /// acknowledged at once.
    pub fn ack_later(self) {
        let Self { in_ring, member, .. } = self;
        end_reading(in_ring);
        member.ack_later();
    }
}

/// Ends the reference before the bytes are released.
fn end_reading(_: Option<Bytes>) {}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("count", &self.count()).field("ring", &self.ring()).finish_non_exhaustive()
    }
}

/// A message of a [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message<'a> {
    /// How many members died while they had claimed the message.
    pub attempts: u8,
    /// The payload.
    pub data: &'a [u8],
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data
    }
}
