//! Durations for people.

use std::time::Duration;

/// Formats a duration in whole seconds: `1 min 20 s`.
pub(crate) fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_minutes() {
        assert_eq!([59, 60, 80].map(|time| in_words(Duration::from_secs(time))), ["59 s", "1 min 0 s", "1 min 20 s"]);
    }
}
