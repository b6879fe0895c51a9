//! The CSV table of a record: one row for each instance.

use std::io::Write;

use anyhow::Result;
use csv::Writer;

use crate::discarded::Discarded;
use crate::message::Faults;
use crate::plan::Entrant;
use crate::record::{Figures, InstanceRecord, Latency, Outcome, Record};

/// The columns. `metric_ns` is the value by which mechanisms are compared: see
/// [`Figures::metric_ns`].
const COLUMNS: [&str; 40] = [
    "round",
    "mechanism",
    "control",
    "scope",
    "pattern",
    "payload_bytes",
    "payload",
    "producers",
    "capacity",
    "runtime",
    "wait",
    "place",
    "load",
    "effective_capacity",
    "calls_per_message",
    "line_ns",
    "metric_ns",
    "messages",
    "window_ns",
    "per_second",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "cpu_ns_per_message",
    "sender_cpu_ns",
    "receiver_cpu_ns",
    "switches_per_message",
    "fairness",
    "encode_ns",
    "decode_ns",
    "encoded_bytes",
    "offered",
    "delivered",
    "lost",
    "duplicated",
    "reordered",
    "damaged",
    "steal",
    "discarded",
    "failed",
];

/// Writes the instances as a CSV table with one row for each, times in nanoseconds.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(record: &Record, out: impl Write) -> Result<()> {
    let mut table = Writer::from_writer(out);
    table.write_record(COLUMNS)?;
    for instance in &record.instances {
        let mut row = case_columns(&record.entrants[instance.entrant], instance);
        match &instance.outcome {
            Outcome::Failed { why, .. } => {
                row.resize(COLUMNS.len() - 1, String::new());
                row.push(why.clone());
            }
            Outcome::Measured(figures) => {
                row.extend(figure_columns(figures));
                row.push(String::new());
            }
        }
        table.write_record(row)?;
    }
    table.flush()?;
    Ok(())
}

/// The columns of a CSV row that describe the case and the instance's place in the run.
fn case_columns(entrant: &Entrant, instance: &InstanceRecord) -> Vec<String> {
    let Entrant { case, control, effective_capacity, calls } = entrant;
    vec![
        instance.round.to_string(),
        case.mechanism.clone(),
        control.to_string(),
        case.scope.to_string(),
        case.pattern.to_string(),
        case.payload.len().to_string(),
        case.payload.to_string(),
        case.producers.to_string(),
        case.capacity.to_string(),
        case.runtime.to_string(),
        case.wait.to_string(),
        case.place.to_string(),
        case.load.to_string(),
        effective_capacity.map_or(String::new(), |capacity| capacity.to_string()),
        optional(*calls),
        optional(instance.line_ns),
    ]
}

/// The columns of a CSV row with the figures of an instance.
fn figure_columns(figures: &Figures) -> [String; 23] {
    let time = |of: fn(&Latency) -> Option<u64>| {
        figures.latency.as_ref().and_then(of).map_or(String::new(), |ns| ns.to_string())
    };
    let Faults { lost, duplicated, reordered, damaged } = figures.faults;
    [
        // It is infinite without messages.
        optional(Some(figures.metric_ns()).filter(|ns| ns.is_finite())),
        figures.messages.to_string(),
        figures.window_ns.to_string(),
        figures.per_second().to_string(),
        time(|latency| Some(latency.p50_ns)),
        time(|latency| latency.p99_ns),
        time(|latency| latency.p999_ns),
        optional(figures.cpu_ns_per_message),
        optional(figures.sender_cpu_ns),
        optional(figures.receiver_cpu_ns),
        optional(figures.switches_per_message),
        optional(figures.fairness),
        optional(figures.of_pattern.codec().map(|codec| codec.encode_ns)),
        optional(figures.of_pattern.codec().map(|codec| codec.decode_ns)),
        optional(figures.of_pattern.codec().map(|codec| codec.encoded_bytes)),
        figures.offered.to_string(),
        figures.delivered.to_string(),
        lost.to_string(),
        duplicated.to_string(),
        reordered.to_string(),
        damaged.to_string(),
        figures.steal.to_string(),
        figures.discarded.as_ref().map(Discarded::to_string).unwrap_or_default(),
    ]
}

/// A number as a CSV field. Empty if there is none.
fn optional(number: Option<f64>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}
