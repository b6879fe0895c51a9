//! The slip: how long a spinning end pauses before it polls again.
//!
//! An end that is close behind the other takes the cache line that the other is writing, at each
//! message. Both then run at the speed of cache misses. If the end pauses, the other runs ahead,
//! and the end finds many messages at once. This is *temporal slipping*, from FastForward
//! (Giacomoni et al., PPoPP 2008), here controlled by feedback.
//!
//! If only one message was found, as in a ping-pong, there is no pause. An end pauses only within a
//! stream.

use crate::sync::spin_loop;

/// The number of pauses, adapted to what was found between two waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slip {
    pauses: u32,
}

impl Slip {
    /// The maximum number of pauses, of 15 to 40 ns each.
    const MOST: u32 = 8;

    /// The number of messages at which the pause is long enough.
    const ENOUGH: u64 = 32;

    pub(super) fn new() -> Self {
        Self { pauses: 0 }
    }

    /// Adapts to the number of messages that were found since the last wait.
    #[inline]
    pub(super) fn learn(&mut self, messages: u64) {
        self.learn_of(messages, 1, Self::ENOUGH);
    }

    /// Adapts to the number of bytes that were found since the last wait. A message takes `stride`
    /// bytes, and the ring has `capacity` bytes.
    #[inline]
    pub(super) fn learn_bytes(&mut self, bytes: u64, stride: u64, capacity: u64) {
        self.learn_of(bytes, stride, Self::ENOUGH.saturating_mul(stride).min(capacity / 4));
    }

    fn learn_of(&mut self, found: u64, one: u64, enough: u64) {
        self.pauses = match found {
            _ if found <= one => 0,
            _ if found < enough => Self::MOST.min(self.pauses + 1),
            _ => self.pauses.saturating_sub(1),
        };
    }

    /// Pauses, unless the slip is zero.
    #[inline]
    pub(super) fn pause(self) {
        for _ in 0..self.pauses {
            spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slip;

    fn learned(found: impl IntoIterator<Item = u64>) -> u32 {
        let mut slip = Slip::new();
        found.into_iter().for_each(|messages| slip.learn(messages));
        slip.pauses
    }

    #[test]
    fn grows_within_a_stream_up_to_the_maximum() {
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
    fn space_for_a_quarter_of_a_tiny_ring_is_enough() {
        let mut slip = Slip::new();
        slip.learn_bytes(2048, 1024, 4096);
        assert_eq!(slip.pauses, 0);
    }

    #[test]
    fn accepts_any_number_from_a_hostile_peer() {
        let mut slip = Slip::new();
        slip.learn_bytes(u64::MAX, u64::MAX, 4096);
        slip.learn_bytes(8, 0, 4096);
        slip.learn(u64::MAX);
    }
}
