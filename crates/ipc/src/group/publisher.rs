//! The publishing end of a ring.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use thiserror::Error;

use super::files::{BellFile, RingFile};
use super::interrupt::{Interrupt, Wake};
use super::recovery::Recovery;
use super::ring::{Limits, Ring};
use crate::bell::Bell;
use crate::error::{OpenError, Violation};
use crate::memory::{BytesMut, Memory};
use crate::record::{HEADER, Header, record_len};
use crate::sync::Ordering;
use crate::wait::WaitMode;

/// Why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The ring is full. Only calls that do not wait return it.
    #[error("the ring is full")]
    Full,
    /// The message is too long for the ring.
    #[error("a message of {len} bytes is longer than {max} bytes; use a ring of a larger capacity")]
    TooLong {
        /// The length of the message.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// The supervisor closed the ring.
    #[error("the ring is closed")]
    Closed,
    /// The [`Interrupt`] was set while the ring was full.
    #[error("interrupted while the ring was full")]
    Interrupted,
    /// A peer broke the protocol. This end stays closed.
    #[error("closed since a peer broke the protocol: {0}")]
    Violation(#[from] Violation),
}

/// What [`Publisher::send_dropping_oldest`] dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The number of older messages, which no member had claimed.
    pub older: u64,
    /// Whether the message itself was dropped, because a member's claim in the ring prevented it.
    pub this: bool,
}

/// No ring reaches this position.
const MAX_POSITION: u64 = 1 << 62;

/// The publishing end of a ring. Only one may exist at a time. After it is gone, another may
/// continue.
///
/// Each member gets messages in order. Published messages stay in the ring when this end dies.
/// Reserved space that was not published is never visible to members.
pub struct Publisher {
    ring: Ring,
    bell: Memory<Bell>,
    wait: WaitMode,
    interrupt: Arc<Interrupt>,
    /// The position of the next record.
    tail: u64,
    /// The last head that was read.
    head: u64,
    /// How a peer broke the protocol. No message follows.
    broken: Option<Violation>,
    headers: Vec<Header>,
    /// Registered with `interrupt`.
    _wake: Arc<WakePublisher>,
}

struct WakePublisher(Ring);

impl Wake for WakePublisher {
    fn wake(&self) {
        self.0.ring_producer();
    }
}

impl Publisher {
    /// Opens the ring, and continues where an earlier publisher stopped. `bell` is the bell of the
    /// group.
    ///
    /// # Errors
    ///
    /// If the memory cannot be mapped, or the ring was closed.
    pub fn open(
        ring: &RingFile,
        bell: &BellFile,
        wait: WaitMode,
        interrupt: Arc<Interrupt>,
    ) -> Result<Self, OpenError> {
        let (ring, bell) = (ring.map()?, bell.map()?);
        if ring.is_closed() {
            return Err(OpenError::Closed);
        }
        // An earlier publisher may have died while it was discarding.
        ring.recover(ring.producer(), Recovery::Discard);
        ring.controls().space.wanted.store(0, Ordering::Relaxed);
        let wake = Arc::new(WakePublisher(ring.clone()));
        let end: Weak<WakePublisher> = Arc::downgrade(&wake);
        interrupt.register(end);
        let (tail, head) = (ring.tail(), ring.head_to_overwrite());
        let mut publisher =
            Self { ring, bell, wait, interrupt, tail, head: 0, broken: None, headers: Vec::new(), _wake: wake };
        if tail > MAX_POSITION || !tail.is_multiple_of(HEADER as u64) {
            publisher.broken = Some(Violation::Tail { tail });
        }
        let _ = publisher.accept_head(head);
        Ok(publisher)
    }

    /// The longest message in bytes.
    #[must_use]
    pub fn max_message(&self) -> usize {
        (self.ring.capacity() as usize - HEADER).min(u32::MAX as usize)
    }

