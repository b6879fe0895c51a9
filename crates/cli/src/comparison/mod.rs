//! The comparison of two records of one machine, unpaired: their common cases, with the change and the
//! verdict of each.
//!
//! The records share no rounds, so their instances cannot be paired. For each case in both records,
//! except controls, the shift is the Hodges–Lehmann estimate between the ln metrics of its valid
//! instances. A positive shift means that B is better. The [`drift`] of the machine itself is
//! subtracted, and its uncertainty widens the interval. The verdict compares the interval with the
//! larger of the cell's two noise floors.
//!
//! The limits of this method:
//!
//! - The interval contains the true change with at least 95 % if the machine drifted evenly and the
//!   instances of a record are independent. After an uneven drift the anchors disagree, and the
//!   interval grows by their disagreement.
//! - The noise floor comes from pairs in one round. A difference between runs that does not exist
//!   within one run, and does not affect the anchors, counts as a change. Examples are the layout
//!   of another build and a file system's cache. Only interleaved rounds of both builds could avoid
//!   this; two records do not have them.
//! - Times from one host's clock to another's are wrong by another amount in each run. The floor of such a case grows by
//!   both errors.
//! - Verdicts are not corrected for multiple comparisons: of many, some are wrong. The margin
//!   of 2 % or the floor keeps them few.

pub(crate) mod drift;
mod incomparable;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};

use estafette_measure::case::{Case, Cell};
use estafette_measure::core_distance::Comparable;
use estafette_measure::plan::MAX_ROUNDS;
use estafette_measure::ranking::{Ranking, rank};
use estafette_measure::record::{MAKE_UP_ROUNDS, Outcome, REPEATS, Record};
use estafette_measure::spec::{Spec, Standing};
use estafette_measure::stats::{Interval, Margins, Verdict, median, shift_interval, verdict};
use serde::Serialize;

use self::drift::{Drift, INTERVAL_COVERAGE};
pub(crate) use self::incomparable::Incomparable;
use crate::columns::plain;

/// The comparison of two records.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// `None` if the records have no anchor in common. Then nothing is subtracted from the changes.
    pub(crate) drift: Option<Drift>,
    /// The cases that both records contain, grouped by cell.
    pub(crate) cases: Vec<Compared>,
    /// Other differences, and incomplete records.
    pub(crate) notes: Vec<String>,
}

/// One of the records.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) started: String,
    pub(crate) tool: String,
    pub(crate) rounds: usize,
    pub(crate) rounds_planned: usize,
    /// The number of failed or discarded instances of the compared cases. An instance is discarded
    /// only for reasons that are fixed before the run.
    pub(crate) left_out: usize,
}

/// One mechanism in one cell, in both records.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    pub(crate) cell: Cell,
    pub(crate) mechanism: String,
    /// The median over A's valid instances, in nanoseconds per message or round trip.
    pub(crate) a_ns: Option<f64>,
    /// The same for B.
    pub(crate) b_ns: Option<f64>,
    /// Whether the case is an anchor of the drift. Anchors have no verdict.
    pub(crate) anchor: bool,
    /// How much better B is than A, as a ln ratio; positive is better. A known drift is subtracted.
    /// `None` with too few instances.
    pub(crate) change: Option<Interval>,
    /// The larger of the cell's noise floors in the two records, as a ln ratio, and the errors of the clocks; `None` if a
    /// record has none.
    pub(crate) floor: Option<f64>,
    pub(crate) verdict: Option<Verdict>,
    /// -ln of the metric of each valid instance in A; more is better.
    #[serde(skip)]
    pub(crate) values_a: Vec<f64>,
    /// The same for B.
    #[serde(skip)]
    pub(crate) values_b: Vec<f64>,
}

/// A case of one record.
struct Measured<'a> {
    spec: &'a Spec,
    /// -ln of the metric of each valid instance: more is better.
    values: Vec<f64>,
    median_ns: Option<f64>,
    left_out: usize,
}

