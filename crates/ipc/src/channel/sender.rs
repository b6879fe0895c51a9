//! The sending end of a channel.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::descriptor::{Announcement, large, plain};
use super::error::SendError;
use super::peer::Peer;
use super::pool::Pool;
use super::ring::{End, Ring, stride};
use super::slip::Slip;
use crate::error::Violation;
use crate::memory::BytesMut;

/// The sending end of a channel. Dropping it closes the channel: the receiver gets all messages
/// that were sent, then `Closed`.
pub struct Sender {
    ring: Ring,
    /// The position of the next message.
    tail: u64,
    /// The index of the next message.
    index: u64,
    /// The next message must end at or below this position: the last head that was read, plus the
    /// capacity.
    limit: u64,
    /// The longest message that fits into the ring.
    max_plain: usize,
    max_message: usize,
    peer: Peer,
    slip: Slip,
    pool: Pool,
    /// The pool file of the large message that is being written.
    reserved: Option<Announcement>,
    /// How the peer broke the protocol. No message follows.
    broken: Option<Violation>,
}

impl Sender {
    pub(super) fn new(ring: Ring, peer: Peer, max_message: usize) -> Self {
        let limit = ring.capacity();
        let max_plain = ring.capacity() as usize;
        Self {
            ring,
            tail: 0,
            index: 0,
            limit,
            max_plain,
            max_message: max_message.max(max_plain),
            peer,
            slip: Slip::new(),
            pool: Pool::default(),
            reserved: None,
            broken: None,
        }
    }

