//! Do records of one plan agree? What is decided one way in one of them must not be decided the
//! other way in another.
//!
//!     cargo run --release --example agree -- A.json B.json C.json
//!
//! Every two candidates of a cell that hand over data in the same way are compared, not only the
//! pairs of the tables. The exit status is 1 if two records contradict each other, and 2 if they
//! cannot be compared.

mod origin;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use estafette_measure::ranking::rank;
use estafette_measure::record::Record;
use estafette_measure::spec::{Spec, Standing};
use estafette_measure::stats::{Interval, Verdict};

/// A cell and two of its mechanisms.
type Pair = (String, String, String);
/// The comparison of the second with the first.
type Judged = (Verdict, Interval);

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether the records that are named agree.
fn run() -> Result<bool> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    ensure!(paths.len() > 1, "name two records or more");
    let mut pairs: BTreeMap<Pair, Vec<Judged>> = BTreeMap::new();
    let mut window = None;
    for path in &paths {
        let record = Record::load(Path::new(path)).with_context(|| format!("cannot read {path}"))?;
        let first = *window.get_or_insert(record.window);
        println!("{path}: {}", origin::of_record(&record));
        ensure!(first == record.window, "{path} has another window than {}", paths[0]);
        for (pair, judged) in verdicts(&record) {
            pairs.entry(pair).or_default().push(judged);
        }
    }
    let all_pairs = pairs.len();
    pairs.retain(|_, judged| judged.len() == paths.len());
    println!("{} pairs are not in all records", all_pairs - pairs.len());
    ensure!(!pairs.is_empty(), "no two mechanisms are in one cell in all of these records");
    let has = |judged: &[Judged], wanted: Verdict| judged.iter().any(|(verdict, _)| *verdict == wanted);
    let all = |judged: &[Judged], wanted: Verdict| judged.iter().all(|(verdict, _)| *verdict == wanted);
    let decided = |judged: &&Vec<Judged>| has(judged, Verdict::Faster) || has(judged, Verdict::Slower);
    let same = |judged: &&Vec<Judged>| all(judged, Verdict::Faster) || all(judged, Verdict::Slower);
    let reversed: Vec<_> =
        pairs.iter().filter(|(_, judged)| has(judged, Verdict::Faster) && has(judged, Verdict::Slower)).collect();
    println!(
        "{} pairs of mechanisms in {} records: {} decided in at least one, {} decided alike in all, {} reversed",
        pairs.len(),
        paths.len(),
        pairs.values().filter(decided).count(),
        pairs.values().filter(same).count(),
        reversed.len()
    );
    for ((cell, a, b), judged) in &reversed {
        let judged: Vec<_> =
            judged.iter().map(|(verdict, interval)| format!("{verdict} {}", times(interval))).collect();
        println!("  {cell}: {b} against {a}: {}", judged.join(", "));
    }
    Ok(reversed.is_empty())
}

/// Formats the ratio of the times, as in the tables.
fn times(interval: &Interval) -> String {
    format!("{:.2}× [{:.2}–{:.2}]", (-interval.estimate).exp(), (-interval.high).exp(), (-interval.low).exp())
}

/// The comparisons of every two candidates of a cell that hand over data in the same way.
fn verdicts(record: &Record) -> Vec<(Pair, Judged)> {
    let mut verdicts = Vec::new();
    for ranking in rank(record).iter().filter(|ranking| ranking.cell.pattern.is_ranked()) {
        let mut candidates: Vec<(usize, &Spec)> = ranking.rows.iter().map(|row| &row.spec).enumerate().collect();
        candidates.retain(|(_, spec)| spec.standing == Standing::Candidate);
        // By name, so that a pair has the same order in each record.
        candidates.sort_by_key(|(_, spec)| &spec.name);
        for (index, &(a, first)) in candidates.iter().enumerate() {
            let same_class = candidates[index + 1..].iter().filter(|(_, spec)| spec.ownership == first.ownership);
            for &(b, second) in same_class {
                let comparison = ranking.comparison(a, b);
                let Some(interval) = comparison.interval else { continue };
                let pair = (ranking.cell.to_string(), first.name.clone(), second.name.clone());
                verdicts.push((pair, (comparison.verdict, interval)));
            }
        }
    }
    verdicts
}
