//! The error rates of `gate --rerun`, from real rounds.
//!
//! `docs/results/gate-self.json.gz` is a run of a program against itself: the two "builds" are one
//! file, so every difference is chance. Parts of its rounds, drawn at random, show how often an
//! unchanged build is called slower. All of its rounds, with one case of the new build made slower
//! by 10 %, show how often that is found: once for each case.
//!
//! To see the rates: `cargo test --release -p estafette-cli error_rates -- --ignored --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use estafette_measure::record::{InstanceRecord, Outcome as Measured, Record};
use estafette_measure::variant::BASE;

use super::judgement::GateOutcome;
use super::rerun::{ROUNDS, judgement};

/// How much slower than before `gate` allows a case to become, as in the documented workflow.
const ALLOW: f64 = 0.05;
/// How much slower the planted regression is.
const REGRESSION: f64 = 0.10;
/// How many runs are drawn.
const DRAWS: usize = 100;
/// How many rounds a drawn run has.
const DRAWN_ROUNDS: usize = 30;

#[test]
#[ignore = "takes minutes without optimisation"]
fn error_rates_of_real_rounds() {
    let record = record();
    assert!(record.rounds >= ROUNDS, "{} rounds", record.rounds);
    let cases = cases_of_new_build(&record);
    assert!(cases.len() >= 50, "{} cases", cases.len());

    let mut random = fastrand::Rng::with_seed(1);
    let is_alarm = |_: &usize| judgement(&draw(&record, &mut random), ALLOW).outcome == GateOutcome::Slower;
    let alarms = (0..DRAWS).filter(is_alarm).count();
    println!("unchanged: {alarms} of {DRAWS} runs of {DRAWN_ROUNDS} rounds and {} cases raise an alarm", cases.len());

    let missed: Vec<usize> = cases.iter().copied().filter(|at| !is_found(&record, *at)).collect();
    println!(
        "{} % slower in one case: found in {} of {} cases with {ROUNDS} rounds, and up to {} in noisy cells",
        REGRESSION * 100.0,
        cases.len() - missed.len(),
        cases.len(),
        record.rounds
    );
    for at in &missed {
        println!("not found: {} · {}", record.entrants[*at].case.mechanism, record.entrants[*at].case.cell);
    }
    assert!(alarms * 100 <= 5 * DRAWS, "{alarms} alarms");
    // The noisiest of these cases have a factor of 1.2 between two rounds.
    assert!(missed.len() * 20 <= cases.len(), "{} cases missed", missed.len());
}

/// The record, without the histograms, which take long to read and do not matter here.
fn record() -> Record {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/gate-self.json.gz");
    let mut record = Record::load(Path::new(path)).unwrap();
    for instance in &mut record.instances {
        if let Measured::Measured(figures) = &mut instance.outcome
            && let Some(latency) = &mut figures.latency
        {
            latency.histogram.clear();
        }
    }
    record
}

/// Whether the gate finds a case that became slower.
fn is_found(record: &Record, entrant: usize) -> bool {
    let case = &record.entrants[entrant].case;
    let judged = judgement(&slowed(record.clone(), entrant), ALLOW);
    judged.cases.iter().any(|judged| {
        judged.outcome == GateOutcome::Slower && judged.mechanism == case.mechanism && judged.cell == case.cell
    })
}

/// The cases of the new build, without controls.
fn cases_of_new_build(record: &Record) -> Vec<usize> {
    let entrants = record.entrants.iter().enumerate();
    entrants
        .filter(|(_, entrant)| !entrant.control && !entrant.case.mechanism.ends_with(BASE))
        .map(|(at, _)| at)
        .collect()
}

/// A run with some of a record's rounds.
fn draw(record: &Record, random: &mut fastrand::Rng) -> Record {
    let rounds: BTreeSet<usize> = random.choose_multiple(0..ROUNDS, DRAWN_ROUNDS).into_iter().collect();
    // The numbers of rounds are those of a run without gaps.
    let numbers: BTreeMap<usize, usize> = rounds.iter().enumerate().map(|(new, old)| (*old, new)).collect();
    let instances: Vec<InstanceRecord> = record
        .instances
        .iter()
        .filter_map(|instance| Some(InstanceRecord { round: *numbers.get(&instance.round)?, ..instance.clone() }))
        .collect();
    let heats: BTreeSet<usize> = instances.iter().filter_map(|instance| instance.heat).collect();
    Record {
        rounds: DRAWN_ROUNDS,
        rounds_planned: DRAWN_ROUNDS,
        heats: record.heats.iter().filter(|heat| heats.contains(&heat.heat)).cloned().collect(),
        instances,
        ..record.clone()
    }
}

/// A run in which each message of one case took [`REGRESSION`] longer, also in its control.
fn slowed(mut record: Record, entrant: usize) -> Record {
    let factor = 1.0 + REGRESSION;
    let case = record.entrants[entrant].case.clone();
    for instance in &mut record.instances {
        if record.entrants[instance.entrant].case != case {
            continue;
        }
        let Measured::Measured(figures) = &mut instance.outcome else { continue };
        figures.slices.iter_mut().for_each(|slice| slice.ns *= factor);
        figures.unpaused_run_ns = figures.unpaused_run_ns.map(|ns| ns * factor);
        figures.window_ns = (figures.window_ns as f64 * factor) as u64;
        if let Some(latency) = &mut figures.latency {
            latency.p50_ns = (latency.p50_ns as f64 * factor) as u64;
        }
    }
    record
}
