//! The receiving end of a channel.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use super::descriptor::{Announcement, Found};
use super::error::RecvError;
use super::peer::Peer;
use super::pool::Pool;
use super::ring::{End, Ring, stride};
use super::slip::Slip;
use crate::error::Violation;
use crate::memory::Bytes;
use crate::sync::spin_loop;
use crate::wait::WaitMode;

/// The receiving end of a channel. Dropping it closes the channel: the sender's next call returns
/// `Closed`.
pub struct Receiver {
    ring: Ring,
    /// The position of the next message. Everything before it was released.
    head: u64,
    /// The index of the next message.
    index: u64,
    /// The descriptors of the next messages that were published at the last look. Their cache line
    /// is read once, then left to the sender, which writes the next descriptors there.
    ready: [u64; LOOK],
    /// The index after the last ready message.
    ready_end: u64,
    /// The index of the next message when this end last had to wait for the sender.
    waited_at: u64,
    /// The head that was last published to the sender.
    published: u64,
    /// The number of released bytes that may stay unpublished.
    lag: u64,
    peer: Peer,
    slip: Slip,
    pool: Pool,
    /// The pool file of the message that is being read.
    large_file: Option<usize>,
    /// The payload lengths of a batch.
    lens: Vec<u32>,
    /// How the peer broke the protocol. No message follows.
    broken: Option<Violation>,
    /// Why the last wait found no message.
    ended: Option<RecvError>,
}

/// The head is published after one part in `LAG` of the ring was released. The sender reads the
/// head only when the ring seems full, and finds at least that much free.
const LAG: u64 = 8;

/// The number of descriptors that are read at once: a cache line.
const LOOK: usize = 8;

impl Receiver {
    pub(super) fn new(ring: Ring, peer: Peer) -> Self {
        let lag = ring.capacity() / LAG;
        Self {
            ring,
            head: 0,
            index: 0,
            ready: [0; LOOK],
            ready_end: 0,
            waited_at: 0,
            published: 0,
            lag,
            peer,
            slip: Slip::new(),
            pool: Pool::default(),
            large_file: None,
            lens: Vec::new(),
            broken: None,
            ended: None,
        }
    }