impl Comparison {
    /// Compares two records of one machine. `names` is what notes call them.
    ///
    /// # Errors
    /// If they cannot be compared.
    pub(crate) fn of(a: &Record, b: &Record, names: [&str; 2]) -> Result<Comparison, Incomparable> {
        check_comparable(a, b)?;
        let (ours, theirs) = (measured(a)?, measured(b)?);
        let cells: BTreeSet<&Cell> = theirs.iter().map(|(case, _)| &case.cell).collect();
        if !ours.iter().any(|(case, _)| cells.contains(&case.cell)) {
            return Err(Incomparable::NoCell);
        }
        let theirs: BTreeMap<&Case, Measured<'_>> = theirs.into_iter().collect();
        let shared: Vec<_> = ours
            .into_iter()
            .filter_map(|(case, ours)| {
                let theirs = theirs.get(case)?;
                let shift = shift_interval(&ours.values, &theirs.values, INTERVAL_COVERAGE);
                Some((case, ours, theirs, shift))
            })
            .collect();
        if shared.is_empty() {
            return Err(Incomparable::NoMechanism);
        }

        let anchors = shared.iter().filter(|(_, ours, theirs, _)| is_anchor(ours, theirs));
        let drift = Drift::of(&anchors.filter_map(|(.., shift)| *shift).collect::<Vec<_>>());
        let (floors_a, floors_b) = (floors(a), floors(b));
        let cases = shared.iter().map(|(case, ours, theirs, shift)| {
            let floor = floors_a.get(&case.cell).zip(floors_b.get(&case.cell)).map(|(a, b)| {
                let least_ns = ours.median_ns.unwrap_or(f64::INFINITY).min(theirs.median_ns.unwrap_or(f64::INFINITY));
                let errors_ns = a.clock_error_ns + b.clock_error_ns;
                let of_clocks = if errors_ns > 0.0 { (errors_ns / least_ns).ln_1p() } else { 0.0 };
                a.noise.max(b.noise) + of_clocks
            });
            let change = shift.map(|shift| drift.map_or(shift, |drift| drift.subtract_from(&shift)));
            let anchor = is_anchor(ours, theirs);
            Compared {
                cell: case.cell.clone(),
                mechanism: case.mechanism.clone(),
                a_ns: ours.median_ns,
                b_ns: theirs.median_ns,
                anchor,
                change,
                floor,
                verdict: (!anchor).then(|| verdict(change.as_ref(), floor, Margins::default())),
                values_a: ours.values.clone(),
                values_b: theirs.values.clone(),
            }
        });
        let mut notes = notes(a, b, names);
        let [name_a, name_b] = names;
        for (_, ours, theirs, _) in &shared {
            let (spec, version) = (ours.spec, &theirs.spec.version);
            let note = format!("{} is {} in {name_a} and {version} in {name_b}", spec.name, spec.version);
            if ours.spec.version != theirs.spec.version && !notes.contains(&note) {
                notes.push(note);
            }
        }
        Ok(Comparison {
            a: Side::of(a, shared.iter().map(|(_, ours, ..)| ours.left_out).sum()),
            b: Side::of(b, shared.iter().map(|(_, _, theirs, _)| theirs.left_out).sum()),
            drift,
            cases: cases.collect(),
            notes,
        })
    }

    /// Returns the number of cases with this verdict.
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == Some(verdict)).count()
    }
}

impl Side {
    fn of(record: &Record, left_out: usize) -> Side {
        Side {
            started: record.started.clone(),
            tool: record.tool.clone(),
            rounds: record.rounds,
            rounds_planned: record.rounds_planned,
            left_out,
        }
    }
}

/// Returns an error unless both records are of the same machine, with the same window.
fn check_comparable(a: &Record, b: &Record) -> Result<(), Incomparable> {
    check_rounds(a)?;
    check_rounds(b)?;
    let differences = machine_differences(a, b);
    if !differences.is_empty() {
        return Err(Incomparable::Machines(differences));
    }
    match window_difference(a, b) {
        Some(windows) => Err(Incomparable::Windows(windows)),
        None => Ok(()),
    }
}

fn check_rounds(record: &Record) -> Result<(), Incomparable> {
    if record.rounds_planned > MAX_ROUNDS { Err(Incomparable::TooManyRounds(MAX_ROUNDS)) } else { Ok(()) }
}

/// Checks what a comparison requires of each record by itself.
///
/// # Errors
/// If it has too many rounds, or more instances than rounds.
pub(crate) fn check(record: &Record) -> Result<(), Incomparable> {
    check_rounds(record)?;
    measured(record).map(drop)
}

/// What keeps two records from being compared: differences of the machine, and of the window. Empty
/// if they can be.
pub(crate) fn differences(a: &Record, b: &Record) -> Vec<String> {
    machine_differences(a, b).into_iter().chain(window_difference(a, b)).collect()
}

