//! When a lost connection is opened again.

use std::time::Duration;

#[cfg(doc)]
use crate::transport::Options;

/// How a lost connection reconnects: [`Options::reconnect`].
///
/// Each delay is random between 0 and a bound, and at least 1 ms. The bound starts at
/// [`Reconnect::initial_delay`] after a loss, and each failed attempt multiplies it by
/// [`Reconnect::factor`], up to [`Reconnect::max_delay`]. This is "full jitter"
/// in Marc Brooker's "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): clients that
/// lose the same peer do not all return at once.
///
/// ```
/// use std::time::Duration;
/// use estafette_net::{Options, Reconnect};
///
/// let plan = Reconnect::default().initial_delay(Duration::from_millis(50)).max_delay(Duration::from_secs(5)).max_attempts(100);
/// let options = Options::default().reconnect(plan);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconnect {
    /// As set by [`Reconnect::initial_delay`].
    pub initial_delay: Duration,
    /// As set by [`Reconnect::factor`].
    pub factor: u32,
    /// As set by [`Reconnect::max_delay`].
    pub max_delay: Duration,
    /// As set by [`Reconnect::max_attempts`].
    pub max_attempts: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect {
            initial_delay: Duration::from_millis(100),
            factor: 2,
            max_delay: Duration::from_secs(30),
            max_attempts: None,
        }
    }
}

impl Reconnect {
    /// Sets the bound of the first delay. Default: 100 ms.
    #[must_use]
    pub fn initial_delay(mut self, delay: Duration) -> Reconnect {
        self.initial_delay = delay;
        self
    }

    /// Sets the factor by which the bound grows with each failed attempt. Default: 2.
    #[must_use]
    pub fn factor(mut self, factor: u32) -> Reconnect {
        self.factor = factor;
        self
    }

    /// Sets the maximum of the bound. Default: 30 s.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Reconnect {
        self.max_delay = delay;
        self
    }

    /// Sets how many attempts in a row may fail before the connection is closed for good. Default:
    /// no limit.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Reconnect {
        self.max_attempts = Some(attempts);
        self
    }

    /// The bound of the delay after `failed` failed attempts.
    pub(crate) fn bound(&self, failed: u32) -> Duration {
        self.initial_delay.saturating_mul(self.factor.max(1).saturating_pow(failed)).min(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_up_to_its_maximum() {
        let policy = Reconnect::default().max_delay(Duration::from_secs(1));
        let bounds: Vec<_> = (0..6).map(|failed| policy.bound(failed).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(policy.bound(u32::MAX), policy.max_delay);
        assert_eq!(Reconnect::default().factor(0).bound(7), Duration::from_millis(100));
        assert_eq!(Reconnect::default().initial_delay(Duration::MAX).max_delay(Duration::MAX).bound(1), Duration::MAX);
    }
}