    /// Returns the next message. Waits until there is one.
    ///
    /// # Errors
    ///
    /// [`RecvError`], once everything that was sent was received.
    #[inline]
    pub fn recv(&mut self) -> Result<Message<'_>, RecvError> {
        if self.index == self.ready_end && !self.await_message() {
            return Err(self.end());
        }
        self.message()
    }

    /// Returns the next message, or none if there is none now. Does not wait.
    ///
    /// # Errors
    ///
    /// [`RecvError`], once everything that was sent was received.
    #[inline]
    pub fn try_recv(&mut self) -> Result<Option<Message<'_>>, RecvError> {
        if self.index == self.ready_end && !self.look() {
            return self.recv_timeout(Duration::ZERO);
        }
        self.message().map(Some)
    }

    /// Returns the next message, or none if the timeout passes first.
    ///
    /// # Errors
    ///
    /// [`RecvError`], once everything that was sent was received.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, RecvError> {
        if self.index == self.ready_end && !self.await_message_for(timeout)? {
            return Ok(None);
        }
        self.message().map(Some)
    }

    /// Returns the available messages, up to `max`. Waits until there is at least one. A message
    /// that is longer than the ring comes alone.
    ///
    /// # Errors
    ///
    /// [`RecvError`], once everything that was sent was received.
    pub fn recv_many(&mut self, max: usize) -> Result<Batch<'_>, RecvError> {
        if self.index == self.ready_end && !self.await_message() {
            return Err(self.end());
        }
        let mut next = Some(self.ready[self.index as usize % LOOK]);
        let (capacity, mut end) = (self.ring.capacity(), self.head);
        self.lens.clear();
        while let Some(descriptor) = next {
            match Found::parse(descriptor, end, capacity - (end - self.head)) {
                Ok(Found::Plain(len)) => {
                    self.lens.push(len as u32);
                    end += stride(len);
                }
                Ok(Found::Large) if self.lens.is_empty() => return self.large_batch(),
                Ok(Found::Large) => break,
                Err(violation) => return Err(self.close_with(violation)),
            }
            let count = self.lens.len();
            next = if count < max { self.ring.look(self.index + count as u64) } else { None };
        }
        // SAFETY: as in `message`, for several records.
        #[allow(unsafe_code)]
        let bytes = unsafe { self.ring.memory().bytes(self.head, (end - self.head) as usize) };
        Ok(Batch { bytes, stride: end - self.head, is_large: false, receiver: self })
    }

    fn large_batch(&mut self) -> Result<Batch<'_>, RecvError> {
        let Message { bytes, stride, receiver } = self.large_message()?;
        receiver.lens.clear();
        receiver.lens.push(bytes.len() as u32);
        Ok(Batch { bytes, stride, is_large: true, receiver })
    }

    /// Whether the sender is gone. Messages that it sent before can still be received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.ended().is_some()
    }

    #[inline]
    fn message(&mut self) -> Result<Message<'_>, RecvError> {
        match Found::parse(self.ready[self.index as usize % LOOK], self.head, self.ring.capacity()) {
            Ok(Found::Plain(len)) => {
                // SAFETY: this is the ring's only receiver, and it is borrowed until the message is
                // dropped or released. The sender wrote the message before it published the
                // descriptor, which `look` acquired. It writes there again only after it has
                // acquired a higher head, which is not published before `release`. A sender that
                // breaks this rule is another process, not part of this one.
                #[allow(unsafe_code)]
                let bytes = unsafe { self.ring.memory().bytes(self.head, len) };
                Ok(Message { bytes, stride: stride(len), receiver: self })
            }
            Ok(Found::Large) => self.large_message(),
            Err(violation) => Err(self.close_with(violation)),
        }
    }

    #[cold]
    #[inline(never)]
    fn large_message(&mut self) -> Result<Message<'_>, RecvError> {
        // SAFETY: as in `message`.
        #[allow(unsafe_code)]
        let announcement = unsafe { self.ring.memory().bytes(self.head, Announcement::LEN) };
        let announced = Announcement::from_bytes(*announcement.first_chunk().expect("as many bytes"));
        match self.pool.open(self.peer.socket(), announced) {
            Ok(bytes) => {
                self.large_file = Some(announced.file);
                // So that the file is released at once.
                self.lag = 0;
                Ok(Message { bytes, stride: stride(Announcement::LEN), receiver: self })
            }
            Err(violation) => Err(self.close_with(violation)),
        }
    }

    /// Why `await_message` found no message.
    #[cold]
    fn end(&mut self) -> RecvError {
        self.ended.take().unwrap_or(RecvError::Closed)
    }

    #[cold]
    fn close_with(&mut self, violation: Violation) -> RecvError {
        self.broken = Some(violation);
        violation.into()
    }

    /// Looks for new messages, when none of the ready ones is left. Reads no further than the cache
    /// line of the first one.
    #[inline]
    fn look(&mut self) -> bool {
        let line_end = (self.index | (LOOK as u64 - 1)) + 1;
        self.ready_end = self.index;
        while self.ready_end < line_end {
            let Some(descriptor) = self.ring.look(self.ready_end) else { break };
            self.ready[self.ready_end as usize % LOOK] = descriptor;
            self.ready_end += 1;
        }
        self.index != self.ready_end
    }

    /// Waits for a message. Returns false if none will come; `end` then says why. Not inlined: if a
    /// receiver's loop becomes too long, the compiler inlines none of it.
    #[inline(never)]
    fn await_message(&mut self) -> bool {
        // All messages of the last line were there, so the next line may be read without a pause.
        if self.index.is_multiple_of(LOOK as u64) && self.look() {
            return true;
        }
        if self.ring.wait != WaitMode::Block {
            self.slip.learn(self.index - self.waited_at);
            self.waited_at = self.index;
            self.slip.pause();
        }
        if self.ring.wait == WaitMode::Spin && self.broken.is_none() && self.spin() {
            return true;
        }
        loop {
            match self.look_and_wait(None) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => {
                    self.ended = Some(error);
                    return false;
                }
            }
        }
    }

    /// Spins until there is a message. Returns false if the sender ended. The path after the
    /// successful look is short, since it adds to the latency of every message of a ping-pong.
    fn spin(&mut self) -> bool {
        self.publish_head();
        loop {
            if self.look() {
                return true;
            }
            if self.peer.ended().is_some() {
                // The sender may have sent a message before it ended.
                return self.look();
            }
            spin_loop();
        }
    }

    /// Waits for a message. Returns false after the timeout.
    #[inline(never)]
    fn await_message_for(&mut self, timeout: Duration) -> Result<bool, RecvError> {
        // A timeout that overflows the clock means no deadline.
        let deadline = Instant::now().checked_add(timeout);
        while !self.look_and_wait(deadline)? {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks for a message, and waits once if there is none. Returns true if the look found one.
    fn look_and_wait(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        // Read first whether the sender ended: after that no message can be published.
        let ended = self.peer.ended();
        if self.look() {
            return Ok(true);
        }
        if let Some(ended) = ended {
            return Err(ended.into());
        }
        self.publish_head();
        self.wait(deadline);
        Ok(false)
    }

    /// Waits until a message is there, the sender ended, or the deadline passed.
    fn wait(&self, deadline: Option<Instant>) {
        let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_over = || self.peer.ended().is_some() || is_late();
        if !self.ring.wait.spin(|| self.ring.look(self.index).is_some() || is_over()) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            self.ring.sleep_for_message(self.index, left, is_over);
        }
    }

    fn publish_head(&mut self) {
        if self.published != self.head {
            self.published = self.head;
            self.ring.publish_head(self.head);
        }
    }

    /// Releases messages and their bytes. The head is published once `lag` bytes were released.
    #[inline]
    fn release_bytes(&mut self, messages: u64, stride: u64) {
        self.head += stride;
        self.index += messages;
        if self.head - self.published >= self.lag {
            self.release_now();
        }
    }

    #[inline(never)]
    fn release_now(&mut self) {
        if let Some(file) = self.large_file.take() {
            Pool::release(&self.ring, file);
            self.lag = self.ring.capacity() / LAG;
        }
        self.publish_head();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.ring.close(End::Receiver);
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ring, head, broken, .. } = self;
        f.debug_struct("Receiver")
            .field("wait", &ring.wait)
            .field("head", head)
            .field("broken", broken)
            .finish_non_exhaustive()
    }
}

