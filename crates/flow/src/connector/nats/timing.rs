//! How long the server may take, and how long to wait before another attempt.

use std::time::Duration;

/// How long the server may take to answer, also to acknowledge a message.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// The first and the longest delay between two attempts, of a connection or of what the server
/// refused.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often the server must answer. One that does not answer two times is lost.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The delay before another attempt. `attempts` have failed before the last one.
pub(super) fn delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(16);
    DELAYS.0.saturating_mul(2u32.saturating_pow(doublings)).min(DELAYS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays: Vec<_> = [0, 1, 2, 6, 1_000_000].into_iter().map(|attempts| delay(attempts).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 5000, 5000]);
    }
}
