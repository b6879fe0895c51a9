//! How an end waits: by looking again and again, by sleeping, or first the one and then the other.

use std::time::Duration;

#[cfg(not(loom))]
use crate::spin::spin_for;
use crate::sync::Doorbell;
#[cfg(not(loom))]
use crate::sync::spin_loop;

/// How an end waits for the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// By looking again and again. Lowest latency; each waiting end takes a whole core.
    Spin,
    /// By looking for as long as a wake-up costs, then by sleeping. At most twice the cost of the
    /// better choice, whatever comes; idle it costs nothing.
    #[default]
    Adaptive,
    /// By sleeping at once.
    Block,
}

#[cfg(not(loom))]
impl WaitMode {
    /// Looks until something is ready. False if it is time to sleep.
    #[inline]
    pub(crate) fn spin(self, mut is_ready: impl FnMut() -> bool) -> bool {
        match self {
            Self::Spin => {
                while !is_ready() {
                    spin_loop();
                }
                true
            }
            Self::Adaptive => spin_for(crate::spin::time(), is_ready),
            Self::Block => false,
        }
    }
}

/// Sleeps on a bell unless there is a reason not to, once `announce` has marked this end as a sleeper.
///
/// The ticket comes first, then the announcement, then the last look: who changes what `is_ready`
/// looks at, and then sees the announcement, rings after the ticket was taken.
pub(crate) fn sleep(
    bell: &Doorbell,
    timeout: Option<Duration>,
    announce: impl FnOnce(),
    is_ready: impl FnOnce() -> bool,
) {
    let ticket = bell.ticket();
    announce();
    if !is_ready() {
        bell.wait(ticket, timeout);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::WaitMode;
    use crate::spin;

    #[test]
    fn an_adaptive_end_spins_for_a_bounded_time() {
        let time = spin::time();
        assert!(time.is_zero() || (spin::LEAST..=spin::MOST).contains(&time), "{time:?}");
        assert!(!WaitMode::Adaptive.spin(|| false));
        assert!(WaitMode::Adaptive.spin(|| true) || time.is_zero());
    }

    #[test]
    fn a_blocking_end_does_not_look() {
        assert!(!WaitMode::Block.spin(|| unreachable!()));
    }

    #[test]
    fn a_spinning_end_looks_until_it_is_ready() {
        let mut looks = 0;
        assert!(WaitMode::Spin.spin(|| {
            looks += 1;
            looks == 100
        }));
    }
}