    /// Returns space for a message of `len` bytes. Waits until there is enough. The bytes have
    /// unspecified content.
    ///
    /// # Errors
    ///
    /// All of [`PublishError`] except `Full`.
    pub fn reserve(&mut self, len: usize) -> Result<Loan<'_>, PublishError> {
        let need = self.need(len)?;
        if !self.has_space(need) {
            self.await_space(need)?;
        }
        Ok(self.loan(len))
    }

    /// Returns space for a message of `len` bytes. Does not wait.
    ///
    /// # Errors
    ///
    /// All of [`PublishError`] except `Interrupted`.
    pub fn try_reserve(&mut self, len: usize) -> Result<Loan<'_>, PublishError> {
        let need = self.need(len)?;
        if !self.look_for_space(need)? {
            return Err(PublishError::Full);
        }
        Ok(self.loan(len))
    }

    /// Publishes a copy of a message. Waits until there is space.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn send(&mut self, message: &[u8]) -> Result<(), PublishError> {
        let mut loan = self.reserve(message.len())?;
        loan.copy_from_slice(message);
        loan.send();
        Ok(())
    }

    /// Publishes a copy of a message. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`try_reserve`](Self::try_reserve).
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), PublishError> {
        let mut loan = self.try_reserve(message.len())?;
        loan.copy_from_slice(message);
        loan.send();
        Ok(())
    }

    /// Publishes a copy of a message if there is space now; otherwise drops and counts it. Does not
    /// wait. True if the message was published.
    ///
    /// # Errors
    ///
    /// All of [`PublishError`] except `Full` and `Interrupted`.
    pub fn send_or_drop(&mut self, message: &[u8]) -> Result<bool, PublishError> {
        let is_sent = self.try_or_full(message)?;
        count_dropped_new(&self.ring, !is_sent);
        Ok(is_sent)
    }

    /// Publishes copies of messages, in order. Waits until there is space. All messages that fit
    /// are published at once.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve). The messages before the one that failed are published.
    pub fn send_batch<'a>(&mut self, messages: impl IntoIterator<Item = &'a [u8]>) -> Result<(), PublishError> {
        let mut batch = Batch::default();
        for message in messages {
            if let Err(error) = self.add(message, &mut batch) {
                self.publish(batch);
                return Err(error);
            }
        }
        self.publish(batch);
        Ok(())
    }

    /// Publishes copies of messages, in order, as far as there is space. Does not wait. Returns how
    /// many it has published, all of them at once.
    ///
    /// # Errors
    ///
    /// All of [`PublishError`] except `Full` and `Interrupted`, if the first message fails. If a
    /// later one does, those before it are published, and the next call returns the error.
    pub fn try_send_batch<'a>(&mut self, messages: impl IntoIterator<Item = &'a [u8]>) -> Result<usize, PublishError> {
        let mut batch = Batch::default();
        let mut added = Ok(true);
        for message in messages {
            added = self.try_add(message, &mut batch);
            if added != Ok(true) {
                break;
            }
        }
        let sent = batch.messages as usize;
        self.publish(batch);
        if sent > 0 { Ok(sent) } else { added.map(|_| 0) }
    }

    fn add(&mut self, message: &[u8], batch: &mut Batch) -> Result<(), PublishError> {
        while !self.try_add(message, batch)? {
            self.publish(std::mem::take(batch));
            self.await_space(self.need(message.len())?)?;
        }
        Ok(())
    }

    /// Adds a message to a batch. Returns `false` if there is no space.
    fn try_add(&mut self, message: &[u8], batch: &mut Batch) -> Result<bool, PublishError> {
        let need = self.need(message.len())?;
        if !self.has_space(need) && !self.look_for_space(need)? {
            return Ok(false);
        }
        self.write_header(message.len());
        self.payload(message.len()).copy_from_slice(message);
        self.tail += need;
        batch.messages += 1;
        batch.bytes += message.len() as u64;
        Ok(true)
    }

    fn publish(&mut self, batch: Batch) {
        if batch.messages > 0 {
            self.ring.publish(self.tail, batch.messages, batch.bytes);
            self.bell.controls().notify_one();
        }
    }

    /// Drops the oldest messages that no member has claimed, until `bytes` bytes of records were
    /// dropped or no such message is left. Returns the number of dropped messages. Their space
    /// becomes free once all earlier claims are acknowledged.
    ///
    /// # Errors
    ///
    /// If a peer broke the protocol.
    pub fn discard_oldest(&mut self, bytes: usize) -> Result<u64, PublishError> {
        self.verify_whole()?;
        let (mut messages, mut freed) = (0, 0);
        while freed < bytes as u64 {
            let limits = Limits { bytes: bytes - freed as usize, messages: usize::MAX };
            let range = self.ring.claim_next(self.ring.producer(), limits, &mut self.headers);
            let Some(range) = range.map_err(|violation| self.close_with(violation))? else { break };
            freed += range.to - range.from;
            messages += self.headers.len() as u64;
            self.ring.ack(range, &[]);
        }
        count_dropped(&self.ring, messages);
        self.ring.report_drained(self.bell.controls());
        Ok(messages)
    }

    /// Publishes a copy of a message without waiting. If the ring is full, drops the oldest
    /// messages that no member has claimed.
    ///
    /// Space becomes free in the order of the messages, so a member with a claim in the ring can
    /// prevent that. In that case this call drops the new message. It also drops all unclaimed
    /// messages except the newest half of the ring, so that there is space once the claim is
    /// acknowledged. Members that [copy](super::Member::with_copies) keep no claims in the ring.
    /// The exception is a member that was overtaken several times in a row: it claims for the time
    /// of one copy.
    ///
    /// # Errors
    ///
    /// All of [`PublishError`] except `Full` and `Interrupted`.
    pub fn send_dropping_oldest(&mut self, message: &[u8]) -> Result<Dropped, PublishError> {
        let mut dropped = Dropped::default();
        if self.try_or_release(message)? {
            return Ok(dropped);
        }
        let (_, next, tail) = self.ring.next().map_err(|violation| self.close_with(violation))?;
        let unclaimed = tail - next;
        let half = self.ring.capacity() / 2;
        let wanted = match self.ring.has_claims() {
            true => unclaimed.saturating_sub(half),
            false => (record_len(message.len()) as u64).max(self.ring.capacity() / 8),
        };
        dropped.older = self.discard_oldest(wanted as usize)?;
        dropped.this = !self.try_or_release(message)?;
        count_dropped_new(&self.ring, dropped.this);
        Ok(dropped)
    }

    /// Publishes a copy of a message. False if there is no space.
    fn try_or_full(&mut self, message: &[u8]) -> Result<bool, PublishError> {
        match self.try_send(message) {
            Ok(()) => Ok(true),
            Err(PublishError::Full) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// As [`try_or_full`](Self::try_or_full), where members may copy. A member that stopped after
    /// it had taken messages has not raised the head, so this raises it.
    fn try_or_release(&mut self, message: &[u8]) -> Result<bool, PublishError> {
        if self.try_or_full(message)? {
            return Ok(true);
        }
        self.ring.release();
        self.try_or_full(message)
    }

    /// Closes the ring: no message follows. Members get the messages in the ring, then `Closed`.
    ///
    /// Dropping a publisher does not close its ring: another may continue.
    pub fn close(self) {
        self.ring.close();
        self.bell.controls().notify_all();
    }

    /// The bytes that a message takes. An error if it can never fit.
    #[inline]
    fn need(&self, len: usize) -> Result<u64, PublishError> {
        self.verify_whole()?;
        let max = self.max_message();
        if len > max { Err(PublishError::TooLong { len, max }) } else { Ok(record_len(len) as u64) }
    }

    fn verify_whole(&self) -> Result<(), PublishError> {
        self.broken.map_or(Ok(()), |violation| Err(violation.into()))
    }

    fn close_with(&mut self, violation: Violation) -> PublishError {
        self.broken = Some(violation);
        violation.into()
    }

    #[inline]
    fn has_space(&self, need: u64) -> bool {
        self.tail - self.head + need <= self.ring.capacity()
    }

    fn look_for_space(&mut self, need: u64) -> Result<bool, PublishError> {
        if !self.has_space(need) {
            self.accept_head(self.ring.head_to_overwrite())?;
        }
        match self.has_space(need) {
            false if self.ring.is_closed() => Err(PublishError::Closed),
            has_space => Ok(has_space),
        }
    }

    /// Validates and stores a new head. The head never decreases and never exceeds the tail, and
    /// the ring never contains more than its capacity.
    fn accept_head(&mut self, head: u64) -> Result<(), PublishError> {
        if head < self.head || head > self.tail || self.tail - head > self.ring.capacity() {
            return Err(self.close_with(Violation::Head { head }));
        }
        self.head = head;
        Ok(())
    }

    #[inline(never)]
    fn await_space(&mut self, need: u64) -> Result<(), PublishError> {
        while !self.look_for_space(need)? {
            if self.interrupt.is_set() {
                return Err(PublishError::Interrupted);
            }
            self.wait_for_space(need);
        }
        Ok(())
    }

    fn wait_for_space(&self, need: u64) {
        let capacity = self.ring.capacity();
        let is_ready = || self.ring.is_closed() || self.interrupt.is_set();
        let wanted = self.tail + need - capacity;
        if self.wait.spin(|| self.ring.head() >= wanted || is_ready()) {
            return;
        }
        // A publisher that sleeps waits for space for several messages. Otherwise each message
        // would cost a wake-up.
        let wanted = self.tail + need.max(capacity / 8) - capacity;
        self.ring.sleep_for_space(wanted, is_ready);
    }

    fn write_header(&self, len: usize) {
        // Cannot overflow: `need` checked the length.
        self.ring.set_header(self.tail, Header::new(len as u32));
    }

    /// The bytes of the next record's payload.
    fn payload(&mut self, len: usize) -> BytesMut {
        // SAFETY: this is the ring's only publisher. Either it stays borrowed, or the bytes do not
        // leave it. Members read only before the published tail. They released the bytes here when
        // the head was raised that `accept_head` acquired. A peer that breaks this rule is another
        // process, not part of this one.
        #[allow(unsafe_code)]
        unsafe {
            self.ring.memory().bytes_mut(self.tail + HEADER as u64, len)
        }
    }

    #[inline]
    fn loan(&mut self, len: usize) -> Loan<'_> {
        Loan { bytes: self.payload(len), publisher: self }
    }
}