/// A message that is read in place. [`release`](Self::release) returns its space to the sender. A
/// message that is dropped is received again.
///
/// Dropping does not release the message. A destructor would make the compiler keep the message in
/// memory, in case its reader panics.
#[must_use = "`release` returns the message's space"]
pub struct Message<'a> {
    bytes: Bytes,
    /// The bytes that the message takes in the ring.
    stride: u64,
    receiver: &'a mut Receiver,
}

impl<'a> Message<'a> {
    /// Releases the message: the sender may reuse its space.
    #[inline]
    pub fn release(self) {
        let (stride, receiver) = self.end_reading();
        receiver.release_bytes(1, stride);
    }

    /// Drops the bytes, which must happen before their space is released.
    #[inline]
    fn end_reading(self) -> (u64, &'a mut Receiver) {
        (self.stride, self.receiver)
    }
}

impl Deref for Message<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("bytes", &&**self).finish_non_exhaustive()
    }
}

/// Several messages that are read in place. [`release`](Self::release) returns their space to the
/// sender. The messages of a batch that is dropped are received again.
#[must_use = "`release` returns the messages' space"]
pub struct Batch<'a> {
    bytes: Bytes,
    stride: u64,
    is_large: bool,
    receiver: &'a mut Receiver,
}

impl Batch<'_> {
    /// The number of messages, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.receiver.lens.len()
    }

    /// The messages, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.bytes;
        self.receiver.lens.iter().map(move |len| {
            if self.is_large {
                return rest;
            }
            let len = *len as usize;
            let (lines, behind) = rest.split_at(stride(len) as usize);
            rest = behind;
            &lines[..len]
        })
    }

    /// Releases the messages: the sender may reuse their space.
    pub fn release(self) {
        let Self { stride, receiver, .. } = self;
        receiver.release_bytes(receiver.lens.len() as u64, stride);
        // A batch may contain more messages than were ready.
        receiver.ready_end = receiver.ready_end.max(receiver.index);
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
