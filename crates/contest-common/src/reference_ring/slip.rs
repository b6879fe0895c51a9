//! The slip: how long a spinning end backs off before it reloads the other's index.
//!
//! An end that closely follows the other takes two cache lines away from it at each message: the
//! line of the index and that of the slot being filled. Then both ends run at the speed of cache
//! misses. If it backs off for a moment, the other end gets ahead, and one load finds many
//! messages. This is *temporal slipping* from FastForward (Giacomoni et al., PPoPP 2008), here
//! controlled by feedback.
//!
//! A load that finds only one message, as in a ping-pong, resets the slip to zero. So an end backs
//! off only within a stream, and never for more than [`Slip::MOST`] pauses.

use super::sync::spin_loop;

/// The number of pauses to back off, adapted to what the loads find.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slip {
    pauses: u32,
    /// How many messages, or free slots, a load should find.
    enough: u64,
}

impl Slip {
    /// The highest number of pauses. A pause takes about 15 to 40 ns.
    const MOST: u32 = 8;

    /// Four cache lines of the smallest slots.
    const ENOUGH: u64 = 32;

    /// Creates a slip of zero, for a ring of `slots` slots.
    pub(super) fn new(slots: u64) -> Self {
        Self { pauses: 0, enough: Self::ENOUGH.min(slots / 4) }
    }

    /// Spins for the current number of pauses, which may be zero.
    #[inline]
    pub(super) fn back_off(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }

    /// Adapts to a load that found `found` messages or free slots.
    #[inline]
    pub(super) fn adapt(&mut self, found: u64) {
        self.pauses = match found {
            0..=1 => 0,
            _ if found < self.enough => Self::MOST.min(self.pauses + 1),
            _ => self.pauses.saturating_sub(1),
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slip;

    fn adapted(slots: u64, loads: impl IntoIterator<Item = u64>) -> u32 {
        let mut slip = Slip::new(slots);
        loads.into_iter().for_each(|found| slip.adapt(found));
        slip.pauses
    }

    #[test]
    fn grows_within_a_stream_up_to_the_maximum() {
        assert_eq!(adapted(1024, [5; 3]), 3);
        assert_eq!(adapted(1024, [5; 100]), Slip::MOST);
    }

    #[test]
    fn shrinks_when_enough_is_found() {
        assert_eq!(adapted(1024, [5, 5, 5, 32]), 2);
        assert_eq!(adapted(1024, [5, 100, 100, 100]), 0);
        assert_eq!(adapted(64, [5, 5, 5, 16]), 2);
    }

    #[test]
    fn vanishes_in_a_ping_pong() {
        assert_eq!(adapted(1024, [5, 5, 5, 1]), 0);
        assert_eq!(adapted(1024, [0]), 0);
    }

    #[test]
    fn never_grows_in_a_tiny_ring() {
        for slots in [1, 2, 4, 8] {
            assert_eq!(adapted(slots, [slots; 10]), 0);
        }
    }

    #[test]
    fn a_false_index_does_no_harm() {
        assert_eq!(adapted(1024, [5, u64::MAX]), 0);
    }
}
