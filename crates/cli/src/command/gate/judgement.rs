//! The judgement on a new record: whether a case became slower than allowed.
//!
//! Each case that both records contain is judged, except the reference rings, which show the drift
//! of the machine itself.
//!
//! - **Slower:** a one-sided rank-sum test rejects the hypothesis that the new time is longer by at
//!   most what is allowed (or by the cell's noise floor, if that is larger). If a mechanism loses so many messages of an
//!   open loop that it has no 99th percentile, the shares of lost messages are tested: see [`crate::comparison::loss`].
//! - **Fine:** the interval of the change lies below what is allowed.
//! - **Undecided** otherwise. A case of the base that the new record does not contain, or has no
//!   valid instance of, is undecided too.
//! - **Failed:** more of its instances failed in the new record than in the base.
//! - **Broken:** it broke its promise in the new record.
//!
//! The probability that any unchanged case is called slower is at most 5 %: the drift is assumed at
//! the end of its interval that is best for the new record, which misses it with at most 2.5 %, and
//! Holm's correction over all cases leaves the other 2.5 %. This holds if the machine drifted
//! evenly and instances are independent, as in `compare`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use estafette_measure::case::{Case, Cell};
use estafette_measure::record::{self, Record};
use estafette_measure::spec::Standing;
use estafette_measure::stats::{Interval, holm, median, shift_below_p};
use estafette_measure::units;
use serde::Serialize;

use crate::comparison::drift::{Drift, INTERVAL_COVERAGE};
use crate::comparison::{Compared, Comparison, loss};

/// What is said of a case, and of all together. The gravest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GateOutcome {
    Fine,
    Undecided,
    Slower,
    Failed,
    Broken,
}

impl std::fmt::Display for GateOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            GateOutcome::Fine => "fine",
            GateOutcome::Undecided => "undecided",
            GateOutcome::Slower => "slower",
            GateOutcome::Failed => "failed",
            GateOutcome::Broken => "broken promise",
        })
    }
}

/// The judgement on all cases.
#[derive(Debug, Serialize)]
pub(super) struct Judgement {
    pub(super) outcome: GateOutcome,
    /// How much longer a message may take, as a fraction: 0.05 is 5 %.
    pub(super) allow: f64,
    /// The median over the cases of how much longer a message takes, as a ln ratio. The drift is
    /// subtracted.
    pub(super) median_change: Option<f64>,
    /// The change of the machine itself, as a ln ratio; positive is faster. `None` if no reference
    /// ring has enough valid instances in both records. Then nothing is subtracted.
    pub(super) drift: Option<Drift>,
    /// Whether both were measured in turn, round by round, so that a change of the machine concerns
    /// both.
    pub(super) is_paired: bool,
    /// The cases, the gravest first.
    pub(super) cases: Vec<Judged>,
    pub(super) notes: Vec<String>,
}

/// A case and its judgement.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    pub(super) outcome: GateOutcome,
    pub(super) mechanism: String,
    pub(super) cell: Cell,
    /// Nanoseconds per message or round trip: the median of the valid instances.
    pub(super) base_ns: Option<f64>,
    pub(super) new_ns: Option<f64>,
    /// How much longer a message takes, as a ln ratio; negative is faster. The drift is subtracted.
    pub(super) change: Option<Interval>,
    /// The reason, if the change is none.
    pub(super) why: Option<String>,
}

impl Judgement {
    /// Judges `new`. `allow` is how much longer a message may take, as a fraction.
    ///
    /// # Errors
    /// If the records cannot be compared, for example because they are of different machines.
    pub(super) fn of(base: &Record, new: &Record, allow: f64) -> Result<Judgement> {
        let comparison = Comparison::of(base, new, ["base", "new"])?;
        let (judged, empty): (Vec<&Compared>, Vec<&Compared>) = comparison
            .cases
            .iter()
            .filter(|case| !case.anchor)
            .partition(|case| case.a_ns.or(case.b_ns).or(case.a_lost).or(case.b_lost).is_some());
        let allowed = allow.ln_1p();
        let slower = slower(&judged, allowed, comparison.drift.as_ref());
        let problems = Problems::of(base, new);
        let mut cases: Vec<Judged> = judged
            .iter()
            .zip(slower)
            .map(|(case, is_slower)| problems.of_case(case).unwrap_or_else(|| judge(case, is_slower, allowed)))
            .collect();
        cases.extend(missing(base, &comparison));
        let known: BTreeSet<(&str, &Cell)> = cases.iter().map(|case| (&*case.mechanism, &case.cell)).collect();
        let others = problems.0.iter().filter(|(case, _)| !known.contains(&(&*case.mechanism, &case.cell)));
        let others: Vec<Judged> = others.map(|(case, (outcome, why))| without_figures(case, *outcome, why)).collect();
        cases.extend(others);
        let mut notes = comparison.notes;
        if !empty.is_empty() {
            notes.push(format!("{} case(s) have no valid instance in either record and are left out", empty.len()));
        }
        Ok(Judgement { drift: comparison.drift, notes, ..judgement_of(cases, allow) })
    }

