//! The two ends of a ring.
//!
//! Messages are numbered from zero. Message `i` is in slot `i` modulo the number of slots. The
//! producer owns the slots of messages `tail .. head + slots`, the consumer those of `head ..
//! tail`. An end passes slots to the other by publishing its index.

use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use super::error::Error;
use super::lane::{Closed, Wait, WaitPolicy};
use super::memory::{BytesMut, BytesRef, Memory};
use super::shape::Shape;
use super::slip::Slip;
use super::sync::{Eventfd, WakeMethod};

/// Creates a ring on the heap, for two threads.
///
/// # Errors
///
/// If there is not enough memory, or the process has no free file descriptor.
#[cfg(not(loom))]
pub fn heap(shape: Shape, wait: Wait) -> Result<(Producer, Consumer), Error> {
    let memory = Memory::heap(shape)?;
    let wake_method = || match wait {
        Wait::Eventfd => Eventfd::pair().map_err(Error::system("make an eventfd")),
        Wait::Spin | Wait::Futex => Ok([WakeMethod::Private, WakeMethod::Private]),
    };
    let ([filled, fills], [freed, frees]) = (wake_method()?, wake_method()?);
    let producer = WaitPolicy { wait, mine: freed, theirs: fills };
    let consumer = WaitPolicy { wait, mine: filled, theirs: frees };
    Ok((Producer::new(memory.clone(), producer), Consumer::new(memory, consumer)))
}

/// Creates a ring of loom objects, for two of loom's threads.
#[cfg(loom)]
pub(super) fn modelled(shape: Shape, wait: Wait) -> (Producer, Consumer) {
    let memory = Memory::heap(shape);
    let wake_method = || match wait {
        Wait::Eventfd => Eventfd::pair(),
        Wait::Spin | Wait::Futex => [WakeMethod::Private, WakeMethod::Private],
    };
    let ([filled, fills], [freed, frees]) = (wake_method(), wake_method());
    let producer = WaitPolicy { wait, mine: freed, theirs: fills };
    let consumer = WaitPolicy { wait, mine: filled, theirs: frees };
    (Producer::new(memory.clone(), producer), Consumer::new(memory, consumer))
}

/// The sending end. Dropping it closes the ring: the consumer receives all sent messages, then
/// [`Closed`].
pub struct Producer {
    memory: Memory,
    policy: WaitPolicy,
    /// The number of the next message, which is the number of messages sent.
    tail: u64,
    /// The consumer's index as last loaded. The consumer has read at least this many messages.
    head: u64,
    slip: Slip,
}

impl Producer {
    /// Creates the producer. There must be at most one for each memory.
    pub(super) fn new(memory: Memory, policy: WaitPolicy) -> Self {
        let slip = Slip::new(memory.slots());
        Self { memory, policy, tail: 0, head: 0, slip }
    }

    /// Starts the message numbers at `index`. Both ends must do so.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&mut self, index: u64) {
        self.memory.tail().start_at(index);
        (self.tail, self.head) = (index, index);
    }

    /// Returns the next slot, or `None` if the ring is full. Never blocks.
    ///
    /// After the consumer has closed, the ring fills up and stays full; see
    /// [`is_closed`](Self::is_closed).
    #[inline]
    pub fn try_slot(&mut self) -> Option<Slot<'_>> {
        if !self.has_free_slot() {
            self.head = self.memory.head().load();
            if !self.has_free_slot() {
                return None;
            }
        }
        Some(self.slot())
    }

    /// Returns the next slot. Blocks while the ring is full.
    ///
    /// # Errors
    ///
    /// If the ring is full and the consumer has closed.
    #[inline]
    pub fn wait_slot(&mut self) -> Result<Slot<'_>, Closed> {
        if !self.has_free_slot() {
            self.wait_for_free_slot()?;
        }
        Ok(self.slot())
    }

    /// Returns whether the consumer has closed. Nobody reads messages that are sent after that.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.memory.head().is_closed()
    }

    /// Returns whether `tail < head + slots` according to the cached head. A consumer that
    /// publishes a false index can make `tail - head` any number. The worst results are a slot
    /// overwritten while it is read, or a ring that stays full.
    #[inline]
    fn has_free_slot(&self) -> bool {
        self.tail.wrapping_sub(self.head) < self.memory.slots()
    }

    /// Not inlined: the code inlined into a sender's loop must be short, or the compiler inlines
    /// none of it.
    #[inline(never)]
    fn wait_for_free_slot(&mut self) -> Result<(), Closed> {
        while !self.has_free_slot() {
            self.head = match self.policy.wait {
                Wait::Spin => {
                    self.slip.back_off();
                    let head = self.memory.head().spin(self.head)?;
                    self.slip.adapt(head.wrapping_sub(self.head));
                    head
                }
                Wait::Futex | Wait::Eventfd => self.memory.head().sleep(self.head, &self.policy.mine)?,
            };
        }
        Ok(())
    }

    #[inline]
    fn slot(&mut self) -> Slot<'_> {
        // SAFETY: the ring's only producer is borrowed until the slot is dropped or committed, so
        // nobody else gets this slot for writing. The consumer reads only slots below `tail`, and
        // `commit` publishes the new `tail` only later. The consumer has finished with the message
        // that was in this slot, because it published a head above `tail - slots`, and `load`
        // acquired that head. A consumer that publishes a false head is in another process, outside
        // of this process's memory safety.
        let bytes = unsafe { self.memory.slot_mut(self.tail) };
        Slot { bytes, producer: self }
    }

    #[inline]
    fn send(&mut self) {
        self.tail = self.tail.wrapping_add(1);
        self.memory.tail().publish(self.tail, &self.policy);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.tail().close(&self.policy.theirs);
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, tail, head, .. } = self;
        f.debug_struct("Producer").field("wait", &policy.wait).field("sent", tail).field("read", head).finish()
    }
}

