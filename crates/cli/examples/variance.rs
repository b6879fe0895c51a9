//! Where does the noise of a record come from? Splits the variance of the comparisons of each cell
//! by level.
//!
//!     cargo run --release --example variance -- estafette-results/RECORD.json
//!
//! A round gives one ln ratio for two mechanisms: the median over the laps in which both had a
//! slice. It scatters between rounds for two reasons: the slices scatter (more or longer slices
//! would help), and fresh processes differ from each other in memory layout, placement and
//! connections (only more rounds help). The first part is estimated from the two halves of the
//! laps, odd and even: the variance of the difference between their medians, divided by four. The
//! second is the rest. Both are printed as standard deviations, the median over the pairs of the
//! cell's first mechanism with each other one.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use estafette_measure::case::Cell;
use estafette_measure::core_distance::Comparable;
use estafette_measure::record::{Figures, Outcome, Record};
use estafette_measure::stats::{log_ratio_sd, median};

fn main() -> ExitCode {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    match path
        .context("name a record: variance RECORD.json")
        .and_then(|path| split(&Comparable::of(&Record::load(&path)?).record))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("variance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn split(record: &Record) -> Result<()> {
    let mut cells: Vec<&Cell> = record.entrants.iter().map(|entrant| &entrant.case.cell).collect();
    cells.dedup();
    println!("   slices  instances  pairs");
    for cell in cells {
        let entrants: Vec<usize> =
            (0..record.entrants.len()).filter(|&at| record.entrants[at].case.cell == *cell).collect();
        let pairs = entrants[1..].iter().filter_map(|&other| levels(record, entrants[0], other));
        let (within, between): (Vec<f64>, Vec<f64>) = pairs.unzip();
        if let Some((slices, instances)) = median(&within).zip(median(&between)) {
            println!("{:7.2} % {:8.2} %  {:5}  {cell}", percent(slices), percent(instances), within.len());
        }
    }
    Ok(())
}

/// The standard deviations of a pair's rounds that come from slices and from instances. `None` with
/// fewer than six rounds in slices.
fn levels(record: &Record, a: usize, b: usize) -> Option<(f64, f64)> {
    let (a, b) = (by_heat(record, a), by_heat(record, b));
    let rounds = a.iter().filter_map(|(heat, a)| Some(lap_ratios(a, b.get(heat)?)));
    let rounds: Vec<Vec<f64>> = rounds.filter(|laps| laps.len() >= 8).collect();
    if rounds.len() < 6 {
        return None;
    }
    let half = |laps: &Vec<f64>, odd: usize| median(&laps.iter().copied().skip(odd).step_by(2).collect::<Vec<_>>());
    let differences: Vec<f64> = rounds.iter().filter_map(|laps| Some(half(laps, 0)? - half(laps, 1)?)).collect();
    let within = differences.iter().map(|difference| difference.powi(2)).sum::<f64>() / differences.len() as f64 / 4.0;
    let whole: Vec<f64> = rounds.iter().filter_map(|laps| median(laps)).collect();
    let between = (log_ratio_sd(&whole)?.powi(2) - within).max(0.0);
    Some((within.sqrt(), between.sqrt()))
}

/// The valid instances of an entrant, by their heat.
fn by_heat(record: &Record, entrant: usize) -> BTreeMap<usize, &Figures> {
    let of_entrant = record.instances.iter().filter(|instance| instance.entrant == entrant);
    let valid = of_entrant.filter_map(|instance| match &instance.outcome {
        Outcome::Measured(figures) if figures.discarded.is_none() => Some((instance.heat?, figures.as_ref())),
        _ => None,
    });
    valid.collect()
}

/// The ln ratios of two instances in the laps that both have.
fn lap_ratios(a: &Figures, b: &Figures) -> Vec<f64> {
    let laps: BTreeMap<u64, f64> = b.slices.iter().map(|slice| (slice.lap, slice.ns)).collect();
    a.slices.iter().filter_map(|slice| Some((slice.ns / laps.get(&slice.lap)?).ln())).collect()
}

fn percent(ln: f64) -> f64 {
    ln.exp_m1() * 100.0
}