    /// The number of cases with this outcome.
    pub(super) fn count(&self, outcome: GateOutcome) -> usize {
        self.cases.iter().filter(|case| case.outcome == outcome).count()
    }
}

/// The judgement on cases that are already judged, without drift and notes.
pub(super) fn judgement_of(mut cases: Vec<Judged>, allow: f64) -> Judgement {
    // A slower case without a change lost too many messages.
    let slowness = |case: &Judged| match (&case.change, case.outcome) {
        (Some(change), _) => change.estimate,
        (None, GateOutcome::Slower) => f64::INFINITY,
        (None, _) => 0.0,
    };
    cases.sort_by(|a, b| b.outcome.cmp(&a.outcome).then(slowness(b).total_cmp(&slowness(a))));
    let changes: Vec<f64> = cases.iter().filter_map(|case| Some(case.change.as_ref()?.estimate)).collect();
    Judgement {
        outcome: cases.iter().map(|case| case.outcome).max().unwrap_or(GateOutcome::Undecided),
        allow,
        median_change: median(&changes),
        drift: None,
        is_paired: false,
        cases,
        notes: Vec::new(),
    }
}

/// Whether each case is slower than allowed, after Holm's correction.
fn slower(cases: &[&Compared], allowed: f64, drift: Option<&Drift>) -> Vec<bool> {
    // A record's values are -ln of the time. The lower end of the drift is best for the new record.
    let drift = drift.map_or(0.0, |drift| drift.interval.low);
    let p_values = cases.iter().map(|case| match (case.floor, case.clock_error, case.loss_p) {
        (.., Some(loss_p)) => loss_p,
        (Some(floor), Some(clock_error), None) if case.change.is_some() => {
            shift_below_p(&case.values_a, &case.values_b, drift - allowed.max(floor) - clock_error)
        }
        _ => 1.0,
    });
    holm(&p_values.collect::<Vec<_>>(), 1.0 - INTERVAL_COVERAGE)
}

pub(super) fn judge(case: &Compared, is_slower: bool, allowed: f64) -> Judged {
    let change = case.change.map(|change| Interval {
        estimate: -change.estimate,
        low: -change.high,
        high: -change.low,
        ..change
    });
    let percent = |ln: f64| units::three_digits(ln.exp_m1() * 100.0);
    let lost = |who: &str, share: f64| {
        Some(format!(
            "{who} lost {} % of its messages: too many for a 99th percentile",
            units::three_digits(share * 100.0)
        ))
    };
    let (outcome, why) = match (change, case.floor) {
        (None, _) if let Some(share) = case.b_lost => {
            let is_alike = case.a_lost.is_some_and(|before| share < loss::LEAST_RATIO * before);
            let outcome = match (is_slower, is_alike) {
                (true, _) => GateOutcome::Slower,
                (false, true) => GateOutcome::Fine,
                (false, false) => GateOutcome::Undecided,
            };
            (outcome, lost("it", share))
        }
        (None, _) if let (Some(share), Some(_)) = (case.a_lost, case.b_ns) => {
            (GateOutcome::Fine, lost("the base", share))
        }
        _ if is_slower => (GateOutcome::Slower, None),
        (None, _) if case.clock_error.is_none() => {
            (GateOutcome::Undecided, Some(String::from("a time is not longer than the error of the clocks")))
        }
        (Some(change), Some(_)) if change.high <= allowed => (GateOutcome::Fine, None),
        (None, _) => (GateOutcome::Undecided, Some(String::from("too few valid instances"))),
        (_, None) => {
            (GateOutcome::Undecided, Some(String::from("noise unknown: it takes 6 valid rounds of the control")))
        }
        (Some(change), Some(floor)) if change.low > allowed.max(floor) => (
            GateOutcome::Undecided,
            Some(String::from("slower if judged alone, but not significant after Holm's correction for all cases")),
        ),
        (Some(change), Some(floor)) if change.low > allowed => {
            (GateOutcome::Undecided, Some(format!("within the noise floor of {} %", percent(floor))))
        }
        (Some(_), Some(_)) => (GateOutcome::Undecided, Some(String::from("too noisy"))),
    };
    Judged {
        outcome,
        mechanism: case.mechanism.clone(),
        cell: case.cell.clone(),
        base_ns: case.a_ns,
        new_ns: case.b_ns,
        change,
        why,
    }
}

