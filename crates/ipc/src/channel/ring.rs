//! The ring of a channel: how each end publishes, and how the other waits for it.
//!
//! Messages lie in a ring of bytes, each at the start of a cache line. A second ring has one word
//! per message, its *descriptor*: the message's length, and the lap, by which the receiver knows
//! that the message is published. There is no tail. The sender publishes a message by storing its
//! descriptor, and the receiver polls the next descriptor. Eight messages with their descriptors
//! thus take nine cache lines, and neither end touches a line of messages that the other is using.
//!
//! The receiver publishes a head, once for many messages. The sender keeps a copy of the head, and
//! reads it again only when the ring seems full. Sources:
//! - J. Giacomoni, T. Moseley, M. Vachharajani, *FastForward for efficient pipeline parallelism*,
//!   PPoPP 2008: a slot says itself whether it is full, so the ends share no index.
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009
//!   (MCRingBuffer): space is released for many messages at once.
//!
//! All memory ordering of a channel is in this file. The two sides of a handshake have the same
//! label:
//! - **\[message\]** a receiver that sees a descriptor sees the message;
//! - **\[space\]** a sender that sees a head owns the bytes before it;
//! - **\[sleep\]** an end that falls asleep has missed nothing, or the publisher sees the sleeper
//!   (Dekker's pattern);
//! - **\[close\]** an end that sees the other closed sees everything that the other published.

use std::time::Duration;

use super::layout::ChannelControls;
use crate::memory::Memory;
use crate::sync::{AtomicU32, Ordering, Sleeper, fence};
use crate::wait::WaitMode;

/// A handle to a channel's memory.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    memory: Memory<ChannelControls>,
    /// The binary logarithm of the number of descriptors.
    lap_shift: u32,
    pub(super) wait: WaitMode,
}

/// The bits of a descriptor that contain its lap.
pub(super) const LAPS: u64 = 0x7fff_ffff << 32;

/// The bytes that a message takes in the ring: whole cache lines.
#[inline]
pub(super) fn stride(len: usize) -> u64 {
    // Saturates, so no length overflows. An empty message takes 64 bytes.
    ((len as u64).saturating_sub(1) | 63).saturating_add(1)
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

impl Ring {
    pub(super) fn new(memory: Memory<ChannelControls>, wait: WaitMode) -> Self {
        let lap_shift = memory.descriptors().trailing_zeros();
        Self { memory, lap_shift, wait }
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

    /// Publishes a message by storing its descriptor. Called by the sender.
    #[inline]
    pub(super) fn publish(&self, index: u64, descriptor: u64) {
        // [message] Release: pairs with `look`.
        self.memory.descriptor(index).store(descriptor | self.lap(index), Ordering::Release);
    }

    /// Wakes the receiver if it sleeps. Called by the sender after it has published.
    #[inline]
    pub(super) fn notify(&self) {
        if self.wait != WaitMode::Spin {
            self.wake_receiver();
        }
    }

    /// Not inlined, to keep the loops of spinning senders short.
    #[inline(never)]
    fn wake_receiver(&self) {
        // [sleep] Store the descriptor first, then load the mark; pairs with `sleep_for_message`.
        fence(Ordering::SeqCst);
        let sleeper = &self.controls().receiver.sleeper;
        if sleeper.is_marked() {
            sleeper.wake();
        }
    }

    /// The descriptor of a message, if it is published. Called by the receiver.
    #[inline]
    pub(super) fn look(&self, index: u64) -> Option<u64> {
        // [message] Acquire: pairs with `publish`.
        let word = self.memory.descriptor(index).load(Ordering::Acquire);
        (word & LAPS == self.lap(index)).then_some(word)
    }

    /// The lap of a message: how often all descriptors were used before it, plus one. Until the
    /// message is published, its word contains the previous lap, or zero in the first lap.
    #[inline]
    fn lap(&self, index: u64) -> u64 {
        ((index >> self.lap_shift) + 1) << 32 & LAPS
    }

    /// Sleeps until the message is published or `is_over` is true. May wake spuriously.
    #[cold]
    pub(super) fn sleep_for_message(&self, index: u64, timeout: Option<Duration>, is_over: impl FnOnce() -> bool) {
        let sleeper = &self.controls().receiver.sleeper;
        sleeper.mark();
        // [sleep] Set the mark first, then load the descriptor; pairs with `wake_receiver`.
        fence(Ordering::SeqCst);
        if self.look(index).is_none() && !is_over() {
            sleeper.wait(timeout);
        }
        sleeper.unmark();
    }

    /// Releases all bytes before `head`. Called by the receiver.
    pub(super) fn publish_head(&self, head: u64) {
        // [space] Release, after the receiver's reads; pairs with `head`.
        self.controls().head.head.store(head, Ordering::Release);
        if self.wait != WaitMode::Spin {
            // [sleep] Store the head first, then load the mark; pairs with `sleep_for_space`.
            fence(Ordering::SeqCst);
            let sender = &self.controls().sender;
            if sender.sleeper.is_marked() && head >= sender.wanted.load(Ordering::Relaxed) {
                sender.sleeper.wake();
            }
        }
    }

    /// The head. Called by the sender.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        // [space] Acquire: pairs with `publish_head`.
        self.controls().head.head.load(Ordering::Acquire)
    }

    /// Sleeps until the head reaches `wanted` or `is_over` is true. May wake spuriously.
    #[cold]
    pub(super) fn sleep_for_space(&self, wanted: u64, is_over: impl FnOnce() -> bool) {
        let sender = &self.controls().sender;
        sender.wanted.store(wanted, Ordering::Relaxed);
        sender.sleeper.mark();
        // [sleep] Set the mark first, then load the head; pairs with `publish_head`.
        fence(Ordering::SeqCst);
        if self.head() < wanted && !is_over() {
            sender.sleeper.wait(None);
        }
        sender.sleeper.unmark();
    }

    /// Marks an end as closed, and wakes the other.
    pub(super) fn close(&self, end: End) {
        // [close] Release, after everything that this end published; pairs with `is_closed`.
        self.closed(end).store(1, Ordering::Release);
        // [sleep] The mark is exchanged whatever its value: either the other end sees the flag
        // after it has set the mark, or it is woken.
        fence(Ordering::SeqCst);
        self.sleeper(end.other()).wake_anyway();
    }

    /// Whether an end was closed. False if its process died.
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

    /// The word that an end sleeps on.
    pub(super) fn sleeper(&self, end: End) -> &Sleeper {
        match end {
            End::Sender => &self.controls().sender.sleeper,
            End::Receiver => &self.controls().receiver.sleeper,
        }
    }

    /// Claims an end permanently. False if it was claimed before.
    pub(super) fn claim_end(&self, end: End) -> bool {
        let bit = 1 << end as u32;
        self.controls().front.opened.fetch_or(bit, Ordering::Relaxed) & bit == 0
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
