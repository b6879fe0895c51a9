//! The ring of a channel: what one end publishes and the other awaits.
//!
//! Messages lie in a ring of bytes, each at the start of a cache line. A second ring has a word for
//! each message, its *descriptor*: how long the message is, and the lap, by which the receiver knows
//! that it is there. There is no tail: the sender publishes a message by storing its descriptor, and
//! the receiver looks at the next one. So eight messages and the news of them travel in nine cache
//! lines, and neither end touches a line of messages while the other is at work there.
//!
//! The receiver publishes a head, now and then. The sender keeps a copy, which it reads again only
//! when the ring seems full. Sources:
//! - J. Giacomoni, T. Moseley, M. Vachharajani, *FastForward for efficient pipeline parallelism*,
//!   PPoPP 2008: a slot says itself whether it is full, so that the ends share no index.
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009
//!   (MCRingBuffer): space is given back for many messages at once.
//!
//! All ordering of memory is here, in handshakes whose two sides carry the same name:
//! - **\[message\]** who sees a descriptor sees the message;
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
    /// The binary logarithm of the number of descriptors.
    lap_shift: u32,
    pub(super) wait: WaitMode,
}

/// The bits of a descriptor that say its lap.
pub(super) const LAPS: u64 = 0x7fff_ffff << 32;

/// The bytes that a message takes in the ring: whole cache lines.
#[inline]
pub(super) fn stride(len: usize) -> u64 {
    // No overflow for any length, and 64 for none.
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

    /// Publishes a message: stores its descriptor. For the sender.
    #[inline]
    pub(super) fn publish(&self, index: u64, descriptor: u64) {
        // [message] Release: pairs with `look`.
        self.memory.descriptor(index).store(descriptor | self.lap(index), Ordering::Release);
    }

    /// Wakes the receiver if it sleeps. For the sender, after it has published.
    #[inline]
    pub(super) fn notify(&self) {
        if self.wait != WaitMode::Spin {
            self.wake_receiver();
        }
    }

    /// Not inlined, to keep the loops of those who spin short.
    #[inline(never)]
    fn wake_receiver(&self) {
        // [sleep] First the descriptor, then the mark; pairs with `sleep_for_message`.
        fence(Ordering::SeqCst);
        let sleeper = &self.controls().receiver.sleeper;
        if sleeper.is_marked() {
            sleeper.wake();
        }
    }

    /// The descriptor of a message, if it is there. For the receiver.
    #[inline]
    pub(super) fn look(&self, index: u64) -> Option<u64> {
        // [message] Acquire: pairs with `publish`.
        let word = self.memory.descriptor(index).load(Ordering::Acquire);
        (word & LAPS == self.lap(index)).then_some(word)
    }

    /// The lap of a message: one more than how often the descriptors were all used before it. The
    /// word that lies there until it is published has the lap before, or zero in the first one.
    #[inline]
    fn lap(&self, index: u64) -> u64 {
        ((index >> self.lap_shift) + 1) << 32 & LAPS
    }

    /// Sleeps until a message is there, something else happens, or for no reason.
    #[cold]
    pub(super) fn sleep_for_message(&self, index: u64, timeout: Option<Duration>, is_over: impl FnOnce() -> bool) {
        let sleeper = &self.controls().receiver.sleeper;
        sleeper.mark();
        // [sleep] First the mark, then the descriptor; pairs with `wake_receiver`.
        fence(Ordering::SeqCst);
        if self.look(index).is_none() && !is_over() {
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
