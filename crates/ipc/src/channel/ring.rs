//! The ring of a channel: what one end publishes and the other awaits.
//!
//! There is no tail. The word at which the next record will begin is zero until it is there, then it
//! is the record's header. The sender writes the payload, then a zero where the record after it will
//! begin, and publishes the record by storing its header. The receiver looks at the word where it
//! expects a record. So a message and the news of it travel in one cache line. Sources:
//! - J. Giacomoni, T. Moseley, M. Vachharajani, *FastForward for efficient pipeline parallelism*,
//!   PPoPP 2008: the slot itself says whether it is full, so that the ends share no index.
//! - P. Lee, T. Bu, G. Chandranmenon, *A lock-free, cache-efficient shared ring buffer*, ANCS 2009
//!   (MCRingBuffer): the receiver gives space back in large pieces, and the sender keeps a copy of
//!   the head, which it reads again only when the ring seems full.
//!
//! All ordering of memory is here, in handshakes whose two sides carry the same name:
//! - **\[record\]** who sees a header sees the payload, and the zero behind it;
//! - **\[space\]** who sees a head has the bytes before it for itself;
//! - **\[sleep\]** who falls asleep has missed nothing, or else who published sees the sleeper
//!   (Dekker's pattern);
//! - **\[close\]** who sees that an end has closed sees the last that it published.

use std::time::Duration;

use super::layout::ChannelControls;
use crate::memory::Memory;
use crate::record::HEADER;
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

    /// The longest record: the zero behind it must have a place, too.
    #[inline]
    pub(super) fn max_record(&self) -> u64 {
        self.capacity() - HEADER as u64
    }

    /// Stores a header that is not published yet: behind one that is not, either.
    #[inline]
    pub(super) fn prepare(&self, at: u64, header: u64) {
        self.memory.word(at).store(header, Ordering::Relaxed);
    }

    /// Publishes the record at `at`, and those prepared between it and `end`. For the sender.
    #[inline]
    pub(super) fn publish(&self, at: u64, header: u64, end: u64) {
        self.memory.word(end).store(0, Ordering::Relaxed);
        // [record] Release: pairs with `look`.
        self.memory.word(at).store(header, Ordering::Release);
        if self.wait != WaitMode::Spin {
            self.wake_receiver();
        }
    }

    /// Not inlined, to keep the loops of those who spin short.
    #[inline(never)]
    fn wake_receiver(&self) {
        // [sleep] First the header, then the mark; pairs with `sleep_for_message`.
        fence(Ordering::SeqCst);
        let sleeper = &self.controls().receiver.sleeper;
        if sleeper.is_marked() {
            sleeper.wake();
        }
    }

    /// The header of the record at `at`, or zero if it is not there yet. For the receiver.
    #[inline]
    pub(super) fn look(&self, at: u64) -> u64 {
        // [record] Acquire: pairs with `publish`.
        self.memory.word(at).load(Ordering::Acquire)
    }

    /// Sleeps until there is a record at `at`, something else happens, or for no reason.
    #[cold]
    pub(super) fn sleep_for_message(&self, at: u64, timeout: Option<Duration>, is_over: impl FnOnce() -> bool) {
        let sleeper = &self.controls().receiver.sleeper;
        sleeper.mark();
        // [sleep] First the mark, then the header; pairs with `wake_receiver`.
        fence(Ordering::SeqCst);
        if self.look(at) == 0 && !is_over() {
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
