//! Formats and parses sizes, times and rates.

/// Formats a size in bytes: `4096` → `4KiB`, `100` → `100B`.
pub fn size(bytes: usize) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// Parses a size in bytes: `4KiB` → `4096`. Units are `B`, `kB`, `MB`, `GB`, `KiB`, `MiB` and
/// `GiB`; a plain number is in bytes.
///
/// # Errors
/// When the text is not a size, with examples of the right form.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale: usize = match unit.trim_start() {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        fraction if fraction.starts_with('.') => {
            return Err(format!("size `{text}`: write a whole number (1500B, 4KiB)"));
        }
        _ => {
            return Err(format!(
                "size `{text}`: write a number and a unit, one of B, kB, MB, GB, KiB, MiB, GiB (4KiB, 100B)"
            ));
        }
    };
    if number.is_empty() {
        return Err(format!("size `{text}`: write a number, then a unit if it is not bytes (4096, 4KiB)"));
    }
    let number: usize = number.parse().map_err(|_| format!("size `{text}`: the number is too large"))?;
    number.checked_mul(scale).ok_or_else(|| format!("size `{text}`: the number is too large"))
}

/// Parses a duration such as `150ms`, `2s` or `50us` into nanoseconds.
///
/// # Errors
/// When the text is not a duration, with examples of the right form.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        fraction if fraction.starts_with('.') => return Err(format!("time `{text}`: write a whole number (1500us)")),
        _ => return Err(format!("time `{text}`: write a number and a unit, one of ns, us, ms, s, min (100ms)")),
    };
    let number: u64 = number.parse().map_err(|_| format!("time `{text}`: write a whole number (100ms)"))?;
    number.checked_mul(scale).ok_or_else(|| format!("time `{text}`: the number is too large"))
}

/// Formats nanoseconds with three significant digits and a suitable unit: `446 ns`, `12.3 us`,
/// `1.70 ms`.
pub fn duration(ns: f64) -> String {
    scaled(ns, 1_000.0, &["ns", "us", "ms", "s"])
}

/// Formats a rate with three significant digits: `12.3 M/s`.
pub fn rate(per_second: f64) -> String {
    scaled(per_second, 1_000.0, &["/s", "k/s", "M/s", "G/s"])
}

/// Formats a bandwidth with three significant digits: `10.4 GiB/s`.
pub fn bandwidth(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, 1_024.0, &["B/s", "KiB/s", "MiB/s", "GiB/s"])
}

/// Formats an amount of memory with three significant digits: `16.0 MiB`.
pub fn memory(bytes: f64) -> String {
    scaled(bytes, 1_024.0, &["B", "KiB", "MiB", "GiB"])
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return String::from("-");
    }
    let mut value = value;
    let mut unit = 0;
    // 999.5 would print as 1000 with three digits, so it belongs to the next unit.
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", three_digits(value), units[unit])
}

/// Formats a number with at least three digits: `1.23`, `12.3`, `123`, `1234`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude >= 99.95 => 0,
        magnitude if magnitude >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// Groups the digits of a number: `1234567` → `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for bytes in [1, 64, 100, 1000, 1024, 4096, 65_507, 1 << 20, 3 << 30] {
            assert_eq!(parse_size(&size(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn errors_of_bad_sizes_quote_the_text() {
        for bad in ["4kib", "KiB", "4 K", "1.5KiB", "-4", "18446744073709551615GiB"] {
            let error = parse_size(bad).unwrap_err();
            assert!(error.contains(bad), "{error}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration_ns("100ms"), Ok(100_000_000));
        assert!(parse_duration_ns("100").is_err());
        assert!(parse_duration_ns("ms").is_err());
        assert!(parse_duration_ns("99999999999999s").is_err());
    }

    #[test]
    fn three_digits_at_the_edges() {
        assert_eq!(duration(446.2), "446 ns");
        assert_eq!(duration(12_340.0), "12.3 us");
        assert_eq!(duration(999.7), "1.00 us");
        assert_eq!(duration(9.996), "10.0 ns");
        assert_eq!(rate(0.5), "0.50 /s");
        assert_eq!(bandwidth(1_073_741_824.0), "1.00 GiB/s");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
    }
}
