//! The control words of a channel in shared memory. All zero is an empty channel.

use crate::sync::{AtomicU32, AtomicU64, Sleeper};

/// The number of memory files for messages that are longer than the ring: as many can be in flight.
pub(super) const POOL: usize = 8;

/// Each part has two cache lines of its own, since processors prefetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ChannelControls {
    pub(super) front: FrontWords,
    pub(super) head: HeadWord,
    pub(super) receiver: ReceiverWords,
    pub(super) sender: SenderWords,
}

/// Words that are seldom written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct FrontWords {
    /// The ends that were opened, one bit each.
    pub(super) opened: AtomicU32,
    /// Not zero if the sender was dropped. A sender that died leaves zero.
    pub(super) sender_closed: AtomicU32,
    /// Not zero if the receiver was dropped. A receiver that died leaves zero.
    pub(super) receiver_closed: AtomicU32,
    /// The files of the pool that contain a message. Set by the sender, cleared by the receiver.
    pub(super) pool: [AtomicU32; POOL],
}

/// Written by the receiver, once for many messages.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct HeadWord {
    /// The sender may overwrite everything before this position.
    pub(super) head: AtomicU64,
}

/// The receiver sleeps on these.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ReceiverWords {
    pub(super) sleeper: Sleeper,
}

/// The sender sleeps on these.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct SenderWords {
    pub(super) sleeper: Sleeper,
    /// The head that the sender waits for.
    pub(super) wanted: AtomicU64,
}

#[cfg(loom)]
impl ChannelControls {
    pub(super) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            front: FrontWords {
                opened: zero(),
                sender_closed: zero(),
                receiver_closed: zero(),
                pool: std::array::from_fn(|_| zero()),
            },
            head: HeadWord { head: AtomicU64::new(0) },
            receiver: ReceiverWords { sleeper: Sleeper::new() },
            sender: SenderWords { sleeper: Sleeper::new(), wanted: AtomicU64::new(0) },
        }
    }
}

#[cfg(not(loom))]
// SAFETY: atomics alone; `handle.rs` gets their size from here.
#[allow(unsafe_code)]
unsafe impl crate::memory::Controls for ChannelControls {}
