//! The comparison of two records of one machine, unpaired: their common cases, with the change and
//! the verdict of each.
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
//! - Times from one host's clock to another's are wrong by another amount in each run. The interval of such a case grows by
//!   both errors.
//! - In an open loop a mechanism that loses 1 % or more has no 99th percentile. If that is so in one record only, the shares of
//!   lost messages are compared: see [`loss`].
//! - Verdicts are not corrected for multiple comparisons: of many, some are wrong. The margin
//!   of 2 % or the floor keeps them few.

pub(crate) mod drift;
mod incomparable;
pub(crate) mod loss;
pub(crate) mod words;

use std::collections::{BTreeMap, BTreeSet};

use estafette_measure::case::{Case, Cell};
use estafette_measure::core_distance::Comparable;
use estafette_measure::plan::MAX_ROUNDS;
use estafette_measure::ranking::{Ranking, loss_without_p99, no_result, rank};
use estafette_measure::record::{MAKE_UP_ROUNDS, Outcome, REPEATS, Record};
use estafette_measure::spec::{Spec, Standing};
use estafette_measure::stats::{Interval, Margins, Verdict, median, shift_interval, verdict};
use serde::Serialize;

use self::drift::{Drift, INTERVAL_COVERAGE};
pub(crate) use self::incomparable::Incomparable;
use crate::columns::plain;
use crate::duration;

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
    /// The share of messages that it lost in A, if it lost so many of an open loop that it has no
    /// figure.
    pub(crate) a_lost: Option<f64>,
    /// The same for B.
    pub(crate) b_lost: Option<f64>,
    /// How much better B is than A, as a ln ratio; positive is better. A known drift is subtracted,
    /// and the interval includes the errors of the clocks. `None` with too few instances, if one of
    /// them lost too many messages, or if `clock_error` is not known.
    pub(crate) change: Option<Interval>,
    /// By how much the ratio of both times may be wrong, as a ln ratio, if they are from one host's
    /// clock to another's. `None` if a time is not longer than its error.
    pub(crate) clock_error: Option<f64>,
    /// The larger of the cell's noise floors in the two records, as a ln ratio; `None` if a record
    /// has none.
    pub(crate) floor: Option<f64>,
    pub(crate) verdict: Option<Verdict>,
    /// -ln of the metric of each valid instance in A; more is better.
    #[serde(skip)]
    pub(crate) values_a: Vec<f64>,
    /// The same for B.
    #[serde(skip)]
    pub(crate) values_b: Vec<f64>,
    /// How probable the losses of both records are if B loses no more than A. `None` unless B lost
    /// too much, and A has valid instances.
    #[serde(skip)]
    pub(crate) loss_p: Option<f64>,
}

/// A case of one record.
struct Measured<'a> {
    spec: &'a Spec,
    /// -ln of the metric of each valid instance: more is better.
    values: Vec<f64>,
    median_ns: Option<f64>,
    /// The share of messages that it lost, if it has no figure for that reason.
    lost: Option<f64>,
    /// The share that it lost in each valid instance.
    losses: Vec<f64>,
    left_out: usize,
}

