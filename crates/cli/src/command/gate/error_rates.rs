//! The error rates of `gate --rerun`, from real rounds.
//!
//! `docs/results/gate-self.json.gz` is a run of a program against itself: the two "builds" are one
//! file, so every difference is chance. Each draw takes some of its rounds and judges them as a run of
//! its own. In another draw of the same rounds, one case of the new build is made slower by 10 %.
//!
//! To see the rates: `cargo test -p estafette-cli error_rates -- --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use estafette_measure::other_build::SUFFIX;
use estafette_measure::record::{InstanceRecord, Outcome as Measured, Record};

use super::judgement::Outcome;
use super::rerun::{ROUNDS, judgement};

/// How much slower than before `gate` allows a case to become, as in the documented workflow.
const ALLOW: f64 = 0.05;
/// How much slower the planted regression is.
const REGRESSION: f64 = 0.10;
/// How many runs are drawn.
const DRAWS: usize = 100;

#[test]
fn error_rates_of_real_rounds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/gate-self.json.gz");
    let record = Record::load(Path::new(path)).unwrap();
    let cases = cases_of_new_build(&record);
    assert!(cases.len() >= 50, "{} cases", cases.len());
    let mut random = fastrand::Rng::with_seed(1);
    let (mut alarms, mut found, mut undecided) = (0, 0, 0);
    for _ in 0..DRAWS {
        let drawn = draw(&record, &mut random);
        let unchanged = judgement(&drawn, ALLOW);
        alarms += usize::from(unchanged.outcome == Outcome::Slower);
        undecided += unchanged.count(Outcome::Undecided);
        let slower = cases[random.usize(..cases.len())];
        let judged = judgement(&slowed(drawn, slower), ALLOW);
        let case = &record.entrants[slower].case;
        let is_found = judged.cases.iter().any(|judged| {
            judged.outcome == Outcome::Slower && judged.mechanism == case.mechanism && judged.cell == case.cell
        });
        found += usize::from(is_found);
    }
    println!(
        "{DRAWS} draws of {ROUNDS} of {} rounds, {} cases: {alarms} with a false alarm; a regression of {} % in one case \
         found in {found}; {:.1} cases undecided in each",
        record.rounds,
        cases.len(),
        REGRESSION * 100.0,
        undecided as f64 / DRAWS as f64,
    );
    assert!(alarms <= 5, "{alarms} false alarms");
    assert!(found >= 95, "found {found}");
}

/// The cases of the new build, without controls.
fn cases_of_new_build(record: &Record) -> Vec<usize> {
    let entrants = record.entrants.iter().enumerate();
    entrants
        .filter(|(_, entrant)| !entrant.control && !entrant.case.mechanism.ends_with(SUFFIX))
        .map(|(at, _)| at)
        .collect()
}

/// A run with some of a record's rounds.
fn draw(record: &Record, random: &mut fastrand::Rng) -> Record {
    let rounds: BTreeSet<usize> = random.choose_multiple(0..record.rounds, ROUNDS).into_iter().collect();
    // The numbers of rounds are those of a run without gaps.
    let numbers: BTreeMap<usize, usize> = rounds.iter().enumerate().map(|(new, old)| (*old, new)).collect();
    let instances: Vec<InstanceRecord> = record
        .instances
        .iter()
        .filter_map(|instance| Some(InstanceRecord { round: *numbers.get(&instance.round)?, ..instance.clone() }))
        .collect();
    let heats: BTreeSet<usize> = instances.iter().filter_map(|instance| instance.heat).collect();
    Record {
        rounds: ROUNDS,
        rounds_planned: ROUNDS,
        heats: record.heats.iter().filter(|heat| heats.contains(&heat.heat)).cloned().collect(),
        instances,
        ..record.clone()
    }
}

/// A run in which each message of one case took [`REGRESSION`] longer.
fn slowed(mut record: Record, entrant: usize) -> Record {
    let factor = 1.0 + REGRESSION;
    for instance in record.instances.iter_mut().filter(|instance| instance.entrant == entrant) {
        let Measured::Measured(figures) = &mut instance.outcome else { continue };
        figures.slices.iter_mut().for_each(|slice| slice.ns *= factor);
        figures.long_turn_ns = figures.long_turn_ns.map(|ns| ns * factor);
        figures.window_ns = (figures.window_ns as f64 * factor) as u64;
        if let Some(latency) = &mut figures.latency {
            latency.p50_ns = (latency.p50_ns as f64 * factor) as u64;
        }
    }
    record
}
