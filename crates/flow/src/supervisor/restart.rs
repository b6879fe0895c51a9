//! The restart policy: when a failed instance is started again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::Restart;

/// The restarts of one instance.
#[derive(Debug)]
pub(super) struct Restarts {
    policy: Restart,
    /// The times of its restarts within the policy's window.
    recent: VecDeque<Instant>,
    /// The number of its restarts.
    total: u64,
}

impl Restarts {
    pub(super) fn new(policy: Restart) -> Restarts {
        Restarts { policy, recent: VecDeque::new(), total: 0 }
    }

    /// When to restart an instance that failed now. None if it has failed too often. The delay
    /// doubles with each restart within the window.
    pub(super) fn next(&mut self, now: Instant) -> Option<Instant> {
        while self.recent.front().is_some_and(|first| now.saturating_duration_since(*first) > self.policy.within) {
            self.recent.pop_front();
        }
        let so_far = self.recent.len() as u32;
        if so_far >= self.policy.max {
            return None;
        }
        let delay = self.policy.initial_delay.saturating_mul(2u32.saturating_pow(so_far)).min(self.policy.max_delay);
        self.recent.push_back(now);
        self.total += 1;
        Some(now + delay)
    }

    /// The number of restarts.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The delay of a restart, for a log message.
    pub(super) fn delay(at: Instant, now: Instant) -> Duration {
        at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(max: u32) -> Restart {
        let (within, initial_delay, max_delay) =
            (Duration::from_secs(10), Duration::from_millis(100), Duration::from_millis(300));
        Restart { max, within, initial_delay, max_delay, ..Restart::default() }
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let now = Instant::now();
        let mut restarts = Restarts::new(policy(4));
        let delays: Vec<_> = (0..4).map(|_| (restarts.next(now).unwrap() - now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 300, 300]);
        assert_eq!(restarts.next(now), None);
        assert_eq!(restarts.total(), 4);
    }

    #[test]
    fn old_restarts_do_not_count() {
        let now = Instant::now();
        let mut restarts = Restarts::new(policy(1));
        assert!(restarts.next(now).is_some());
        assert!(restarts.next(now + Duration::from_secs(5)).is_none());
        let later = now + Duration::from_secs(11);
        assert_eq!(restarts.next(later).map(|at| at - later), Some(Duration::from_millis(100)));
    }

    #[test]
    fn a_maximum_of_zero_allows_no_restart() {
        assert_eq!(Restarts::new(policy(0)).next(Instant::now()), None);
    }
}