    /// Returns space for a message of `len` bytes. Waits until there is enough. The bytes have
    /// unspecified content.
    ///
    /// # Errors
    ///
    /// All of [`SendError`] except `Full`. An error is returned as soon as the receiver is gone,
    /// not only when the channel is full.
    #[inline]
    pub fn loan(&mut self, len: usize) -> Result<Loan<'_>, SendError> {
        if !self.has_space(len) {
            return self.loan_slowly(len, true);
        }
        Ok(self.plain_loan(len))
    }

    /// Returns space for a message of `len` bytes. Does not wait.
    ///
    /// # Errors
    ///
    /// All of [`SendError`].
    #[inline]
    pub fn try_loan(&mut self, len: usize) -> Result<Loan<'_>, SendError> {
        if !self.has_space(len) {
            return self.loan_slowly(len, false);
        }
        Ok(self.plain_loan(len))
    }

    /// Sends a copy of a message. Waits until there is space.
    ///
    /// # Errors
    ///
    /// As [`loan`](Self::loan).
    #[inline]
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let mut loan = self.loan(message.len())?;
        loan.copy_from_slice(message);
        loan.send();
        Ok(())
    }

    /// Sends a copy of a message. Does not wait.
    ///
    /// # Errors
    ///
    /// As [`try_loan`](Self::try_loan).
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        let mut loan = self.try_loan(message.len())?;
        loan.copy_from_slice(message);
        loan.send();
        Ok(())
    }

    /// Sends copies of messages, in order. Waits until there is space. The receiver is woken once
    /// for all messages that fit into the ring.
    ///
    /// # Errors
    ///
    /// As [`loan`](Self::loan). The messages before the one that failed are sent.
    pub fn send_many<'a>(&mut self, messages: impl IntoIterator<Item = &'a [u8]>) -> Result<(), SendError> {
        for message in messages {
            if !self.has_space(message.len()) {
                self.ring.notify();
                self.send(message)?;
                continue;
            }
            self.payload(message.len()).copy_from_slice(message);
            self.publish_message(plain(message.len()), message.len());
        }
        self.ring.notify();
        Ok(())
    }

    /// Whether the receiver is gone. Messages that are sent after that are not read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.ended().is_some()
    }

    /// The longest message in bytes.
    #[must_use]
    pub fn max_message(&self) -> usize {
        self.max_message
    }

    /// Whether a message fits, and the receiver lives, as far as this end knows now.
    #[inline]
    fn has_space(&self, len: usize) -> bool {
        len <= self.max_plain && self.limit - self.tail >= stride(len) && !self.peer.has_hung_up()
    }

    #[cold]
    #[inline(never)]
    fn loan_slowly(&mut self, len: usize, may_wait: bool) -> Result<Loan<'_>, SendError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        let max = self.max_message;
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        let is_large = len > self.max_plain;
        let inline = if is_large { Announcement::LEN } else { len };
        self.slip.pause();
        loop {
            if let Some(ended) = self.peer.ended() {
                return Err(ended.into());
            }
            self.look_at_head(stride(inline))?;
            if self.has_space(inline) && (!is_large || self.reserve_large(len)?) {
                break;
            }
            if !may_wait {
                return Err(SendError::Full);
            }
            self.wait(inline);
        }
        Ok(if is_large { self.large_loan() } else { self.plain_loan(len) })
    }

    /// Reads the head. A valid head never decreases, and never exceeds the tail.
    fn look_at_head(&mut self, stride: u64) -> Result<(), SendError> {
        let head = self.ring.head();
        let capacity = self.ring.capacity();
        self.slip.learn_bytes(head.wrapping_sub(self.limit - capacity), stride, capacity);
        if head > self.tail || head < self.limit - capacity {
            self.broken = Some(Violation::Head { head });
            self.limit = self.tail;
            return Err(Violation::Head { head }.into());
        }
        self.limit = head + capacity;
        Ok(())
    }

    fn reserve_large(&mut self, len: usize) -> Result<bool, SendError> {
        self.reserved = self.pool.reserve(&self.ring, self.peer.socket(), len).map_err(SendError::NoMemory)?;
        Ok(self.reserved.is_some())
    }

    /// Waits until the head has moved far enough for a message. If a pool file is missing, waits
    /// until it moves at all.
    fn wait(&self, len: usize) {
        let (capacity, seen) = (self.ring.capacity(), self.limit - self.ring.capacity());
        let need = stride(len);
        // If there is space in the ring, a pool file is missing. Its release moves the head.
        let wanted = (self.tail + need).saturating_sub(capacity).max(seen + 1);
        let is_over = || self.peer.ended().is_some();
        if !self.ring.wait.spin(|| self.ring.head() >= wanted || is_over()) {
            // A sender that sleeps waits for space for several messages. Otherwise each message
            // would cost a wake-up.
            let several = (self.tail + need.max(capacity / 4)).saturating_sub(capacity);
            self.ring.sleep_for_space(several.max(wanted).min(self.tail), is_over);
        }
    }

    /// The bytes of the next message.
    #[inline]
    fn payload(&mut self, len: usize) -> BytesMut {
        // SAFETY: this is the ring's only sender. Either it stays borrowed, or the bytes do not
        // leave it. The receiver reads only published messages. It released the bytes here when it
        // raised the head that `look_at_head` acquired. A peer that breaks this rule is another
        // process, not part of this one.
        #[allow(unsafe_code)]
        unsafe {
            self.ring.memory().bytes_mut(self.tail, len)
        }
    }

    #[inline]
    fn plain_loan(&mut self, len: usize) -> Loan<'_> {
        Loan { bytes: self.payload(len), sender: self }
    }

    fn large_loan(&mut self) -> Loan<'_> {
        let reserved = self.reserved.expect("a file of the pool");
        Loan { bytes: self.pool.fill(reserved), sender: self }
    }

    #[inline]
    fn publish(&mut self, len: usize) {
        if len > self.max_plain {
            return self.announce();
        }
        self.publish_message(plain(len), len);
        self.ring.notify();
    }

    /// Publishes the next message, whose bytes are written.
    #[inline]
    fn publish_message(&mut self, descriptor: u64, len: usize) {
        self.ring.publish(self.index, descriptor);
        self.index += 1;
        self.tail += stride(len);
    }

    #[cold]
    fn announce(&mut self) {
        let reserved = self.reserved.take().expect("a file of the pool");
        self.pool.occupy(&self.ring, reserved.file);
        self.payload(Announcement::LEN).copy_from_slice(&reserved.to_bytes());
        self.publish_message(large(), Announcement::LEN);
        self.ring.notify();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ring.close(End::Sender);
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ring, tail, broken, .. } = self;
        f.debug_struct("Sender")
            .field("wait", &ring.wait)
            .field("tail", tail)
            .field("broken", broken)
            .finish_non_exhaustive()
    }
}

/// Space for a message, to be written in place. [`send`](Self::send) sends it. A loan that is
/// dropped sends nothing.
#[must_use = "`send` sends the message"]
pub struct Loan<'a> {
    bytes: BytesMut,
    sender: &'a mut Sender,
}

impl<'a> Loan<'a> {
    /// Sends the message. The receiver can read it at once, and is woken if it sleeps.
    #[inline]
    pub fn send(self) {
        let (len, sender) = self.end_writing();
        sender.publish(len);
    }

    /// Drops the bytes, which must happen before they are published.
    #[inline]
    fn end_writing(self) -> (usize, &'a mut Sender) {
        (self.bytes.len(), self.sender)
    }
}

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
