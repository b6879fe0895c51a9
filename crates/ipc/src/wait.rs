//! How an end waits: it spins, sleeps, or spins for a while and then sleeps.

use std::time::Duration;

#[cfg(not(loom))]
use crate::spin::spin_for;
use crate::sync::Doorbell;
#[cfg(not(loom))]
use crate::sync::spin_loop;

/// How an end of a channel waits for the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// Spins. Lowest latency; each waiting end uses a whole core.
    Spin,
    /// Spins for as long as a wake-up costs, then sleeps. It costs at most twice as much as the
    /// better of the two choices, and nothing while idle.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Block,
}

#[cfg(not(loom))]
impl WaitMode {
    /// Spins until something is ready. Returns false if it is time to sleep.
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

/// Announces this end as a sleeper by `announce`, then sleeps on a bell unless `is_ready` returns
/// true.
///
/// The order is: ticket, announcement, then `is_ready`. A peer that makes `is_ready` true and then
/// sees the announcement rings after the ticket was read, so this end does not sleep.
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
    fn a_blocking_end_does_not_spin() {
        assert!(!WaitMode::Block.spin(|| unreachable!()));
    }

    #[test]
    fn a_spinning_end_spins_until_it_is_ready() {
        let mut polls = 0;
        assert!(WaitMode::Spin.spin(|| {
            polls += 1;
            polls == 100
        }));
    }
}
