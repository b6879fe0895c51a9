//! How many messages an instance takes at once: as many as it works off in a moment.
//!
//! A batch is claimed as a whole: the function is not stopped or reloaded within it, no other member of its queue gets any
//! of it, and `limits.call` holds for all of it. So the number starts at one, doubles while calls are quick, and falls in
//! proportion when one was slow.

use std::time::Duration;

/// The most messages of one batch.
const MAX_MESSAGES: usize = 4096;
/// How long a batch is to take at most. A quick function meets the limit on bytes long before.
const TARGET: Duration = Duration::from_millis(20);

/// The number of messages that an instance may take next.
#[derive(Debug)]
pub(super) struct Pace {
    messages: usize,
}

impl Pace {
    /// That of an instance of which nothing is known.
    pub(super) fn new() -> Pace {
        Pace { messages: 1 }
    }

    /// The most messages of the next batch: one at least.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// Notes how long a batch of `count` messages took.
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
    fn batches_of_a_quick_function_grow_to_the_most() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.note(pace.messages(), Duration::from_micros(100));
        }
        assert_eq!(pace.messages(), MAX_MESSAGES);
        pace.note(3, Duration::from_micros(100));
        assert_eq!(pace.messages(), MAX_MESSAGES);
    }

    #[test]
    fn batches_of_a_slow_function_take_a_moment() {
        let mut pace = Pace::new();
        for _ in 0..20 {
            pace.note(pace.messages(), Duration::from_millis(3) * pace.messages() as u32);
        }
        assert!((2..=6).contains(&pace.messages()), "{pace:?}");
        pace.note(1, Duration::from_secs(9));
        assert_eq!(pace.messages(), 1);
    }
}