fn without_figures(case: &Case, outcome: GateOutcome, why: &str) -> Judged {
    Judged {
        outcome,
        mechanism: case.mechanism.clone(),
        cell: case.cell.clone(),
        base_ns: None,
        new_ns: None,
        change: None,
        why: Some(why.to_owned()),
    }
}

/// The cases that broke a promise in the new record, or failed there more often than in the base.
pub(super) struct Problems(BTreeMap<Case, (GateOutcome, String)>);

impl Problems {
    pub(super) fn of(base: &Record, new: &Record) -> Problems {
        let (failures_before, mut problems) = (failures(base), BTreeMap::new());
        for (case, (count, why)) in failures(new) {
            let before = failures_before.get(&case).map_or(0, |(count, _)| *count);
            if count > before {
                let why = format!("{count} instance(s) failed, {before} in the base: {why}");
                problems.insert(case.clone(), (GateOutcome::Failed, why));
            }
        }
        for instance in &new.instances {
            if let record::Outcome::Measured(figures) = &instance.outcome
                && let Some(breach) = &figures.breach
            {
                let case = new.entrants[instance.entrant].case.clone();
                problems.insert(case, (GateOutcome::Broken, breach.to_string()));
            }
        }
        Problems(problems)
    }

    pub(super) fn of_case(&self, case: &Compared) -> Option<Judged> {
        let key = Case { mechanism: case.mechanism.clone(), cell: case.cell.clone() };
        let (outcome, why) = self.0.get(&key)?;
        let judged = without_figures(&key, *outcome, why);
        Some(Judged { base_ns: case.a_ns, new_ns: case.b_ns, ..judged })
    }
}

/// The number of failed instances of each case, and the first reason.
fn failures(record: &Record) -> BTreeMap<Case, (usize, String)> {
    let mut failures: BTreeMap<Case, (usize, String)> = BTreeMap::new();
    for instance in &record.instances {
        if let record::Outcome::Failed { why, .. } = &instance.outcome {
            let case = record.entrants[instance.entrant].case.clone();
            failures.entry(case).or_insert_with(|| (0, why.clone())).0 += 1;
        }
    }
    failures
}

/// The cases of the base that the new record does not contain.
fn missing(base: &Record, comparison: &Comparison) -> Vec<Judged> {
    let compared: BTreeSet<(&str, &Cell)> =
        comparison.cases.iter().map(|case| (&*case.mechanism, &case.cell)).collect();
    let is_reference =
        |case: &Case| base.spec(&case.mechanism).is_some_and(|spec| spec.standing == Standing::Reference);
    let cases = base.entrants.iter().filter(|entrant| !entrant.control).map(|entrant| &entrant.case);
    cases
        .filter(|case| !is_reference(case) && !compared.contains(&(&*case.mechanism, &case.cell)))
        .map(|case| without_figures(case, GateOutcome::Undecided, "not in the new record"))
        .collect()
}

#[cfg(test)]
mod tests {
    use estafette_measure::breach::Breach;

    use super::*;
    use crate::comparison::tests::{changed, open_loop, record};

