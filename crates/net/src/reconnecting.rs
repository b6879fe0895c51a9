//! The state of a connection that reconnects.

use std::time::{Duration, Instant};

use crate::Address;
use crate::reconnect::Reconnect;
use crate::transport::Options;

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
