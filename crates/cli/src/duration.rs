//! Durations and windows for people.

use std::time::Duration;

use estafette_measure::units;
use estafette_measure::window::Window;

/// Formats a duration in whole seconds: `1 min 20 s`.
pub(crate) fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// Formats the window of an instance: `100 ms after 50.0 ms`.
pub(crate) fn window(window: &Window) -> String {
    match window {
        Window::Time { warmup_ns, measure_ns } => {
            let [warmup, measure] = [*warmup_ns, *measure_ns].map(|ns| units::duration(ns as f64));
            format!("{measure} after {warmup}")
        }
        Window::Count { warmup, messages } => {
            format!("{} messages after {}", units::grouped(*messages), units::grouped(*warmup))
        }
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
