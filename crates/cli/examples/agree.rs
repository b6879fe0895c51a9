//! Whether records of one plan agree: what is decided one way in one of them must not be decided the other way in another.
//!
//! `cargo run --release --example agree -- A.json B.json C.json`
//!
//! Every two candidates of a cell are held against each other, not only those that a table holds against its best. The
//! exit status is 1 where two records contradict each other, and 2 where they cannot be compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use estafette_measure::ranking::{log_ratios, rank};
use estafette_measure::record::Record;
use estafette_measure::spec::Standing;
use estafette_measure::stats::{CONFIDENCE, Interval, Margins, Verdict, median_interval, verdict};

/// A cell and two of its mechanisms.
type Pair = (String, String, String);
/// What a record says of the second beside the first.
type Said = (Verdict, Interval);

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
    let mut pairs: BTreeMap<Pair, Vec<Said>> = BTreeMap::new();
    let mut window = None;
    for path in &paths {
        let record = Record::load(Path::new(path)).with_context(|| format!("cannot read {path}"))?;
        let first = *window.get_or_insert(record.window);
        ensure!(first == record.window, "{path} was measured over another window than {}", paths[0]);
        for (pair, said) in verdicts(&record) {
            pairs.entry(pair).or_default().push(said);
        }
    }
    let all_pairs = pairs.len();
    pairs.retain(|_, said| said.len() == paths.len());
    println!("{} pairs are not in all records", all_pairs - pairs.len());
    ensure!(!pairs.is_empty(), "no two mechanisms stand in one cell in all of these records");
    let has = |said: &[Said], wanted: Verdict| said.iter().any(|(verdict, _)| *verdict == wanted);
    let all = |said: &[Said], wanted: Verdict| said.iter().all(|(verdict, _)| *verdict == wanted);
    let decided = |said: &&Vec<Said>| has(said, Verdict::Faster) || has(said, Verdict::Slower);
    let same = |said: &&Vec<Said>| all(said, Verdict::Faster) || all(said, Verdict::Slower);
    let reversed: Vec<_> =
        pairs.iter().filter(|(_, said)| has(said, Verdict::Faster) && has(said, Verdict::Slower)).collect();
    println!(
        "{} pairs of mechanisms in {} records: {} decided in at least one, {} in all of them and alike, {} reversed",
        pairs.len(),
        paths.len(),
        pairs.values().filter(decided).count(),
        pairs.values().filter(same).count(),
        reversed.len()
    );
    for ((cell, a, b), said) in &reversed {
        let said: Vec<_> = said.iter().map(|(verdict, interval)| format!("{verdict} {}", times(interval))).collect();
        println!("  {cell}: {b} beside {a}: {}", said.join(", "));
    }
    Ok(reversed.is_empty())
}

/// How much time it takes beside the other, as in the tables.
fn times(interval: &Interval) -> String {
    format!("{:.2}× [{:.2}–{:.2}]", (-interval.estimate).exp(), (-interval.high).exp(), (-interval.low).exp())
}

/// What a record says of every two candidates that are compared in it.
fn verdicts(record: &Record) -> Vec<(Pair, Said)> {
    let mut verdicts = Vec::new();
    for ranking in rank(record).iter().filter(|ranking| ranking.cell.pattern.is_ranked()) {
        let candidate = |at: usize| {
            let entrant = &record.entrants[at];
            let spec = record.spec(&entrant.case.mechanism)?;
            let stands = spec.standing == Standing::Candidate && !entrant.control && entrant.case.cell == ranking.cell;
            stands.then_some((at, spec))
        };
        let candidates: Vec<_> = (0..record.entrants.len()).filter_map(candidate).collect();
        for (place, &(a, first)) in candidates.iter().enumerate() {
            let like = candidates[place + 1..].iter().filter(|(_, spec)| spec.ownership == first.ownership);
            for &(b, second) in like {
                let Some(interval) = median_interval(&log_ratios(record, a, b), CONFIDENCE) else { continue };
                let said = verdict(Some(&interval), ranking.floor, Margins::default());
                let pair = (ranking.cell.to_string(), first.name.clone(), second.name.clone());
                verdicts.push((pair, (said, interval)));
            }
        }
    }
    verdicts
}