/// A slot for the next message. It contains the bytes of an earlier message.
/// [`commit`](Self::commit) sends it; dropping it sends nothing.
#[must_use = "a slot is sent by `commit`"]
pub struct Slot<'a> {
    bytes: BytesMut,
    producer: &'a mut Producer,
}

impl<'a> Slot<'a> {
    /// Sends the message. The consumer sees it immediately.
    #[inline]
    pub fn commit(self) {
        self.end_writing().send();
    }

    /// Ends the slot's reference, which must happen before the consumer gets the slot.
    #[inline]
    fn end_writing(self) -> &'a mut Producer {
        self.producer
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("index", &self.producer.tail).finish_non_exhaustive()
    }
}

/// The receiving end. Dropping it closes the ring: the producer gets [`Closed`] when the ring is
/// full.
pub struct Consumer {
    memory: Memory,
    policy: WaitPolicy,
    /// The number of the next message, which is the number of messages read.
    head: u64,
    /// The producer's index as last loaded. The producer has sent at least this many messages.
    tail: u64,
    slip: Slip,
}

impl Consumer {
    /// Creates the consumer. There must be at most one for each memory.
    pub(super) fn new(memory: Memory, policy: WaitPolicy) -> Self {
        let slip = Slip::new(memory.slots());
        Self { memory, policy, head: 0, tail: 0, slip }
    }

    /// Starts the message numbers at `index`. Both ends must do so.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&mut self, index: u64) {
        self.memory.head().start_at(index);
        (self.tail, self.head) = (index, index);
    }

    /// Returns the next message, or `None` if the ring is empty. Never blocks.
    ///
    /// After the producer has closed, the ring becomes empty and stays empty. To detect that, call
    /// [`is_closed`](Self::is_closed) *before* this.
    #[inline]
    pub fn try_message(&mut self) -> Option<Message<'_>> {
        if !self.has_message() {
            self.tail = self.memory.tail().load();
            if !self.has_message() {
                return None;
            }
        }
        Some(self.message())
    }

    /// Returns the next message. Blocks while the ring is empty.
    ///
    /// # Errors
    ///
    /// If the ring is empty and the producer has closed.
    #[inline]
    pub fn wait_message(&mut self) -> Result<Message<'_>, Closed> {
        if !self.has_message() {
            self.wait_for_message()?;
        }
        Ok(self.message())
    }

    /// Returns whether the producer has closed. Messages that it sent before are still in the ring.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.memory.tail().is_closed()
    }

    /// Returns whether `head < tail` according to the cached tail. If the producer publishes a
    /// false index, the worst result is messages that nobody wrote.
    #[inline]
    fn has_message(&self) -> bool {
        self.head != self.tail
    }

    /// Not inlined: the code inlined into a receiver's loop must be short, or the compiler inlines
    /// none of it.
    #[inline(never)]
    fn wait_for_message(&mut self) -> Result<(), Closed> {
        self.tail = match self.policy.wait {
            Wait::Spin => {
                self.slip.back_off();
                let tail = self.memory.tail().spin(self.tail)?;
                self.slip.adapt(tail.wrapping_sub(self.tail));
                tail
            }
            Wait::Futex | Wait::Eventfd => self.memory.tail().sleep(self.tail, &self.policy.mine)?,
        };
        Ok(())
    }

    #[inline]
    fn message(&mut self) -> Message<'_> {
        // SAFETY: the ring's only consumer is borrowed until the message is dropped or released.
        // The producer wrote the slot before it published a tail above `head`, and `load` acquired
        // that tail. The producer writes the slot again only after it has acquired a head above
        // this one, which `release` publishes only later. A producer that publishes a false tail is
        // in another process, outside of this process's memory safety.
        let bytes = unsafe { self.memory.slot(self.head) };
        Message { bytes, consumer: self }
    }

    #[inline]
    fn release_slot(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.memory.head().publish(self.head, &self.policy);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.memory.head().close(&self.policy.theirs);
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, tail, head, .. } = self;
        f.debug_struct("Consumer").field("wait", &policy.wait).field("sent", tail).field("read", head).finish()
    }
}

/// A message, read in place. [`release`](Self::release) returns its slot to the producer. If it is
/// dropped instead, the next receive returns the same message again.
///
/// Dropping does not release the slot, because a destructor would make the compiler keep the
/// message in memory in case its reader panics: three more stores per message.
#[must_use = "a message is given back by `release`"]
pub struct Message<'a> {
    bytes: BytesRef,
    consumer: &'a mut Consumer,
}

impl<'a> Message<'a> {
    /// Returns the slot to the producer.
    #[inline]
    pub fn release(self) {
        self.end_reading().release_slot();
    }

    /// Ends the message's reference, which must happen before the producer gets the slot.
    #[inline]
    fn end_reading(self) -> &'a mut Consumer {
        self.consumer
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
        f.debug_struct("Message").field("index", &self.consumer.head).field("bytes", &&**self).finish()
    }
}
