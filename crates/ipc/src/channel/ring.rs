//! The ring of a channel: what one end publishes and the other awaits.
//!
//! Lamport's ring with cached indices, of bytes: the sender publishes a tail, the receiver a head.
//! Each keeps a copy of the other's, which it reads again only when the ring seems full or empty.
//! Sources:
//! - L. Lamport, *Specifying concurrent program modules*, TOPLAS 5(2), 1983: one index for each end.
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009
//!   (MCRingBuffer): the cached copies, and a head that is published for many messages at once.
//!
//! All ordering of memory is here, in handshakes whose two sides carry the same name:
//! - **\[records\]** who sees a tail sees the records before it;
//! - **\[space\]** who sees a head has the bytes before it for itself;
//! - **\[sleep\]** who falls asleep has missed nothing, or else who published sees the sleeper
//!   (Dekker's pattern);
//! - **\[close\]** who sees that an end has closed sees the last that it published.

use std::time::Duration;

use super::layout::ChannelControls;
use crate::memory::Memory;
use crate::sync::{AtomicU32, Ordering, Sleeper, fence};
use crate::wait::WaitMode;

/// A handle of a channel's memory.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    memory: Memory<ChannelControls>,
    pub(super) wait: WaitMode,
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl Ring {
    pub(super) fn new(memory: Memory<ChannelControls>, wait: WaitMode) -> Self {
        Self { memory, wait }
    }

    #[inline]
    pub(super) fn memory(&self) -> &Memory<ChannelControls> {
        &self.memory
    }

    #[inline]
    pub(super) fn controls(&self) -> &ChannelControls {
        self.memory.controls()
    }

    #[inline]
    pub(super) fn capacity(&self) -> u64 {
        self.memory.capacity()
    }

    /// Stores the header of a record that is not published yet. For the sender.
    #[inline]
    pub(super) fn set_header(&self, at: u64, header: u64) {
        self.memory.word(at).store(header, Ordering::Relaxed);
    }

    /// The header of a published record. For the receiver.
    #[inline]
    pub(super) fn header(&self, at: u64) -> u64 {
        self.memory.word(at).load(Ordering::Relaxed)
    }

    /// Publishes all records before `tail`. For the sender.
    #[inline]
    pub(super) fn publish(&self, tail: u64) {
        // [records] Release: pairs with `tail`.
        self.controls().tail.tail.store(tail, Ordering::Release);
        if self.wait != WaitMode::Spin {
            self.wake_receiver();
        }
    }

    /// Not inlined, to keep the loops of those who spin short.
    #[inline(never)]
    fn wake_receiver(&self) {
        // [sleep] First the tail, then the mark; pairs with `sleep_for_message`.
        fence(Ordering::SeqCst);
        let sleeper = &self.controls().receiver.sleeper;
        if sleeper.is_marked() {
            sleeper.wake();
        }
    }

    /// The tail. For the receiver, which owns all records before it once this has returned.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        // [records] Acquire: pairs with `publish`.
        self.controls().tail.tail.load(Ordering::Acquire)
    }

    /// Sleeps until the tail is no longer `seen`, something else happens, or for no reason.
    #[cold]
    pub(super) fn sleep_for_message(&self, seen: u64, timeout: Option<Duration>, is_over: impl FnOnce() -> bool) {
        let sleeper = &self.controls().receiver.sleeper;
        sleeper.mark();
        // [sleep] First the mark, then the tail; pairs with `wake_receiver`.
        fence(Ordering::SeqCst);
        if self.tail() == seen && !is_over() {
            sleeper.wait(timeout);
        }
        sleeper.unmark();
    }

    /// Gives back all bytes before `head`. For the receiver.
    pub(super) fn publish_head(&self, head: u64) {
        // [space] Release: pairs with `head`. What the receiver read lies before.
        self.controls().head.head.store(head, Ordering::Release);
        if self.wait != WaitMode::Spin {
            // [sleep] First the head, then the mark; pairs with `sleep_for_space`.
            fence(Ordering::SeqCst);
            let sender = &self.controls().sender;
            if sender.sleeper.is_marked() && head >= sender.wanted.load(Ordering::Relaxed) {
                sender.sleeper.wake();
            }
        }
    }

    /// The head. For the sender.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        // [space] Acquire: pairs with `publish_head`.
        self.controls().head.head.load(Ordering::Acquire)
    }

    /// Sleeps until the head is `wanted`, something else happens, or for no reason.
    #[cold]
    pub(super) fn sleep_for_space(&self, wanted: u64, is_over: impl FnOnce() -> bool) {
        let sender = &self.controls().sender;
        sender.wanted.store(wanted, Ordering::Relaxed);
        sender.sleeper.mark();
        // [sleep] First the mark, then the head; pairs with `publish_head`.
        fence(Ordering::SeqCst);
        if self.head() < wanted && !is_over() {
            sender.sleeper.wait(None);
        }
        sender.sleeper.unmark();
    }

    /// Says that an end goes, and wakes the other.
    pub(super) fn close(&self, end: End) {
        // [close] Release, after the last that it published; pairs with `is_closed`.
        self.closed(end).store(1, Ordering::Release);
        // [sleep] The mark is exchanged whatever it is: either the other end sees the flag after it
        // has marked, or it is woken.
        fence(Ordering::SeqCst);
        self.sleeper(end.other()).wake_anyway();
    }

    /// Whether an end has gone, and not died.
    #[inline]
    pub(super) fn is_closed(&self, end: End) -> bool {
        // [close] Acquire: pairs with `close`.
        self.closed(end).load(Ordering::Acquire) != 0
    }

    fn closed(&self, end: End) -> &AtomicU32 {
        match end {
            End::Sender => &self.controls().front.sender_closed,
            End::Receiver => &self.controls().front.receiver_closed,
        }
    }

    /// What an end sleeps on.
    pub(super) fn sleeper(&self, end: End) -> &Sleeper {
        match end {
            End::Sender => &self.controls().sender.sleeper,
            End::Receiver => &self.controls().receiver.sleeper,
        }
    }

    /// Takes an end for good; false if somebody has.
    pub(super) fn take(&self, end: End) -> bool {
        let bit = 1 << end as u32;
        self.controls().front.taken.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}