    fn outcome_of<'a>(judgement: &'a Judgement, mechanism: &str) -> &'a Judged {
        judgement.cases.iter().find(|case| case.mechanism == mechanism).unwrap()
    }

    #[test]
    fn what_did_not_change_is_fine() {
        let judgement = Judgement::of(&record(), &record(), 0.05).unwrap();
        assert_eq!(judgement.outcome, GateOutcome::Fine, "{judgement:?}");
        assert_eq!(judgement.cases.len(), 4, "the reference ring is not judged");
        assert!(judgement.median_change.is_some_and(|change| change.abs() < 0.01));
    }

    #[test]
    fn a_slower_case_fails_the_gate_and_stands_first() {
        let judgement = Judgement::of(&record(), &changed("process/pipe", 1.3), 0.05).unwrap();
        assert_eq!(judgement.outcome, GateOutcome::Slower);
        assert_eq!(judgement.cases[0].mechanism, "process/pipe");
        assert!(judgement.cases[0].change.is_some_and(|change| change.estimate > 0.25), "{judgement:?}");
        assert_eq!(judgement.count(GateOutcome::Slower), 2, "{judgement:?}");
        assert_eq!(outcome_of(&judgement, "process/unix-stream").outcome, GateOutcome::Fine);
    }

    #[test]
    fn a_faster_case_and_a_loss_that_is_allowed_are_fine() {
        for (factor, allow) in [(0.7, 0.05), (1.3, 0.5)] {
            let judgement = Judgement::of(&record(), &changed("process/pipe", factor), allow).unwrap();
            assert_eq!(judgement.outcome, GateOutcome::Fine, "{judgement:?}");
        }
    }

    #[test]
    fn the_drift_of_the_machine_is_no_loss() {
        let mut slow = record();
        for instance in &mut slow.instances {
            let record::Outcome::Measured(figures) = &mut instance.outcome else { continue };
            figures.window_ns = figures.window_ns * 13 / 10;
            if let Some(latency) = &mut figures.latency {
                latency.p50_ns = latency.p50_ns * 13 / 10;
            }
        }
        let judgement = Judgement::of(&record(), &slow, 0.05).unwrap();
        assert_eq!(judgement.count(GateOutcome::Slower), 0, "{judgement:?}");
    }

    #[test]
    fn a_case_that_is_gone_is_undecided() {
        let mut new = record();
        let gone = new.entrants.iter().position(|entrant| entrant.case.mechanism == "process/unix-stream").unwrap();
        new.entrants[gone].case.mechanism = String::from("process/fifo");
        new.mechanisms.push(estafette_measure::Spec::new("process/fifo"));
        let judgement = Judgement::of(&record(), &new, 0.05).unwrap();
        assert_eq!(judgement.outcome, GateOutcome::Undecided);
        assert_eq!(judgement.cases[0].why.as_deref(), Some("not in the new record"));
    }

    #[test]
    fn failures_and_broken_promises_of_any_case_fail_the_gate() {
        let spoiled = |spoil: &dyn Fn(&mut record::Outcome), mechanism: &str| {
            let mut new = record();
            let at = new.entrants.iter().rposition(|entrant| entrant.case.mechanism == mechanism).unwrap();
            let instance = new.instances.iter_mut().find(|instance| instance.entrant == at).unwrap();
            spoil(&mut instance.outcome);
            Judgement::of(&record(), &new, 0.05).unwrap()
        };
        let fail = |outcome: &mut record::Outcome| {
            *outcome = record::Outcome::Failed { why: String::from("hung"), kind: None };
        };
        let judgement = spoiled(&fail, "process/unix-stream");
        assert_eq!(judgement.outcome, GateOutcome::Failed);
        assert!(judgement.cases[0].why.as_ref().is_some_and(|why| why.ends_with("hung")), "{judgement:?}");
        let breach = |outcome: &mut record::Outcome| {
            let record::Outcome::Measured(figures) = outcome else { unreachable!() };
            figures.breach = Some(Breach::Text(String::from("lost 1 message")));
        };
        // Also of the reference ring, which is not judged otherwise.
        let judgement = spoiled(&breach, "process/reference-ring");
        assert_eq!(
            (judgement.outcome, &*judgement.cases[0].mechanism),
            (GateOutcome::Broken, "process/reference-ring")
        );
    }

    #[test]
    fn a_mechanism_that_begins_to_lose_too_much_fails_the_gate() {
        let judgement = Judgement::of(&open_loop(0), &open_loop(30), 0.05).unwrap();
        assert_eq!(judgement.outcome, GateOutcome::Slower);
        let why = judgement.cases[0].why.as_ref().unwrap();
        assert!(why.contains("lost ") && why.contains("99th percentile"), "{why}");
        let judgement = Judgement::of(&open_loop(30), &open_loop(0), 0.05).unwrap();
        let pipe = outcome_of(&judgement, "process/pipe");
        assert_eq!(pipe.outcome, GateOutcome::Fine, "{judgement:?}");
        assert!(pipe.why.as_ref().is_some_and(|why| why.starts_with("the base lost ")), "{pipe:?}");
        // 1.2 % is too much, but not clearly more than 0.9 %.
        let judgement = Judgement::of(&open_loop(9), &open_loop(12), 0.05).unwrap();
        assert_eq!(outcome_of(&judgement, "process/pipe").outcome, GateOutcome::Undecided, "{judgement:?}");
        // If it always did, only a clear rise counts.
        for (new, expected) in [(30, GateOutcome::Fine), (50, GateOutcome::Fine), (600, GateOutcome::Slower)] {
            let judgement = Judgement::of(&open_loop(30), &open_loop(new), 0.05).unwrap();
            assert_eq!(outcome_of(&judgement, "process/pipe").outcome, expected, "{judgement:?}");
        }
    }

    #[test]
    fn without_a_control_nothing_is_decided() {
        let without = |mut record: Record| {
            record.entrants.iter_mut().filter(|entrant| entrant.control).for_each(|entrant| {
                entrant.case.cell.capacity = 7;
            });
            record
        };
        let judgement = Judgement::of(&without(record()), &without(changed("process/pipe", 1.3)), 0.05).unwrap();
        assert_eq!(judgement.outcome, GateOutcome::Undecided, "{judgement:?}");
    }
}
