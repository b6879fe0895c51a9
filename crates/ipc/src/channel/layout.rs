//! The control words of a channel, as they lie in shared memory. All zero is an empty channel.

use crate::sync::{AtomicU32, AtomicU64, Sleeper};

/// The memory files for messages that are longer than the ring: as many can be on their way.
pub(super) const POOL: usize = 8;

/// Each part has two cache lines to itself, since processors fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ChannelControls {
    pub(super) front: FrontWords,
    pub(super) head: HeadWord,
    pub(super) receiver: ReceiverWords,
    pub(super) sender: SenderWords,
}

/// Seldom written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct FrontWords {
    /// The ends that were opened, a bit each.
    pub(super) taken: AtomicU32,
    /// Not zero: the sender has ended, and not died.
    pub(super) sender_closed: AtomicU32,
    /// Not zero: the receiver has ended, and not died.
    pub(super) receiver_closed: AtomicU32,
    /// The files of the pool that hold a message. Set by the sender, cleared by the receiver.
    pub(super) pool: [AtomicU32; POOL],
}

/// Written by the receiver, now and then.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct HeadWord {
    /// Everything before it may be overwritten.
    pub(super) head: AtomicU64,
}

/// On which the receiver sleeps.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ReceiverWords {
    pub(super) sleeper: Sleeper,
}

/// On which the sender sleeps.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct SenderWords {
    pub(super) sleeper: Sleeper,
    /// The head that it awaits.
    pub(super) wanted: AtomicU64,
}

#[cfg(loom)]
impl ChannelControls {
    pub(super) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            front: FrontWords {
                taken: zero(),
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
// SAFETY: atomics alone; `handle.rs` takes their size from here.
#[allow(unsafe_code)]
unsafe impl crate::memory::Controls for ChannelControls {}
