//! What a member has claimed.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;

use super::claims::ClaimedRange;
use super::copies::Copied;
use super::member::{Claimed, Member};
use super::ring::Ring;
use crate::memory::Bytes;
use crate::record::HEADER;

/// Messages that one member has, until it [acknowledges](Self::ack) them.
///
/// A claim that is dropped is not acknowledged: the member's next claim is the same once more. If
/// the member dies, the supervisor returns it to the group or discards it (see [`Recovery`](super::Recovery)).
#[must_use = "a claim is given back by `ack`"]
pub struct Claim<'a> {
    /// Where the records lie in the ring; none if the member has copied them.
    lent: Option<Bytes>,
    /// How many messages are done, and the bytes of their records.
    done: Cell<(usize, u64)>,
    member: &'a mut Member,
}

impl<'a> Claim<'a> {
    /// What the member has claimed.
    pub(super) fn new(member: &'a mut Member) -> Self {
        let lent = match member.claimed.expect("find() has claimed something") {
            (_, Claimed::Copied) => None,
            (ring, Claimed::InRing(range)) => Some(Self::lend(member.ring(ring), range)),
        };
        Self { lent, done: Cell::new((0, 0)), member }
    }

    fn lend(ring: &Ring, range: ClaimedRange) -> Bytes {
        // SAFETY: this process does not write the bytes, but where it is the producer, and then
        // through another mapping and not before they are acknowledged, which ends this claim: the
        // head is not raised above a slot that is not empty. A peer of another process that lies is
        // outside of this process.
        #[allow(unsafe_code)]
        unsafe {
            ring.memory().bytes(range.from, (range.to - range.from) as usize)
        }
    }

    /// The records, back to back: a header of eight bytes, the payload, padding to eight bytes.
    ///
    /// The lengths in it are those that were verified, unless the producer's process is malicious:
    /// who hands the bytes on to somebody that trusts them uses [`messages`](Self::messages).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.lent {
            Some(bytes) => bytes,
            None => self.member.copied.as_ref().map_or(&[], Copied::bytes),
        }
    }

    /// How many messages there are: one at least.
    #[must_use]
    pub fn count(&self) -> usize {
        self.member.headers.len()
    }

    /// The index of the ring they are from, in the order in which the member got its rings.
    #[must_use]
    pub fn ring(&self) -> usize {
        self.member.claimed.map_or(0, |(ring, _)| ring)
    }

    /// The messages, in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        // By the lengths that were read once and verified, whatever lies in the ring by now.
        let mut rest = self.bytes();
        self.member.headers.iter().map(move |header| {
            let (record, behind) = rest.split_at(header.record() as usize);
            rest = behind;
            Message { attempts: header.attempts, data: &record[HEADER..HEADER + header.len as usize] }
        })
    }

    /// Says that the first `messages` messages are done. If the member dies now, only the others go
    /// back to the group, or are lost. It is no acknowledgement: the space is not freed.
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

    /// Gives the messages back, as done: the ring has space for others.
    pub fn ack(self) {
        let Self { lent, member, .. } = self;
        end_reading(lent);
        member.ack();
    }
}

/// Ends the reference before the bytes are given back.
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
    /// How often it was given out before, to members that died.
    pub attempts: u8,
    /// What was sent.
    pub data: &'a [u8],
}

impl Deref for Message<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data
    }
}