/// Records that are written and not published.
#[derive(Default)]
struct Batch {
    messages: u64,
    bytes: u64,
}

fn count_dropped(ring: &Ring, messages: u64) {
    ring.controls().counters.dropped.fetch_add(messages, Ordering::Relaxed);
}

fn count_dropped_new(ring: &Ring, is_dropped: bool) {
    if is_dropped {
        ring.controls().counters.dropped_new.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wait, tail, head, broken, .. } = self;
        f.debug_struct("Publisher")
            .field("wait", wait)
            .field("tail", tail)
            .field("head", head)
            .field("broken", broken)
            .finish_non_exhaustive()
    }
}

/// Space for a message, to be written in place. [`send`](Self::send) publishes it. A loan that is
/// dropped publishes nothing.
#[must_use = "`send` publishes the message"]
pub struct Loan<'a> {
    bytes: BytesMut,
    publisher: &'a mut Publisher,
}

impl Loan<'_> {
    /// Publishes the message, and wakes a member if one sleeps.
    #[inline]
    pub fn send(self) {
        let Self { bytes, publisher } = self;
        let len = bytes.len();
        drop_bytes(bytes);
        publisher.write_header(len);
        publisher.tail += record_len(len) as u64;
        publisher.publish(Batch { messages: 1, bytes: len as u64 });
    }
}

/// Ends the reference before the bytes are published.
fn drop_bytes(_: BytesMut) {}

impl Deref for Loan<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Loan<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}
