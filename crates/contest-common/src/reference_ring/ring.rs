//! The two ends of a ring.
//!
//! Messages are numbered from zero, and message `i` lies in slot `i` modulo the number of slots. The producer owns the slots
//! of the messages `tail .. head + slots`, the consumer those of `head .. tail`; publishing its index is how an end hands
//! slots to the other.

use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
use super::error::Error;
use super::lane::{Closed, Manner, Wait};
use super::memory::{BytesMut, BytesRef, Memory};
use super::shape::Shape;
use super::slip::Slip;
use super::sync::{Alarm, Eventfd};

/// A ring on the heap, for two threads.
///
/// # Errors
///
/// If there is not enough memory, or no descriptor is left.
#[cfg(not(loom))]
pub fn heap(shape: Shape, wait: Wait) -> Result<(Producer, Consumer), Error> {
    let memory = Memory::heap(shape)?;
    let alarm = || match wait {
        Wait::Eventfd => Eventfd::pair().map_err(Error::system("make an eventfd")),
        Wait::Spin | Wait::Futex => Ok([Alarm::Private, Alarm::Private]),
    };
    let ([filled, fills], [freed, frees]) = (alarm()?, alarm()?);
    let producer = Manner { wait, mine: freed, theirs: fills };
    let consumer = Manner { wait, mine: filled, theirs: frees };
    Ok((Producer::new(memory.clone(), producer), Consumer::new(memory, consumer)))
}

/// A ring of loom's objects, for two of its threads.
#[cfg(loom)]
pub(super) fn modelled(shape: Shape, wait: Wait) -> (Producer, Consumer) {
    let memory = Memory::heap(shape);
    let alarm = || match wait {
        Wait::Eventfd => Eventfd::pair(),
        Wait::Spin | Wait::Futex => [Alarm::Private, Alarm::Private],
    };
    let ([filled, fills], [freed, frees]) = (alarm(), alarm());
    let producer = Manner { wait, mine: freed, theirs: fills };
    let consumer = Manner { wait, mine: filled, theirs: frees };
    (Producer::new(memory.clone(), producer), Consumer::new(memory, consumer))
}

/// The end that sends. Dropping it closes the ring: the consumer gets what was sent, then [`Closed`].
pub struct Producer {
    memory: Memory,
    manner: Manner,
    /// The number of the next message: how many were sent.
    tail: u64,
    /// The consumer's index when last looked at. It has read so many messages, or more.
    head: u64,
    slip: Slip,
}

impl Producer {
    /// At most one for each memory.
    pub(super) fn new(memory: Memory, manner: Manner) -> Self {
        let slip = Slip::new(memory.slots());
        Self { memory, manner, tail: 0, head: 0, slip }
    }

    /// Numbers the messages from `index` on; both ends must.
    #[cfg(all(test, not(loom)))]
    pub(super) fn begin(&mut self, index: u64) {
        self.memory.tail().begin(index);
        (self.tail, self.head) = (index, index);
    }

    /// The next slot, unless the ring is full.
    ///
    /// A ring whose consumer is gone fills up and stays full; [`is_closed`](Self::is_closed) tells.
    #[inline]
    pub fn try_slot(&mut self) -> Option<Slot<'_>> {
        if !self.has_room() {
            self.head = self.memory.head().look();
            if !self.has_room() {
                return None;
            }
        }
        Some(self.slot())
    }

    /// The next slot, once the ring is not full.
    ///
    /// # Errors
    ///
    /// If the ring is full and the consumer is gone.
    #[inline]
    pub fn wait_slot(&mut self) -> Result<Slot<'_>, Closed> {
        if !self.has_room() {
            self.await_room()?;
        }
        Ok(self.slot())
    }

    /// Whether the consumer is gone. What is sent from then on, nobody reads.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.memory.head().is_closed()
    }

    /// Whether `tail < head + slots` as far as this end knows. If the consumer lies about its index, `tail - head` is any
    /// number, and the worst is a slot that is overwritten while it is read, or a ring that stays full.
    #[inline]
    fn has_room(&self) -> bool {
        self.tail.wrapping_sub(self.head) < self.memory.slots()
    }

    /// Not inlined: what a sender's loop inlines must be short, or the compiler inlines none of it.
    #[inline(never)]
    fn await_room(&mut self) -> Result<(), Closed> {
        while !self.has_room() {
            self.head = match self.manner.wait {
                Wait::Spin => {
                    self.slip.stand_back();
                    let head = self.memory.head().spin(self.head)?;
                    self.slip.learn(head.wrapping_sub(self.head));
                    head
                }
                Wait::Futex | Wait::Eventfd => self.memory.head().sleep(self.head, &self.manner.mine)?,
            };
        }
        Ok(())
    }

    #[inline]
    fn slot(&mut self) -> Slot<'_> {
        // SAFETY: the one producer of the ring is borrowed until the slot is dropped or committed, so nobody else gets this
        // slot for writing. The consumer gets it for reading only below `tail`, which is not published before `commit`; and
        // it has done with the message that lay there, since it published a head above `tail - slots`, which `look`
        // acquired. A consumer of another process that lies about its head is outside of this process.
        let bytes = unsafe { self.memory.slot_mut(self.tail) };
        Slot { bytes, producer: self }
    }

    #[inline]
    fn send(&mut self) {
        self.tail = self.tail.wrapping_add(1);
        self.memory.tail().publish(self.tail, &self.manner);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.tail().close(&self.manner.theirs);
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manner, tail, head, .. } = self;
        f.debug_struct("Producer").field("wait", &manner.wait).field("sent", tail).field("read", head).finish()
    }
}

