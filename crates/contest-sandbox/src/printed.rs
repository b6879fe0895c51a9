//! Parses the output of a pipeline's functions.

use std::time::Duration;

/// The line that a receiver prints at the last message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Last {
    /// The number of messages that it has received.
    pub(super) count: u64,
    /// The time from its first message to the last one.
    pub(super) time: Duration,
}

/// Parses the line of the last message: `Processed 1001 messages in 12.345 ms`.
pub(super) fn last(line: &str) -> Option<Last> {
    let (count, ms) = line.strip_prefix("Processed ")?.strip_suffix(" ms")?.split_once(" messages in ")?;
    let time = Duration::try_from_secs_f64(ms.parse::<f64>().ok()? / 1e3).ok()?;
    Some(Last { count: count.parse().ok()?, time })
}

/// Returns whether a line reports a damaged message.
pub(super) fn is_damaged(line: &str) -> bool {
    line.starts_with("Message ") && line.ends_with(" has a wrong checksum")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_count_and_the_time() {
        let read = last("Processed 1001 messages in 12.345 ms");
        assert_eq!(read, Some(Last { count: 1001, time: Duration::from_micros(12_345) }));
        assert_eq!(last("Processed 100000 messages"), None);
        assert_eq!(last("Processed 1 messages in -1 ms"), None);
        assert_eq!(last("Sent 1001 messages in 12 ms"), None);
    }

    #[test]
    fn recognises_a_wrong_checksum() {
        assert!(is_damaged("Message 17 has a wrong checksum"));
        assert!(!is_damaged("Message size 1000 speed 3 MiB/s"));
    }
}
