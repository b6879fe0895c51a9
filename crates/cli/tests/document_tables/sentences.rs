//! Figures in sentences that come from committed records.
//!
//! A section of a document can begin with comments that say where the figures in its sentences come
//! from:
//!
//! ```text
//! <!-- figures of results/ipc-quick.json.gz
//! takes 4.2 us | time in us | process/pipe | process · ping-pong · 64B · block · same-core
//! 30 to 40 us | range of time in us | process/{pipe,tcp} | process · ping-pong · 64B · block · other-core
//! 1.7 times | ratio of time | process/shm-mutex / process/pipe | process · stream · 4KiB · block · other-core
//! 0.4 us more | difference of time in us | network/tcp-estafette / network/tcp | network · same-thread · 1B · same-core
//! 52 of 221 | printed
//! -->
//! ```
//!
//! The first field is a part of the section. Its numbers are those of the other fields, in their
//! order: of one or several mechanisms (`*` for all), in one or several cells. `a{b,c}` is `ab` and
//! `ac`. A `range` has the smallest and the largest. The quantities are those of tables, and `rate
//! in M/s` or `GiB/s`. `printed` text stands in the file that `report` printed of the record; for a
//! file without a record, give its name.

use std::fs;

use estafette_measure::ranking::Ranking;

use super::results::{Results, docs, is_time, quantity, ranking, unit_ns};

pub(crate) const OPENING: &str = "<!-- figures of ";

/// The places where a document does not say what its records say.
pub(crate) fn differences(document: &str, text: &str, results: &mut Results) -> Vec<String> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(OPENING) {
        let (comment, rest) = text[start + OPENING.len()..].split_once("-->\n").expect("the comment ends");
        let (source, lines) = comment.split_once('\n').expect("a first line");
        let section = in_one_line(&without_comments(section(rest)));
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (text, figure) = Figure::parse(line);
            let count = occurrences(&section, &in_one_line(text));
            if count != 1 {
                found.push(format!("{document}: the section says `{text}` {count} times, not once"));
            } else if let Err(why) = check(text, &figure, source.trim(), results) {
                found.push(format!("{document}: `{text}`: {why}"));
            }
        }
    }
    found
}

/// The text up to the next heading.
fn section(text: &str) -> &str {
    text.find("\n#").map_or(text, |end| &text[..end])
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("-->").map_or("", |(_, rest)| rest))
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How often a text stands in another, not as a part of a longer number.
fn occurrences(text: &str, part: &str) -> usize {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let is_whole = |(at, _): &(usize, &str)| {
        let (before, after) = (&text[..*at], &text[at + part.len()..]);
        let is_continued = |after: &str| part.ends_with(is_number) && after.starts_with(|c: char| c.is_ascii_digit());
        // A full stop or comma behind a number may end a sentence.
        let continues_number = part.starts_with(is_number) && before.ends_with(is_number);
        !continues_number && !is_continued(after.trim_start_matches(['.', ',']))
    };
    text.match_indices(part).filter(is_whole).count()
}

/// Where the numbers of a text come from.
enum Figure<'a> {
    Printed,
    Results { quantity: &'a str, mechanisms: &'a str, cells: &'a str },
}

impl Figure<'_> {
    /// The text of a line, and its figure. The text may be a row of a table.
    fn parse(line: &str) -> (&str, Figure<'_>) {
        let fields: Vec<&str> = line.rsplitn(4, " | ").map(str::trim).collect();
        match *fields {
            [cells, mechanisms, quantity, text] if cells != "printed" => {
                (text, Figure::Results { quantity, mechanisms, cells })
            }
            ["printed", ..] => (line.trim_end().trim_end_matches("| printed").trim(), Figure::Printed),
            _ => panic!("a line has 2 or 4 fields: {line}"),
        }
    }
}

fn check(text: &str, figure: &Figure<'_>, source: &str, results: &mut Results) -> Result<(), String> {
    match figure {
        Figure::Printed => check_printed(text, source),
        Figure::Results { quantity, mechanisms, cells } => {
            check_unit(text, quantity)?;
            let values = values(results.of(source), quantity, mechanisms, cells)?;
            check_numbers(text, &values)
        }
    }
}

fn check_printed(text: &str, source: &str) -> Result<(), String> {
    let path = docs().join(source.replace(".json.gz", ".txt"));
    let printed = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    // The examples print numbers without commas.
    let plain = |text: &str| in_one_line(text).replace(',', "");
    let is_printed = occurrences(&plain(&printed), &plain(text)) > 0;
    if is_printed { Ok(()) } else { Err(format!("{} does not say this", path.display())) }
}

/// Checks that a text with a unit of time has that of the quantity.
fn check_unit(text: &str, quantity: &str) -> Result<(), String> {
    let unit = text.split(|c: char| !c.is_alphabetic()).find(|word| ["ns", "us", "ms"].contains(word));
    match unit {
        Some(unit) if !quantity.ends_with(&format!(" in {unit}")) => Err(format!("{quantity} is not in {unit}")),
        _ => Ok(()),
    }
}

