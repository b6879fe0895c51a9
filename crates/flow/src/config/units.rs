//! Parsing and printing of sizes and times.

use std::time::Duration;

/// The units of sizes, largest first. Units of two letters are powers of ten.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// The units of times, in nanoseconds.
const TIMES: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];

/// Parses a whole number and a unit: `4KiB`. A number without a unit is in bytes. None if the text
/// is invalid or the size too large.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    let scale = if unit.is_empty() { 1 } else { scale(&SIZES, unit)? };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Parses a whole number and a unit: `100ms`. None if the text is invalid or the time too large.
pub(super) fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = split(text);
    number.parse::<u64>().ok()?.checked_mul(scale(&TIMES, unit)?).map(Duration::from_nanos)
}

/// Splits a text into its digits and the unit that follows.
fn split(text: &str) -> (&str, &str) {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

fn scale(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

/// Prints a size in the largest binary unit that is exact.
pub(super) fn size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(name, _)| name.len() != 2);
    let fits = |scale: u64| bytes >= scale && bytes.is_multiple_of(scale);
    let (unit, scale) = binary.copied().find(|(_, scale)| fits(*scale)).unwrap_or(("B", 1));
    format!("{}{unit}", bytes / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_parsed() {
        let read = [("4KiB", 4096), ("100", 100), ("64 kB", 64_000), ("1GiB", 1 << 30), ("0B", 0)];
        for (text, bytes) in read {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "-1", "1.5MiB", "1mb", "4K", "99999999999999999999", "99999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(parse_time("10 min"), Some(Duration::from_secs(600)));
        assert_eq!(parse_time("1500us"), Some(Duration::from_micros(1500)));
        for text in ["", "1", "s", "1h", "1.5s", "99999999999999999999s", "999999999999min"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!([size(4096), size(100), size(3 << 20), size(1_000_000)], ["4KiB", "100B", "3MiB", "1000000B"]);
    }
}
