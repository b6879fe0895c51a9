//! The end that receives.

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

/// The end of a channel that receives. Dropping it closes the channel: the sender's next call says
/// so.
pub struct Receiver {
    ring: Ring,
    /// Where the next message begins. Everything before it was released.
    head: u64,
    /// Its number.
    index: u64,
    /// The descriptors of the next messages, as far as they were there at the last look. The line
    /// in which they lie is looked at once, and then left to the sender, who writes the next ones
    /// there.
    ready: [u64; LOOK],
    /// The number of the message behind them.
    ready_end: u64,
    /// The number of the next message when this end last stood at the sender's heels.
    waited_at: u64,
    /// The head that was last published to the sender.
    published: u64,
    /// How many released bytes may stay unpublished.
    lag: u64,
    peer: Peer,
    slip: Slip,
    pool: Pool,
    /// The file of the pool that the message in hand lies in.
    in_hand: Option<usize>,
    /// The payloads of a batch, as read.
    lens: Vec<u32>,
    /// What the peer did. No message follows.
    broken: Option<Violation>,
    /// Why the last wait was in vain.
    ended: Option<RecvError>,
}

/// The part of the ring that the sender, who reads the head only when the ring seems full, finds
/// free at once.
const LAG: u64 = 8;

/// How many descriptors are looked at at once: a cache line.
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
            in_hand: None,
            lens: Vec::new(),
            broken: None,
            ended: None,
        }
    }

    /// The next message, once there is one.
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

    /// The next message, if there is one now.
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

    /// The next message, once there is one, or none if there is none within the time.
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

    /// The next messages, once there is one: as many as are there, up to `max`. A message that is
    /// longer than the ring comes alone.
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
        // SAFETY: as in `message`, of several records.
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

    /// Whether the sender is gone. What it had sent before is still there.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.peer.ended().is_some()
    }

    #[inline]
    fn message(&mut self) -> Result<Message<'_>, RecvError> {
        match Found::parse(self.ready[self.index as usize % LOOK], self.head, self.ring.capacity()) {
            Ok(Found::Plain(len)) => {
                // SAFETY: this is the ring's one receiver, and it is borrowed until the message is
                // dropped or released. The sender wrote the message before it published the
                // descriptor, which `look` acquired, and will write there again only once it has
                // acquired a head above, which is not published before `release`. A sender of
                // another process that lies is outside of this process.
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
                self.in_hand = Some(announced.file);
                // The file is given back at once.
                self.lag = 0;
                Ok(Message { bytes, stride: stride(Announcement::LEN), receiver: self })
            }
            Err(violation) => Err(self.close_with(violation)),
        }
    }

    /// Why `await_message` found none.
    #[cold]
    fn end(&mut self) -> RecvError {
        self.ended.take().unwrap_or(RecvError::Closed)
    }

    #[cold]
    fn close_with(&mut self, violation: Violation) -> RecvError {
        self.broken = Some(violation);
        violation.into()
    }

    /// Looks for messages behind those that are ready, of which none is left. Ends with the line of
    /// the first one.
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

    /// Waits for a message; false if none comes, and `end` says why. Not inlined: what a receiver's
    /// loop inlines must be short, or the compiler inlines none of it.
    #[inline(never)]
    fn await_message(&mut self) -> bool {
        // Behind a line of messages that were all there, the next line may be read at once.
        if self.index.is_multiple_of(LOOK as u64) && self.look() {
            return true;
        }
        if self.ring.wait != WaitMode::Block {
            self.slip.learn(self.index - self.waited_at);
            self.waited_at = self.index;
            self.slip.stand_back();
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

    /// Looks until there is a message; false if the sender ended. What comes after the look that
    /// finds one is short, as every message of a ping-pong waits for it.
    fn spin(&mut self) -> bool {
        self.publish_head();
        loop {
            if self.look() {
                return true;
            }
            if self.peer.ended().is_some() {
                // Something may have been sent before the end.
                return self.look();
            }
            spin_loop();
        }
    }

    /// Waits for a message; false after the timeout.
    #[inline(never)]
    fn await_message_for(&mut self, timeout: Duration) -> Result<bool, RecvError> {
        // A time too long to be added is no bound.
        let deadline = Instant::now().checked_add(timeout);
        while !self.look_and_wait(deadline)? {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Looks for a message, and waits once if there is none. True if there was one before that.
    fn look_and_wait(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        // First whether the sender ended: after that no message comes.
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

    /// Waits until a message is there, or there is no use in waiting.
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

    /// Releases messages and their bytes. The head is published to the sender now and then.
    #[inline]
    fn give_back(&mut self, messages: u64, stride: u64) {
        self.head += stride;
        self.index += messages;
        if self.head - self.published >= self.lag {
            self.give_back_now();
        }
    }

    #[inline(never)]
    fn give_back_now(&mut self) {
        if let Some(file) = self.in_hand.take() {
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

/// A message, read where it lies. It is given back by [`release`](Self::release), or comes again if
/// it is dropped.
///
/// Dropping it does not release it, since a destructor has the compiler keep the message in memory
/// for the case that its reader panics.
#[must_use = "a message is given back by `release`"]
pub struct Message<'a> {
    bytes: Bytes,
    /// The bytes it takes in the ring.
    stride: u64,
    receiver: &'a mut Receiver,
}

impl<'a> Message<'a> {
    /// Gives the message back: the sender may use its space.
    #[inline]
    pub fn release(self) {
        let (stride, receiver) = self.end_reading();
        receiver.give_back(1, stride);
    }

    /// Drops the bytes, which must be done before they are handed over.
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

/// Several messages, read where they lie. They are given back together by
/// [`release`](Self::release), or come again if the batch is dropped.
#[must_use = "messages are given back by `release`"]
pub struct Batch<'a> {
    bytes: Bytes,
    stride: u64,
    is_large: bool,
    receiver: &'a mut Receiver,
}

impl Batch<'_> {
    /// How many messages there are: one at least.
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

    /// Gives the messages back: the sender may use their space.
    pub fn release(self) {
        let Self { stride, receiver, .. } = self;
        receiver.give_back(receiver.lens.len() as u64, stride);
        // A batch may hold more than was ready.
        receiver.ready_end = receiver.ready_end.max(receiver.index);
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}
