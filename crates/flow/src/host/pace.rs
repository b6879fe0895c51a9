//! The batch size of an instance: as many messages as it processes within a target time.
//!
//! A batch is claimed as a whole. The function is not stopped or reloaded within it, no other
//! member of its queue gets a part of it, and `limits.call` applies to all of it. The size
//! therefore starts at one, doubles while calls are fast, and shrinks in proportion when a call was
//! slow.

use std::time::Duration;

/// The maximum number of messages in a batch.
const MAX_MESSAGES: usize = 4096;
/// The target time for a batch. A fast function reaches the limit on bytes long before.
const TARGET: Duration = Duration::from_millis(20);

/// The batch size of an instance.
#[derive(Debug)]
pub(super) struct Pace {
    messages: usize,
}

impl Pace {
    /// The batch size of a new instance.
    pub(super) fn new() -> Pace {
        Pace { messages: 1 }
    }

    /// The maximum number of messages in the next batch, at least one.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// Records how long a batch of `count` messages took.
    pub(super) fn note(&mut self, count: usize, took: Duration) {
        if took > TARGET {
            let fitting = count as u128 * TARGET.as_nanos() / took.as_nanos();
            self.messages = (fitting as usize).clamp(1, MAX_MESSAGES);
        } else if count >= self.messages && took <= TARGET / 2 {
            self.messages = (2 * self.messages).min(MAX_MESSAGES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_fast_function_grow_to_the_maximum() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.note(pace.messages(), Duration::from_micros(100));
        }
        assert_eq!(pace.messages(), MAX_MESSAGES);
        pace.note(3, Duration::from_micros(100));
        assert_eq!(pace.messages(), MAX_MESSAGES);
    }

    #[test]
    fn batches_of_a_slow_function_stay_near_the_target_time() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.note(pace.messages(), Duration::from_millis(3) * pace.messages() as u32);
        }
        assert!((2..=6).contains(&pace.messages()), "{pace:?}");
        pace.note(1, Duration::from_secs(9));
        assert_eq!(pace.messages(), 1);
    }
}