/// A slot to be filled. It holds whatever lay there before, and is sent by [`commit`](Self::commit), or not at all if it is
/// dropped.
#[must_use = "a slot is sent by `commit`"]
pub struct Slot<'a> {
    bytes: BytesMut,
    producer: &'a mut Producer,
}

impl<'a> Slot<'a> {
    /// Sends the message. The consumer can see it at once.
    #[inline]
    pub fn commit(self) {
        self.end_writing().send();
    }

    /// Drops the bytes, which must be done before they are handed over.
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

/// The end that receives. Dropping it closes the ring: the producer gets [`Closed`] as soon as the ring is full.
pub struct Consumer {
    memory: Memory,
    manner: Manner,
    /// The number of the next message: how many were read.
    head: u64,
    /// The producer's index when last looked at. It has sent so many messages, or more.
    tail: u64,
    slip: Slip,
}

impl Consumer {
    /// At most one for each memory.
    pub(super) fn new(memory: Memory, manner: Manner) -> Self {
        let slip = Slip::new(memory.slots());
        Self { memory, manner, head: 0, tail: 0, slip }
    }

    /// Numbers the messages from `index` on; both ends must.
    #[cfg(all(test, not(loom)))]
    pub(super) fn begin(&mut self, index: u64) {
        self.memory.head().begin(index);
        (self.tail, self.head) = (index, index);
    }

    /// The next message, unless there is none.
    ///
    /// A ring whose producer is gone becomes empty and stays so; [`is_closed`](Self::is_closed), asked *before*, tells.
    #[inline]
    pub fn try_message(&mut self) -> Option<Message<'_>> {
        if !self.has_message() {
            self.tail = self.memory.tail().look();
            if !self.has_message() {
                return None;
            }
        }
        Some(self.message())
    }

    /// The next message, once there is one.
    ///
    /// # Errors
    ///
    /// If the ring is empty and the producer is gone.
    #[inline]
    pub fn wait_message(&mut self) -> Result<Message<'_>, Closed> {
        if !self.has_message() {
            self.await_message()?;
        }
        Ok(self.message())
    }

    /// Whether the producer is gone. What it had sent before is still there.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.memory.tail().is_closed()
    }

    /// Whether `head < tail` as far as this end knows. If the producer lies about its index, the worst are messages that
    /// nobody wrote.
    #[inline]
    fn has_message(&self) -> bool {
        self.head != self.tail
    }

    /// Not inlined: what a receiver's loop inlines must be short, or the compiler inlines none of it.
    #[inline(never)]
    fn await_message(&mut self) -> Result<(), Closed> {
        self.tail = match self.manner.wait {
            Wait::Spin => {
                self.slip.stand_back();
                let tail = self.memory.tail().spin(self.tail)?;
                self.slip.learn(tail.wrapping_sub(self.tail));
                tail
            }
            Wait::Futex | Wait::Eventfd => self.memory.tail().sleep(self.tail, &self.manner.mine)?,
        };
        Ok(())
    }

    #[inline]
    fn message(&mut self) -> Message<'_> {
        // SAFETY: the one consumer of the ring is borrowed until the message is dropped or released. The producer wrote the
        // slot before it published a tail above `head`, which `look` acquired; and it will write it again only once it has
        // acquired a head above this one, which is not published before `release`. A producer of another process that lies
        // about its tail is outside of this process.
        let bytes = unsafe { self.memory.slot(self.head) };
        Message { bytes, consumer: self }
    }

    #[inline]
    fn give_back(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.memory.head().publish(self.head, &self.manner);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.memory.head().close(&self.manner.theirs);
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { manner, tail, head, .. } = self;
        f.debug_struct("Consumer").field("wait", &manner.wait).field("sent", tail).field("read", head).finish()
    }
}

/// A message, read where it lies. It is given back by [`release`](Self::release), or comes again if it is dropped.
///
/// Dropping it does not release it, since a destructor has the compiler keep the message in memory for the case that its
/// reader panics: three more stores for each message.
#[must_use = "a message is given back by `release`"]
pub struct Message<'a> {
    bytes: BytesRef,
    consumer: &'a mut Consumer,
}

impl<'a> Message<'a> {
    /// Gives the slot back to the producer.
    #[inline]
    pub fn release(self) {
        self.end_reading().give_back();
    }

    /// Drops the bytes, which must be done before they are handed over.
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
