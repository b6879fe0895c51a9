//! Parses the values of options.

use std::time::Duration;

use estafette_measure::case::Payload;
use estafette_measure::plan::MAX_ROUNDS;
use estafette_measure::units;

/// Parses a percentage such as `5%`. Returns a fraction.
pub(super) fn parse_percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(str::trim).ok_or("write a percentage, such as 5%")?;
    let percent = number.parse().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    percent.map(|percent: f64| percent / 100.0).ok_or_else(|| String::from("choose 0% to 1000%"))
}

/// A time that a run may take: at least a second.
pub(super) fn parse_budget(text: &str) -> Result<Duration, String> {
    match Duration::from_nanos(units::parse_duration_ns(text)?) {
        budget if budget < Duration::from_secs(1) => Err(format!("time `{text}`: give at least 1s")),
        budget => Ok(budget),
    }
}

pub(super) fn parse_size(text: &str) -> Result<Payload, String> {
    match text {
        "none" => Err(String::from("for messages without bytes, use --payload none")),
        "u64" => Err(String::from("for words, use --payload u64")),
        _ => text.parse(),
    }
}

pub(super) fn parse_producers(text: &str) -> Result<usize, String> {
    parse_count(text, estafette_measure::message::MAX_PRODUCERS)
}

pub(super) fn parse_capacity(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 24;
    let capacity = text.parse().ok().filter(|capacity| *capacity <= MOST);
    capacity.ok_or_else(|| format!("write a whole number from 0 to {MOST}"))
}

pub(super) fn parse_rounds(text: &str) -> Result<usize, String> {
    parse_count(text, MAX_ROUNDS)
}

pub(super) fn parse_round_trips(text: &str) -> Result<u64, String> {
    parse_count(text, 1_000_000_000).map(|count| count as u64)
}

/// Returns a seed below 2^53, because JSON numbers are exact up to there.
pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed < 1 << 53);
    seed.ok_or_else(|| format!("write a whole number from 0 to {}", (1u64 << 53) - 1))
}

fn parse_count(text: &str, most: usize) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("write a whole number from 1 to {most}"))?;
    if (1..=most).contains(&count) { Ok(count) } else { Err(format!("{count} is not in 1 to {most}")) }
}

pub(super) fn parse_window(text: &str) -> Result<u64, String> {
    parse_time(text, "1ms", "60s")
}

/// The length of the slices, if mechanisms take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slice {
    Off,
    Of(Duration),
}

pub(super) fn parse_slice(text: &str) -> Result<Slice, String> {
    match text {
        "off" => Ok(Slice::Off),
        _ => match parse_time(text, "1ms", "100ms") {
            Ok(ns) => Ok(Slice::Of(Duration::from_nanos(ns))),
            Err(error) => Err(format!("{error}, or off")),
        },
    }
}

pub(super) fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_time(text, "100ms", "10min").map(Duration::from_nanos)
}

/// A ping measures a number of round trips, so its timeout covers all of them. A day is enough for
/// the highest number.
pub(super) fn parse_ping_timeout(text: &str) -> Result<Duration, String> {
    parse_time(text, "100ms", "1440min").map(Duration::from_nanos)
}

/// Parses a duration between `least` and `most`. Returns nanoseconds.
fn parse_time(text: &str, least: &str, most: &str) -> Result<u64, String> {
    let ns = units::parse_duration_ns(text)?;
    let range = units::parse_duration_ns(least)?..=units::parse_duration_ns(most)?;
    if range.contains(&ns) { Ok(ns) } else { Err(format!("time `{text}`: choose {least} to {most}")) }
}