fn machine_differences(a: &Record, b: &Record) -> Vec<String> {
    let mut differences = a.fingerprint.differences(&b.fingerprint);
    match (&a.peer, &b.peer) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => {
            let other = ours.fingerprint.differences(&theirs.fingerprint);
            differences.extend(other.into_iter().map(|difference| format!("of the other host: {difference}")));
        }
        (Some(peer), None) => differences.push(format!("hosts: this one and {} / this one alone", peer.address)),
        (None, Some(peer)) => differences.push(format!("hosts: this one alone / this one and {}", peer.address)),
    }
    // A fingerprint has the number of cores; the limits have the cores that were used.
    let cpus = |record: &Record| Some(format!("{:?}", record.limits.as_ref()?.cpus));
    if let (Some(ours), Some(theirs)) = (cpus(a), cpus(b))
        && ours != theirs
    {
        differences.push(format!("CPUs used: {ours} / {theirs}"));
    }
    differences.iter().map(|difference| plain(difference)).collect()
}

fn window_difference(a: &Record, b: &Record) -> Option<String> {
    (a.window != b.window)
        .then(|| format!("windows differ ({} / {})", words::window(&a.window), words::window(&b.window)))
}

/// Returns the cases of a record in their order, without controls.
fn measured(record: &Record) -> Result<Vec<(&Case, Measured<'_>)>, Incomparable> {
    let comparable = Comparable::by_distance(record);
    let mut outcomes: Vec<Vec<&Outcome>> = vec![Vec::new(); record.entrants.len()];
    let mut first_heats = BTreeMap::new();
    for instance in &comparable.record.instances {
        // An entrant that was measured in several heats of a round is one sample of that round.
        let first = first_heats.entry((instance.round, instance.entrant)).or_insert(instance.heat);
        if *first != instance.heat {
            continue;
        }
        outcomes[instance.entrant].push(&instance.outcome);
        if outcomes[instance.entrant].len() > (record.rounds_planned + MAKE_UP_ROUNDS) * (1 + REPEATS) {
            return Err(Incomparable::TooManyInstances);
        }
    }
    let cases = record.entrants.iter().zip(outcomes).filter(|(entrant, _)| !entrant.control);
    let cases = cases.filter_map(|(entrant, outcomes)| {
        let valid = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Measured(figures) if figures.discarded.is_none() => Some(figures.metric_ns()),
            _ => None,
        });
        let ns: Vec<f64> = valid.collect();
        let measured = Measured {
            spec: record.spec(&entrant.case.mechanism)?,
            values: ns.iter().map(|ns| -ns.ln()).collect(),
            median_ns: median(&ns),
            left_out: outcomes.len() - ns.len(),
        };
        Some((&entrant.case, measured))
    });
    Ok(cases.collect())
}

/// Whether a case is an anchor of the drift: a reference ring of the same version in both records.
fn is_anchor(a: &Measured<'_>, b: &Measured<'_>) -> bool {
    [a, b].iter().all(|case| case.spec.standing == Standing::Reference) && a.spec.version == b.spec.version
}

/// What a difference of two runs may be without a change.
struct Floor {
    /// The noise floor of the cell, as a ln ratio.
    noise: f64,
    /// By how many nanoseconds its times may be wrong, if they are from one host's clock to another's.
    clock_error_ns: f64,
}

/// Returns the floors of a record's cells.
fn floors(record: &Record) -> BTreeMap<Cell, Floor> {
    let floor = |ranking: Ranking| {
        let clock_error_ns = ranking.one_way.map_or(0.0, |one_way| one_way.error_ns);
        Some((ranking.cell, Floor { noise: ranking.floor?, clock_error_ns }))
    };
    rank(record).into_iter().filter_map(floor).collect()
}

fn notes(a: &Record, b: &Record, [name_a, name_b]: [&str; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    if a.tool != b.tool {
        notes.push(format!("{name_a} was measured by Estafette {}, {name_b} by {}", a.tool, b.tool));
    }
    let allocators = [a, b].map(|record| record.provenance.as_ref().map(|provenance| &*provenance.allocator));
    if let [Some(a), Some(b)] = allocators
        && a != b
    {
        notes.push(format!("{name_a} was measured with the allocator {a}, {name_b} with {b}"));
    }
    for (name, record) in [(name_a, a), (name_b, b)] {
        if record.rounds < record.rounds_planned {
            notes.push(format!("{name} was stopped after {} of {} rounds", record.rounds, record.rounds_planned));
        }
    }
    notes
}

#[cfg(test)]
pub(crate) mod tests;