impl Measured<'_> {
    /// How probable the losses are if `other` loses no more than this. `None` unless `other` lost
    /// too much, and this has valid instances.
    fn loss_p(&self, other: &Measured<'_>) -> Option<f64> {
        (other.lost.is_some() && !self.losses.is_empty()).then(|| loss::p_value(&self.losses, &other.losses))
    }

    /// The verdict on B, where this is A, if one of them lost too many messages.
    fn verdict_by_loss(&self, b: &Measured<'_>) -> Option<Verdict> {
        let is_shown = |p: Option<f64>| p.is_some_and(|p| p <= loss::MAX_P);
        if is_shown(self.loss_p(b)) {
            Some(Verdict::Slower)
        } else if is_shown(b.loss_p(self)) {
            Some(Verdict::Faster)
        } else {
            self.lost.or(b.lost).map(|_| Verdict::Inconclusive)
        }
    }
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
        let (cells_a, cells_b) = (uncertainties(a), uncertainties(b));
        let cases = shared.iter().map(|(case, ours, theirs, shift)| {
            let of_cell = cells_a.get(&case.cell).zip(cells_b.get(&case.cell));
            Compared::of(case, [ours, theirs], *shift, drift.as_ref(), of_cell)
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

impl Compared {
    /// Compares one case. `shift` is by how much B is better, as a ln ratio, before the drift
    /// is subtracted.
    fn of(
        case: &Case,
        [ours, theirs]: [&Measured<'_>; 2],
        shift: Option<Interval>,
        drift: Option<&Drift>,
        of_cell: Option<(&Uncertainty, &Uncertainty)>,
    ) -> Compared {
        let floor = of_cell.and_then(|(a, b)| Some(a.floor?.max(b.floor?)));
        let errors_ns = of_cell.map_or([0.0; 2], |(a, b)| [a.clock_error_ns, b.clock_error_ns]);
        let clock_error = clock_error(errors_ns, [ours.median_ns, theirs.median_ns]);
        let change = shift.zip(clock_error).map(|(shift, error)| {
            let shift = drift.map_or(shift, |drift| drift.subtract_from(&shift));
            Interval { low: shift.low - error, high: shift.high + error, ..shift }
        });
        let anchor = is_anchor(ours, theirs);
        let verdict =
            || ours.verdict_by_loss(theirs).unwrap_or_else(|| verdict(change.as_ref(), floor, Margins::default()));
        Compared {
            cell: case.cell.clone(),
            mechanism: case.mechanism.clone(),
            a_ns: ours.median_ns,
            b_ns: theirs.median_ns,
            a_lost: ours.lost,
            b_lost: theirs.lost,
            anchor,
            change,
            clock_error,
            floor,
            verdict: (!anchor).then(verdict),
            values_a: ours.values.clone(),
            values_b: theirs.values.clone(),
            loss_p: ours.loss_p(theirs),
        }
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
        .then(|| format!("windows differ ({} / {})", duration::window(&a.window), duration::window(&b.window)))
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
    let cases = record.entrants.iter().enumerate().zip(outcomes).filter(|((_, entrant), _)| !entrant.control);
    let cases = cases.filter_map(|((at, entrant), outcomes)| {
        let valid = || {
            outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Measured(figures) => Some(figures).filter(|figures| figures.discarded.is_none()),
                Outcome::Failed { .. } => None,
            })
        };
        let mut ns: Vec<f64> = valid().map(|figures| figures.metric_ns()).collect();
        let left_out = outcomes.len() - ns.len();
        let lost = loss_without_p99(&comparable.record, at);
        if no_result(&comparable.record, at).is_some() {
            // What arrived says nothing of what did not, nor a slice of timers between slices.
            ns.clear();
        }
        let measured = Measured {
            spec: record.spec(&entrant.case.mechanism)?,
            values: ns.iter().map(|ns| -ns.ln()).collect(),
            median_ns: median(&ns),
            losses: valid().map(|figures| figures.share_lost()).collect(),
            lost,
            left_out,
        };
        Some((&entrant.case, measured))
    });
    Ok(cases.collect())
}

/// Whether a case is an anchor of the drift: a reference ring of the same version in both records.
fn is_anchor(a: &Measured<'_>, b: &Measured<'_>) -> bool {
    [a, b].iter().all(|case| case.spec.standing == Standing::Reference) && a.spec.version == b.spec.version
}

/// How uncertain the times of a cell are.
struct Uncertainty {
    /// The noise floor, as a ln ratio.
    floor: Option<f64>,
    /// By how many nanoseconds its times may be wrong, if they are from one host's clock to
    /// another's.
    clock_error_ns: f64,
}

/// The uncertainties of a record's cells.
fn uncertainties(record: &Record) -> BTreeMap<Cell, Uncertainty> {
    let of_cell = |Ranking { cell, floor, one_way, .. }: Ranking| {
        (cell, Uncertainty { floor, clock_error_ns: one_way.map_or(0.0, |one_way| one_way.error_ns) })
    };
    rank(record).into_iter().map(of_cell).collect()
}

/// By how much the ln ratio of two times may be wrong that have these errors: a time `t` with an
/// error `e` may be `t - e`. `None` if a time is not longer than its error.
fn clock_error(errors_ns: [f64; 2], times_ns: [Option<f64>; 2]) -> Option<f64> {
    let errors = errors_ns.into_iter().zip(times_ns).filter(|(error_ns, _)| *error_ns > 0.0);
    let parts = errors.filter_map(|(error_ns, time_ns)| Some(-(-error_ns / time_ns?).ln_1p()));
    Some(parts.sum::<f64>()).filter(|error| error.is_finite())
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
