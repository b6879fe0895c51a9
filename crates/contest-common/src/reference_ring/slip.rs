//! The slip: how long an end that spins stands back before it looks at the other's index.
//!
//! An end at the heels of the other takes the line of the index, and that of the slot being filled, away from it at each
//! message, and both go at the pace of cache misses. If it stands back for a moment the other runs ahead, and a look finds
//! many messages at once. This is *temporal slipping*, from FastForward (Giacomoni et al., PPoPP 2008), here by feedback.
//!
//! A look that finds one message only, as in a ping-pong, takes the slip back to nothing, so that an end stands back only
//! within a stream, and never for more than [`Slip::MOST`] pauses.

use super::sync::spin_loop;

/// How many pauses to stand back, learned from what the looks find.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slip {
    pauses: u32,
    /// How many messages, or free slots, a look should find.
    enough: u64,
}

impl Slip {
    /// The most pauses, of some 15 to 40 ns each.
    const MOST: u32 = 8;

    /// Four lines of the smallest slots.
    const ENOUGH: u64 = 32;

    /// No slip yet, in a ring of so many slots.
    pub(super) fn new(slots: u64) -> Self {
        Self { pauses: 0, enough: Self::ENOUGH.min(slots / 4) }
    }

    /// Waits a moment, or not at all.
    #[inline]
    pub(super) fn stand_back(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }

    /// Learns that a look found `found` messages, or as many free slots.
    #[inline]
    pub(super) fn learn(&mut self, found: u64) {
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

    fn learned(slots: u64, looks: impl IntoIterator<Item = u64>) -> u32 {
        let mut slip = Slip::new(slots);
        looks.into_iter().for_each(|found| slip.learn(found));
        slip.pauses
    }

    #[test]
    fn grows_within_a_stream_up_to_the_most() {
        assert_eq!(learned(1024, [5; 3]), 3);
        assert_eq!(learned(1024, [5; 100]), Slip::MOST);
    }

    #[test]
    fn shrinks_when_enough_is_found() {
        assert_eq!(learned(1024, [5, 5, 5, 32]), 2);
        assert_eq!(learned(1024, [5, 100, 100, 100]), 0);
        assert_eq!(learned(64, [5, 5, 5, 16]), 2);
    }

    #[test]
    fn vanishes_in_a_ping_pong() {
        assert_eq!(learned(1024, [5, 5, 5, 1]), 0);
        assert_eq!(learned(1024, [0]), 0);
    }

    #[test]
    fn never_grows_in_a_tiny_ring() {
        for slots in [1, 2, 4, 8] {
            assert_eq!(learned(slots, [slots; 10]), 0);
        }
    }

    #[test]
    fn survives_a_lie() {
        assert_eq!(learned(1024, [5, u64::MAX]), 0);
    }
}
