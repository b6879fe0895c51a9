//! The consuming end: a member of a group.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use thiserror::Error;

use super::claim::Claim;
use super::claims::ClaimedRange;
use super::copies::Copied;
use super::files::{BellFile, RingFile};
use super::interrupt::{Interrupt, Wake};
use super::ring::{Limits, Ring};
use super::slot::MAX_CLAIMS;
use crate::bell::Bell;
use crate::error::{OpenError, Violation};
use crate::memory::Memory;
use crate::record::Header;
use crate::wait::WaitMode;

/// Why there is nothing to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// All rings are closed and empty.
    #[error("all rings are closed and empty")]
    Closed,
    /// The [`Interrupt`] is set.
    #[error("interrupted")]
    Interrupted,
    /// An earlier claim is [not acknowledged](Claim::ack_later). Then this member does not wait.
    #[error("an earlier claim is not acknowledged; acknowledge it first, or use `try_claim`")]
    Unacknowledged,
    /// A peer broke the protocol. The member continues with its other rings.
    #[error("ring {ring} is no longer read since a peer broke the protocol: {violation}")]
    Violation {
        /// The index of the ring.
        ring: usize,
        /// How the peer broke it.
        violation: Violation,
    },
}

/// A member of a group: one of the consumers that compete for the messages of one or several rings.
///
/// Each message goes to one member. A member gets the messages of a ring in order. Only messages
/// that a dead member left may come after newer ones.
pub struct Member {
    rings: Vec<Source>,
    bell: Memory<Bell>,
    index: usize,
    wait: WaitMode,
    interrupt: Arc<Interrupt>,
    /// The ring to look at first, for round-robin.
    turn: usize,
    /// The current claim, and the index of its ring.
    pub(super) claimed: Option<(usize, Claimed)>,
    /// The headers of the claimed records.
    pub(super) headers: Vec<Header>,
    /// Earlier claims that are not acknowledged, the oldest first.
    earlier: VecDeque<Earlier>,
    /// The records that were last copied out of a ring. None if this member does not copy.
    pub(super) copied: Option<Copied>,
    /// Registered with `interrupt`.
    _wake: Arc<WakeMember>,
}

/// Where the claimed messages are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claimed {
    /// In the ring.
    InRing(ClaimedRange),
    /// Copied to this process.
    Copied,
}

/// An earlier claim that is not acknowledged.
struct Earlier {
    /// The index of its ring.
    ring: usize,
    range: ClaimedRange,
    headers: Vec<Header>,
}

/// A ring, and this member's state of it.
struct Source {
    ring: Ring,
    /// The count of returned ranges when none was found.
    checked_returns: u64,
    /// The ring is closed and drained, or a peer broke the protocol.
    finished: bool,
}

struct WakeMember {
    bell: Memory<Bell>,
    index: usize,
}

impl Wake for WakeMember {
    fn wake(&self) {
        self.bell.controls().ring(self.index);
    }
}

impl Member {
    /// Opens the rings of a group as the member with this index. Only one member may use an index
    /// at a time. After it is gone and was recovered, another may use the index.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped, a ring has no such index, or an earlier member with this
    /// index left a claim that was not recovered.
    pub fn open(
        rings: Vec<RingFile>,
        bell: &BellFile,
        index: usize,
        wait: WaitMode,
        interrupt: Arc<Interrupt>,
    ) -> Result<Self, OpenError> {
        let bell = bell.map()?;
        let wake = Arc::new(WakeMember { bell: bell.clone(), index });
        let end: Weak<WakeMember> = Arc::downgrade(&wake);
        interrupt.register(end);
        let mut member = Self {
            rings: Vec::new(),
            bell,
            index,
            wait,
            interrupt,
            turn: 0,
            claimed: None,
            headers: Vec::new(),
            earlier: VecDeque::new(),
            copied: None,
            _wake: wake,
        };
        for ring in rings {
            member.add_ring(&ring)?;
        }
        Ok(member)
    }

    /// Makes this member copy messages out of the ring when it claims them. Use it with a publisher
    /// that [drops the oldest](super::Publisher::send_dropping_oldest). The space is released at
    /// once, however long the member works, so the publisher always finds old messages to drop.
    ///
    /// If the member dies, the messages that it has copied and not acknowledged are lost, and
    /// counted as discarded, whatever the [`Recovery`](super::Recovery).
    #[must_use]
    pub fn with_copies(self) -> Self {
        Self { copied: Some(Copied::default()), ..self }
    }

