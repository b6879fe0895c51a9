//! The slip: how long an end that spins stands back before it looks again.
//!
//! An end at the heels of the other takes the cache line that the other is writing away from it at
//! each message, and both go at the pace of cache misses. If it stands back for a moment the other
//! runs ahead, and it finds many messages at once. This is *temporal slipping*, from FastForward
//! (Giacomoni et al., PPoPP 2008), here by feedback.
//!
//! If a look finds one message only, as in a ping-pong, the slip is none, so that an
//! end stands back only within a stream.

use crate::sync::spin_loop;

/// How many pauses to stand back, learned from what the looks find.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slip {
    pauses: u32,
}

impl Slip {
    /// The most pauses, of some 15 to 40 ns each.
    const MOST: u32 = 8;

    /// How many messages are enough to find at once.
    const ENOUGH: u64 = 32;

    /// Learns that a look found `bytes` bytes of messages or of space, where a message takes `record`
    /// bytes and the ring `capacity`.
    #[inline]
    pub(super) fn learn(&mut self, bytes: u64, record: u64, capacity: u64) {
        self.pauses = match bytes {
            _ if bytes <= record => 0,
            _ if bytes < (Self::ENOUGH.saturating_mul(record)).min(capacity / 4) => Self::MOST.min(self.pauses + 1),
            _ => self.pauses.saturating_sub(1),
        };
    }

    /// Waits a moment, or not at all.
    #[inline]
    pub(super) fn stand_back(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slip;

    fn learned(found: impl IntoIterator<Item = u64>) -> u32 {
        let mut slip = Slip::default();
        found.into_iter().for_each(|messages| slip.learn(72 * messages, 72, 1 << 20));
        slip.pauses
    }

    #[test]
    fn grows_within_a_stream_up_to_the_most() {
        assert_eq!(learned([5; 3]), 3);
        assert_eq!(learned([5; 100]), Slip::MOST);
    }

    #[test]
    fn shrinks_when_enough_is_found() {
        assert_eq!(learned([5, 5, 5, 32]), 2);
        assert_eq!(learned([5, 100, 100, 100]), 0);
    }

    #[test]
    fn vanishes_in_a_ping_pong() {
        assert_eq!(learned([5, 5, 5, 1]), 0);
        assert_eq!(learned([0]), 0);
    }

    #[test]
    fn survives_a_lie() {
        let mut slip = Slip::default();
        slip.learn(u64::MAX, u64::MAX, 4096);
        slip.learn(8, 0, 4096);
    }
}
