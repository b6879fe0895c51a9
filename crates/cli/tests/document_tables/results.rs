//! The results of the records that documents name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use estafette_measure::ranking::{Ranking, Row, rank};
use estafette_measure::record::Record;

/// The folder of the documents.
pub(crate) fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The records that were read, by their path relative to the folder of the documents.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<String, Vec<Ranking>>);

impl Results {
    pub(crate) fn of(&mut self, record: &str) -> &[Ranking] {
        self.0.entry(record.to_owned()).or_insert_with(|| {
            let path = docs().join(record);
            rank(&Record::load(&path).unwrap_or_else(|error| panic!("{}: {error:#}", path.display())))
        })
    }
}

/// The ranking of the cell with this heading.
pub(crate) fn ranking<'a>(rankings: &'a [Ranking], heading: &str) -> Option<&'a Ranking> {
    rankings.iter().find(|ranking| ranking.cell.to_string() == heading)
}

/// A quantity of a row: a time in nanoseconds, or a number. `None` if the row does not have it.
///
/// # Panics
/// If there is no such quantity.
pub(crate) fn quantity(row: &Row, name: &str) -> Option<f64> {
    let result = row.result.as_ref()?;
    match name {
        "time" => Some(result.metric_ns),
        "p50" => result.p50_ns,
        "p99" => result.p99_ns,
        "p99.9" => result.p999_ns,
        "cpu" => result.cpu_ns,
        "lost" => Some(result.lost * 100.0),
        "calls" => row.calls,
        "fairness" => result.fairness,
        "dropped receives" => result.of_pattern.dropped().map(|[dropped, _]| dropped as f64),
        "messages lost by them" => result.of_pattern.dropped().map(|[_, lost]| lost as f64),
        other => panic!("unknown figure {other}"),
    }
}

/// Whether a quantity is a time in nanoseconds.
pub(crate) fn is_time(name: &str) -> bool {
    matches!(name, "time" | "p50" | "p99" | "p99.9" | "cpu")
}

/// The number of nanoseconds of a unit of time.
///
/// # Panics
/// If it is none.
pub(crate) fn unit_ns(unit: &str) -> f64 {
    match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        other => panic!("unknown unit {other}"),
    }
}
