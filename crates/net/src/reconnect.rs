//! When a connection that was lost is made again.

use std::time::{Duration, Instant};

use crate::Address;
use crate::transport::Options;

/// That a connection is made again when it is lost, and how long is waited before: [`Options::reconnect`].
///
/// The delay is chosen by chance between nothing and a bound, which is the first delay after a loss, and grows with each try
/// that fails up to the longest: "full jitter", as Marc Brooker's "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015)
/// calls it, so that many who lose the same peer do not all come back at once. It is 1 ms at least.
///
/// ```
/// use std::time::Duration;
/// use estafette_net::{Options, Reconnect};
///
/// let plan = Reconnect::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).tries(100);
/// let options = Options::default().reconnect(plan);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconnect {
    /// As set by [`Reconnect::first`].
    pub first: Duration,
    /// As set by [`Reconnect::factor`].
    pub factor: u32,
    /// As set by [`Reconnect::most`].
    pub most: Duration,
    /// As set by [`Reconnect::tries`].
    pub tries: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect { first: Duration::from_millis(100), factor: 2, most: Duration::from_secs(30), tries: None }
    }
}

impl Reconnect {
    /// The longest delay before the first try: 100 ms.
    #[must_use]
    pub fn first(mut self, delay: Duration) -> Reconnect {
        self.first = delay;
        self
    }

    /// By how much the longest delay grows with each try that fails: 2.
    #[must_use]
    pub fn factor(mut self, factor: u32) -> Reconnect {
        self.factor = factor;
        self
    }

    /// What it grows to: 30 s.
    #[must_use]
    pub fn most(mut self, delay: Duration) -> Reconnect {
        self.most = delay;
        self
    }

    /// How many tries in a row may fail, before the connection is closed for good: any number, unless told otherwise.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Reconnect {
        self.tries = Some(tries);
        self
    }

    /// The longest delay after so many tries that failed.
    fn bound(&self, failed: u32) -> Duration {
        self.first.saturating_mul(self.factor.max(1).saturating_pow(failed)).min(self.most)
    }
}

/// What it takes to make a connection again.
pub(crate) struct Again {
    plan: Reconnect,
    pub(crate) address: Address,
    pub(crate) options: Options,
    /// How often it was tried again since it was there last.
    tried: u32,
    /// While nothing is tried: when it will be.
    pub(crate) due: Option<Instant>,
}

impl Again {
    /// Nothing, unless the options ask for it.
    pub(crate) fn new(address: &Address, options: &Options) -> Option<Again> {
        let plan = options.reconnect.clone()?;
        Some(Again { plan, address: address.clone(), options: options.clone(), tried: 0, due: None })
    }

    /// The connection is there.
    pub(crate) fn succeeded(&mut self) {
        self.tried = 0;
    }

    /// It was lost, or did not come about: how long to wait before the next try, unless there have been enough.
    pub(crate) fn next_delay(&mut self) -> Option<Duration> {
        if self.plan.tries.is_some_and(|tries| self.tried >= tries) {
            return None;
        }
        let bound = self.plan.bound(self.tried);
        self.tried = self.tried.saturating_add(1);
        // Where the system has no chance to offer, the longest delay is as good as any.
        let chance = getrandom::u64().map_or(1.0, |random| random as f64 / u64::MAX as f64);
        Some(bound.mul_f64(chance).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(plan: Reconnect) -> Again {
        Again::new(&"tcp://127.0.0.1:1".parse().unwrap(), &Options::default().reconnect(plan)).unwrap()
    }

    #[test]
    fn delays_grow_to_the_longest_and_no_further() {
        let plan = Reconnect::default().most(Duration::from_secs(1));
        let bounds: Vec<_> = (0..6).map(|failed| plan.bound(failed).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(plan.bound(u32::MAX), plan.most);
        assert_eq!(Reconnect::default().factor(0).bound(7), Duration::from_millis(100));
        assert_eq!(Reconnect::default().first(Duration::MAX).most(Duration::MAX).bound(1), Duration::MAX);
    }

    #[test]
    fn a_delay_lies_anywhere_below_its_bound() {
        let mut again = again(Reconnect::default().first(Duration::from_secs(1)).factor(1));
        let delays: Vec<_> = (0..1000).map(|_| again.next_delay().unwrap()).collect();
        assert!(delays.iter().all(|delay| (Duration::from_millis(1)..=Duration::from_secs(1)).contains(delay)));
        // That none of a thousand lies in a tenth happens once in 10^45 times.
        for tenth in 0..10 {
            let from = Duration::from_millis(tenth * 100);
            assert!(delays.iter().any(|delay| (from..from + Duration::from_millis(100)).contains(delay)), "{tenth}");
        }
    }

    #[test]
    fn tries_are_counted_from_the_last_success() {
        let mut again = again(Reconnect::default().tries(2));
        for _ in 0..3 {
            assert!(again.next_delay().is_some() && again.next_delay().is_some());
            assert_eq!(again.next_delay(), None);
            again.succeeded();
        }
        assert!(Again::new(&again.address, &Options::default()).is_none());
    }
}