/// The values of a line: of each mechanism in each cell, or their range.
fn values(rankings: &[Ranking], what: &str, mechanisms: &str, cells: &str) -> Result<Vec<f64>, String> {
    let (is_range, what) = what.strip_prefix("range of ").map_or((false, what), |what| (true, what));
    let mut values = Vec::new();
    for cell in expanded(cells) {
        let ranking = ranking(rankings, &cell).ok_or_else(|| format!("no cell `{cell}`"))?;
        if mechanisms == "*" {
            let names = ranking.rows.iter().map(|row| &row.spec.name);
            values.extend(names.filter_map(|name| value(ranking, what, name).ok()));
            continue;
        }
        for mechanism in expanded(mechanisms) {
            values.push(value(ranking, what, &mechanism)?);
        }
    }
    if is_range && !values.is_empty() {
        values.sort_by(f64::total_cmp);
        values = vec![values[0], values[values.len() - 1]];
    }
    Ok(values)
}

/// `a{b,c}d` as `abd` and `acd`.
fn expanded(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else { return vec![text.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or_else(|| panic!("no `}}` in `{text}`"));
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

/// The value of one mechanism, or of `A / B`, in the unit of `what`.
fn value(ranking: &Ranking, what: &str, mechanism: &str) -> Result<f64, String> {
    let of = |mechanism: &str, name: &str| {
        let row = ranking.rows.iter().find(|row| row.spec.name == mechanism);
        row.and_then(|row| quantity(row, name)).ok_or_else(|| format!("{mechanism} has no {name} in {}", ranking.cell))
    };
    if let Some(name) = what.strip_prefix("ratio of ") {
        let (name, scale) = name.strip_suffix(" in %").map_or((name, 1.0), |name| (name, 100.0));
        let (a, b) = mechanism.split_once(" / ").ok_or("a ratio has two mechanisms, `A / B`")?;
        return Ok(scale * of(a, name)? / of(b, name)?);
    }
    if let Some(what) = what.strip_prefix("difference of ") {
        let (a, b) = mechanism.split_once(" / ").ok_or("a difference has two mechanisms, `A / B`")?;
        return Ok(value(ranking, what, a)? - value(ranking, what, b)?);
    }
    match what.split_once(" in ") {
        Some(("rate", "M/s")) => Ok(1e3 / of(mechanism, "time")?),
        Some(("rate", "GiB/s")) => {
            Ok(ranking.cell.payload.len() as f64 * 1e9 / of(mechanism, "time")? / f64::from(1 << 30))
        }
        Some((name, unit)) => Ok(of(mechanism, name)? / unit_ns(unit)),
        None if is_time(what) => Err(format!("{what} has a unit: `{what} in us`")),
        None => of(mechanism, what),
    }
}

/// Checks the numbers of a text, each as exactly as it is written.
fn check_numbers(text: &str, values: &[f64]) -> Result<(), String> {
    let numbers = numbers(text);
    let are_equal = numbers.len() == values.len()
        && numbers.iter().zip(values).all(|(number, value)| (number.value - value).abs() <= number.step / 2.0 + 1e-9);
    let shown: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
    if are_equal { Ok(()) } else { Err(format!("the record has {}", shown.join(" and "))) }
}

/// A number in a text.
#[derive(Debug, PartialEq)]
struct Number {
    value: f64,
    /// What the last written digit counts. Zeros at the end of an integer of several digits may
    /// come from rounding to two digits.
    step: f64,
}

/// The numbers of a text: `0.25`, `1,200`, `40`.
fn numbers(text: &str) -> Vec<Number> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', ',']));
    words.filter(|word| !word.is_empty()).map(|word| number(&word.replace(',', ""))).collect()
}

fn number(digits: &str) -> Number {
    let value: f64 = digits.parse().unwrap_or_else(|error| panic!("`{digits}`: {error}"));
    let step = match digits.split_once('.') {
        Some((_, decimals)) => 0.1_f64.powi(decimals.len() as i32),
        None => {
            let zeros = digits.len() - digits.trim_end_matches('0').len();
            10_f64.powi(zeros.min(digits.len().saturating_sub(2)) as i32)
        }
    };
    Number { value, step }
}

#[test]
fn a_part_of_a_longer_number_is_another_number() {
    let counts = ["10 of 411", "0 of 4110", "0 of 411.", "0 of 411, and", "0 of 411.5", "(0 of 411)"]
        .map(|text| occurrences(text, "0 of 411"));
    assert_eq!(counts, [0, 0, 1, 1, 0, 1]);
}

#[test]
fn a_unit_is_that_of_the_quantity() {
    check_unit("takes 2.6 ms.", "range of time in ms").unwrap();
    check_unit("1.7 times", "ratio of time").unwrap();
    assert_eq!(check_unit("2.6 us", "time in ms"), Err(String::from("time in ms is not in us")));
}

#[test]
fn numbers_are_as_exact_as_they_are_written() {
    let shown: Vec<(f64, f64)> =
        numbers("0.25, 1,200 to 40 and 100; 128").iter().map(|n| (n.value, (n.step * 100.0).round() / 100.0)).collect();
    assert_eq!(shown, [(0.25, 0.01), (1200.0, 100.0), (40.0, 1.0), (100.0, 10.0), (128.0, 1.0)]);
    check_numbers("48 to 63 us", &[47.6, 63.4]).unwrap();
    assert_eq!(check_numbers("48 us", &[48.6]), Err(String::from("the record has 48.6000")));
    assert!(check_numbers("48 us", &[48.0, 48.0]).is_err());
}