    /// Opens another ring of the same group.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn add_ring(&mut self, ring: &RingFile) -> Result<(), OpenError> {
        if self.index >= ring.members() {
            return Err(OpenError::Members { found: self.index + 1, max: ring.members() });
        }
        let ring = ring.map()?;
        if !ring.is_recovered(self.index) {
            return Err(OpenError::NotRecovered { member: self.index });
        }
        self.rings.push(Source { ring, checked_returns: 0, finished: false });
        Ok(())
    }

    /// Claims messages of one ring: all that are available, up to `max_messages` messages and
    /// `max_bytes` bytes of records, but at least one. Waits until there is one. Messages that a
    /// dead member left come first, one at a time if one of them may have killed that member.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]. An interrupt is returned even if there are messages.
    pub fn claim(&mut self, max_bytes: usize, max_messages: usize) -> Result<Claim<'_>, ClaimError> {
        let limits = Limits { bytes: max_bytes, messages: max_messages };
        if !self.earlier.is_empty() {
            return Err(ClaimError::Unacknowledged);
        }
        loop {
            if self.interrupt.is_set() {
                // This member may have been woken for a message. It leaves that message to another.
                self.pass_on();
                return Err(ClaimError::Interrupted);
            }
            if self.find(limits)? {
                return Ok(Claim::new(self));
            }
            self.wait();
        }
    }

    /// Claims messages as [`claim`](Self::claim) does, but does not wait. It ignores the interrupt.
    ///
    /// While two claims are to be [acknowledged later](Claim::ack_later), there is nothing to
    /// claim. While others work on what an earlier member with this index left, that may be so with
    /// one.
    ///
    /// # Errors
    ///
    /// [`ClaimError`].
    pub fn try_claim(&mut self, max_bytes: usize, max_messages: usize) -> Result<Option<Claim<'_>>, ClaimError> {
        let limits = Limits { bytes: max_bytes, messages: max_messages };
        Ok(if self.find(limits)? { Some(Claim::new(self)) } else { None })
    }

    /// Finds messages to claim. True if this member has a claim now, which may be an earlier one.
    fn find(&mut self, limits: Limits) -> Result<bool, ClaimError> {
        if self.claimed.is_some() {
            return Ok(true);
        }
        if self.earlier.len() >= MAX_CLAIMS {
            return Ok(false);
        }
        let count = self.rings.len();
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            let source = &mut self.rings[index];
            let was_finished = source.finished;
            match source.claim(self.index, limits, &mut self.headers, self.copied.as_mut()) {
                // Another member may have acknowledged the last message before this one abandoned
                // its intent, and may sleep since.
                Ok(None) if source.has_just_finished(was_finished) => source.ring.report_drained(self.bell.controls()),
                Ok(None) => {}
                Ok(Some(claimed)) => {
                    self.claimed = Some((index, claimed));
                    self.turn = (index + 1) % count;
                    self.pass_on();
                    return Ok(true);
                }
                Err(violation) => {
                    source.finished = true;
                    return Err(ClaimError::Violation { ring: index, violation });
                }
            }
        }
        if self.rings.iter().all(|source| source.finished) { Err(ClaimError::Closed) } else { Ok(false) }
    }

    /// Wakes another member if messages are left: the publisher woke only one.
    fn pass_on(&self) {
        if self.rings.iter().any(Source::has_messages) {
            self.bell.controls().notify_one();
        }
    }

    fn wait(&self) {
        let is_ready = || self.interrupt.is_set() || self.rings.iter().any(Source::has_news);
        if !self.wait.spin(is_ready) {
            self.bell.controls().sleep(self.index, is_ready);
        }
    }

    /// Acknowledges the oldest claim that was to be [acknowledged later](Claim::ack_later). Returns
    /// `false` if there is none.
    pub fn ack_oldest(&mut self) -> bool {
        let Some(Earlier { ring, range, headers }) = self.earlier.pop_front() else { return false };
        self.ack_range(ring, range, &headers);
        true
    }

    /// Acknowledges the current claim.
    pub(super) fn ack(&mut self) {
        match self.claimed.take() {
            Some((index, Claimed::InRing(range))) => self.ack_range(index, range, &self.headers),
            Some((index, Claimed::Copied)) => {
                let ring = &self.rings[index].ring;
                ring.ack_copies(self.index, &self.headers);
                ring.report_drained(self.bell.controls());
            }
            None => {}
        }
    }

    /// Leaves the current claim to [`ack_oldest`](Self::ack_oldest).
    pub(super) fn ack_later(&mut self) {
        match self.claimed {
            Some((ring, Claimed::InRing(range))) => {
                self.claimed = None;
                let headers = std::mem::take(&mut self.headers);
                self.earlier.push_back(Earlier { ring, range, headers });
            }
            Some((_, Claimed::Copied)) | None => self.ack(),
        }
    }

    fn ack_range(&self, ring: usize, range: ClaimedRange, headers: &[Header]) {
        let ring = &self.rings[ring].ring;
        if ring.ack(range, headers) {
            self.bell.controls().notify_one();
        }
        ring.report_drained(self.bell.controls());
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn ring(&self, index: usize) -> &Ring {
        &self.rings[index].ring
    }
}

impl Source {
    /// Claims messages. Copies them if `copied` is given.
    fn claim(
        &mut self,
        member: usize,
        limits: Limits,
        headers: &mut Vec<Header>,
        copied: Option<&mut Copied>,
    ) -> Result<Option<Claimed>, Violation> {
        if self.finished {
            return Ok(None);
        }
        let returns = self.ring.returns();
        if returns != self.checked_returns {
            if let Some(range) = self.ring.claim_returned(member, limits, headers)? {
                let Some(copied) = copied else { return Ok(Some(Claimed::InRing(range))) };
                self.ring.copy_claimed(member, range, headers, copied);
                return Ok(Some(Claimed::Copied));
            }
            self.checked_returns = returns;
        }
        let next = match copied {
            None => self.ring.claim_next(member, limits, headers)?.map(Claimed::InRing),
            Some(copied) => self.ring.copy_next(member, limits, headers, copied)?.then_some(Claimed::Copied),
        };
        if next.is_some() {
            return Ok(next);
        }
        // Check first whether the ring is closed: after that no message is published.
        self.finished = self.ring.is_closed() && self.ring.is_drained();
        Ok(None)
    }

    fn has_just_finished(&self, was_finished: bool) -> bool {
        self.finished && !was_finished
    }

    fn has_news(&self) -> bool {
        !self.finished && self.ring.has_news(self.checked_returns)
    }

    fn has_messages(&self) -> bool {
        !self.finished && self.ring.has_messages(self.checked_returns)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, wait, rings, claimed, earlier, .. } = self;
        f.debug_struct("Member")
            .field("index", index)
            .field("wait", wait)
            .field("rings", &rings.len())
            .field("claimed", claimed)
            .field("earlier", &earlier.len())
            .finish_non_exhaustive()
    }
}
