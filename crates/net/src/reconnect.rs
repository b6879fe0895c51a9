//! When a lost connection is opened again.

use std::time::{Duration, Instant};

use crate::Address;
use crate::transport::Options;

/// How a lost connection reconnects: [`Options::reconnect`].
///
/// Each delay is random between 0 and a bound, and at least 1 ms. The bound starts at `first` after
/// a loss, and each failed attempt multiplies it by `factor`, up to `most`. This is "full jitter"
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
    fn bound(&self, failed: u32) -> Duration {
        self.initial_delay.saturating_mul(self.factor.max(1).saturating_pow(failed)).min(self.max_delay)
    }
}

/// The state of a connection that reconnects.
pub(crate) struct ReconnectState {
    policy: Reconnect,
    pub(crate) address: Address,
    pub(crate) options: Options,
    /// Attempts since the connection was last open.
    attempts: u32,
    /// When the next attempt starts, while one is scheduled.
    pub(crate) next_attempt: Option<Instant>,
}

impl ReconnectState {
    /// Returns `None` unless the options ask to reconnect.
    pub(crate) fn new(address: &Address, options: &Options) -> Option<ReconnectState> {
        let policy = options.reconnect.clone()?;
        Some(ReconnectState {
            policy,
            address: address.clone(),
            options: options.clone(),
            attempts: 0,
            next_attempt: None,
        })
    }

    /// Resets the attempts: the connection is open.
    pub(crate) fn succeeded(&mut self) {
        self.attempts = 0;
    }

    /// Returns the delay before the next attempt, or `None` if the attempts are used up.
    pub(crate) fn next_delay(&mut self) -> Option<Duration> {
        if self.policy.max_attempts.is_some_and(|attempts| self.attempts >= attempts) {
            return None;
        }
        let bound = self.policy.bound(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        // Without random bytes from the system, use the whole bound.
        let chance = getrandom::u64().map_or(1.0, |random| random as f64 / u64::MAX as f64);
        Some(bound.mul_f64(chance).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(policy: Reconnect) -> ReconnectState {
        ReconnectState::new(&"tcp://127.0.0.1:1".parse().unwrap(), &Options::default().reconnect(policy)).unwrap()
    }

    #[test]
    fn the_bound_grows_up_to_its_maximum() {
        let policy = Reconnect::default().max_delay(Duration::from_secs(1));
        let bounds: Vec<_> = (0..6).map(|failed| policy.bound(failed).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(policy.bound(u32::MAX), policy.max_delay);
        assert_eq!(Reconnect::default().factor(0).bound(7), Duration::from_millis(100));
        assert_eq!(Reconnect::default().initial_delay(Duration::MAX).max_delay(Duration::MAX).bound(1), Duration::MAX);
    }

    #[test]
    fn delays_are_spread_over_the_whole_range() {
        let mut state = state(Reconnect::default().initial_delay(Duration::from_secs(1)).factor(1));
        let delays: Vec<_> = (0..1000).map(|_| state.next_delay().unwrap()).collect();
        assert!(delays.iter().all(|delay| (Duration::from_millis(1)..=Duration::from_secs(1)).contains(delay)));
        // The probability that none of a thousand delays lies in a given tenth is 10^-45.
        for tenth in 0..10 {
            let from = Duration::from_millis(tenth * 100);
            assert!(delays.iter().any(|delay| (from..from + Duration::from_millis(100)).contains(delay)), "{tenth}");
        }
    }

    #[test]
    fn attempts_are_counted_from_the_last_success() {
        let mut state = state(Reconnect::default().max_attempts(2));
        for _ in 0..3 {
            assert!(state.next_delay().is_some() && state.next_delay().is_some());
            assert_eq!(state.next_delay(), None);
            state.succeeded();
        }
        assert!(ReconnectState::new(&state.address, &Options::default()).is_none());
    }
}
