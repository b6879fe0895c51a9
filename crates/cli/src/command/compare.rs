//! The command `compare`: compares two records of one machine, unpaired.
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
//!   this; this command does not have them.
//! - Verdicts are not corrected for multiple comparisons: of many, some are wrong. The margin
//!   of 2 % or the floor keeps them few.

pub(super) mod comparison;
pub(super) mod drift;

use std::path::Path;

use anyhow::{Context, Result};
use estafette_measure::case::Pattern;
use estafette_measure::record::Record;
use estafette_measure::stats::{Interval, Verdict};
use estafette_measure::units;
use serde::Serialize;

use self::comparison::{Compared, Comparison, Side};
use self::drift::Drift;
use crate::args::Compare;
use crate::columns::{Left, Right, columns, plain};
use crate::exit::Exit;
use crate::{print, print_json};

/// The JSON output.
#[derive(Serialize)]
struct Printed<'a> {
    a_file: &'a Path,
    b_file: &'a Path,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Runs `compare`.
pub(crate) fn run(args: &Compare) -> Result<Exit> {
    let (a, b) = (Record::load(&args.a)?, Record::load(&args.b)?);
    let comparison = Comparison::of(&a, &b, ["A", "B"])
        .with_context(|| format!("cannot compare {} with {}", args.a.display(), args.b.display()))?;
    if args.json {
        print_json(&Printed { a_file: &args.a, b_file: &args.b, comparison: &comparison })?;
    } else {
        let sides = [("A", &args.a, &comparison.a), ("B", &args.b, &comparison.b)];
        let sides: Vec<_> = sides.iter().map(|(name, path, side)| described(name, path, side)).collect();
        print(&format!("{}\n{}", columns(&[], &[], &sides), text(&comparison)))?;
    }
    Ok(Exit::Fine)
}

fn described(name: &str, path: &Path, side: &Side) -> Vec<String> {
    let left_out = match side.left_out {
        0 => String::new(),
        count => format!(", {count} instance(s) discarded or failed"),
    };
    let rounds = format!("{} of {} rounds{left_out}", side.rounds, side.rounds_planned);
    vec![name.to_owned(), path.display().to_string(), side.started.clone(), rounds]
}

fn text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for cases in comparison.cases.chunk_by(|one, next| one.cell == next.cell) {
        let rows: Vec<_> = cases.iter().map(row).collect();
        let headers = ["mechanism", "A", "B", "B better by, drift off", "", "verdict"];
        let table = columns(&headers, &[Left, Right, Right, Right, Left, Left], &rows);
        text.push_str(&format!("{}\n{table}\n", cases[0].cell));
    }
    let mut lines = vec![drift(comparison.drift.as_ref()), verdicts(comparison)];
    let without = comparison.cases.iter().filter(|case| case.verdict.is_some() && case.floor.is_none()).count();
    if without > 0 {
        lines
            .push(format!("{without} in cells without a noise floor: it takes 6 valid rounds of the control in both."));
    }
    lines.extend(comparison.notes.iter().map(|note| format!("Note: {}.", plain(note))));
    text.push_str(&columns(&[], &[], &lines.into_iter().map(|line| vec![line]).collect::<Vec<_>>()));
    text
}

fn row(case: &Compared) -> Vec<String> {
    let figure = |ns: Option<f64>| figure(ns, case.cell.pattern);
    let (change, interval) = case.change.as_ref().map_or((String::from("-"), String::new()), |change| {
        (format!("{} %", percent(change.estimate)), between(change))
    });
    let verdict = case.verdict.map_or(String::from("(anchor)"), |verdict| verdict.to_string());
    vec![plain(&case.mechanism), figure(case.a_ns), figure(case.b_ns), change, interval, verdict]
}

/// Formats the time of a round trip, or the rate of a stream; `-` without a valid instance.
pub(super) fn figure(ns: Option<f64>, pattern: Pattern) -> String {
    match ns {
        None => String::from("-"),
        Some(ns) if pattern.is_round_trip() => units::duration(ns),
        Some(ns) => units::rate(1e9 / ns),
    }
}

/// Formats a ln ratio as a change in percent: `+3.14`, `-12.3`.
pub(super) fn percent(ln: f64) -> String {
    let percent = ln.exp_m1() * 100.0;
    format!("{}{}", if percent < 0.0 { '-' } else { '+' }, units::three_digits(percent.abs()))
}

fn between(interval: &Interval) -> String {
    format!("[{} to {}]", percent(interval.low), percent(interval.high))
}

fn drift(drift: Option<&Drift>) -> String {
    let Some(drift) = drift else {
        return String::from(
            "Drift: not known, as no reference ring is in both records; what is shown may be the machine's own change.",
        );
    };
    let few = if drift.has_few_anchors() { "; so few may miss an uneven drift" } else { "" };
    let unsteady = if drift.is_unsteady() {
        " The machine did not hold still: measure both again while nothing else runs."
    } else {
        ""
    };
    format!(
        "Drift: the machine alone made B better by {} % {}, by {} anchor(s), the reference rings{few}. It is subtracted, and \
         its uncertainty widens every interval.{unsteady}",
        percent(drift.interval.estimate),
        between(&drift.interval),
        drift.anchors
    )
}

fn verdicts(comparison: &Comparison) -> String {
    let count = |verdict| comparison.count(verdict);
    let all = comparison.cases.iter().filter(|case| case.verdict.is_some()).count();
    format!(
        "{} of {all} comparisons are inconclusive; {} faster, {} slower, {} equivalent.",
        count(Verdict::Inconclusive),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Equivalent)
    )
}

#[cfg(test)]
mod tests {
    use super::comparison::tests::{changed, record};
    use super::*;

    fn output(a: &Record, b: &Record) -> String {
        text(&Comparison::of(a, b, ["A", "B"]).unwrap())
    }

    #[test]
    fn each_cell_has_a_table_below_its_heading() {
        let text = output(&record(), &changed("process/pipe", 0.8));
        assert!(text.starts_with("process · ping-pong · 64B · block · other-core\nmechanism"), "{text}");
        let pipe = text.lines().find(|line| line.starts_with("process/pipe")).unwrap();
        assert!(pipe.contains("+24.9 %  [+") && pipe.ends_with("faster"), "{text}");
        assert!(
            text.contains("1 anchor(s)") && text.contains("\n0 of 4 comparisons are inconclusive; 2 faster"),
            "{text}"
        );
        assert!(text.contains("(anchor)\n") && text.contains("/s  "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn without_anchors_the_drift_is_reported_as_unknown() {
        let mut a = record();
        let with = a.clone();
        let is_anchor = |at: usize| with.entrants[at].case.mechanism.contains("reference");
        a.entrants.retain(|entrant| !entrant.case.mechanism.contains("reference"));
        a.instances.retain(|instance| !is_anchor(instance.entrant));
        for instance in &mut a.instances {
            instance.entrant -= (0..instance.entrant).filter(|at| is_anchor(*at)).count();
        }
        let text = output(&a, &record());
        assert!(text.contains("Drift: not known"), "{text}");
        let comparison = Comparison::of(&a, &record(), ["A", "B"]).unwrap();
        let json = serde_json::to_value(&comparison).unwrap();
        assert!(json["drift"].is_null(), "the drift is unknown: {}", json["drift"]);
        let coverage = json["cases"][0]["change"]["coverage"].as_f64().unwrap();
        assert!((drift::INTERVAL_COVERAGE..1.0).contains(&coverage), "the coverage of the change alone: {coverage}");
    }

    #[test]
    fn anchors_that_disagree_are_reported() {
        let unsteady = "did not hold still";
        assert!(
            !output(&record(), &changed("process/reference-ring", 1.3)).contains(unsteady),
            "one anchor agrees with itself"
        );
        let interval = |low: f64, high: f64| Interval { estimate: f64::midpoint(low, high), low, high, coverage: 0.98 };
        assert!(drift(Some(&Drift { anchors: 8, interval: interval(-0.3, 0.1) })).contains(unsteady));
        assert!(!drift(Some(&Drift { anchors: 8, interval: interval(0.2, 0.25) })).contains(unsteady));
    }

    #[test]
    fn percentages_have_three_digits() {
        assert_eq!([0.0, 0.031, -0.2, 5.0].map(percent), ["+0.00", "+3.15", "-18.1", "+14741"]);
    }

    #[test]
    fn control_characters_in_names_and_versions_do_not_reach_the_terminal() {
        let add_control_characters = |record: &mut Record| {
            for name in ["process/pipe", "process/reference-ring"] {
                let evil = format!("{name}\u{1b}]0;x\u{7}\n\r");
                record
                    .entrants
                    .iter_mut()
                    .filter(|one| one.case.mechanism == name)
                    .for_each(|one| one.case.mechanism.clone_from(&evil));
                record.mechanisms.iter_mut().filter(|one| one.name == name).for_each(|one| one.name.clone_from(&evil));
            }
            record.tool = String::from("\u{1b}[2J");
        };
        let (mut a, mut b) = (record(), record());
        add_control_characters(&mut a);
        add_control_characters(&mut b);
        b.tool.push('\u{9b}');
        let text = output(&a, &b);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn json_has_the_drift_and_the_verdicts() {
        let comparison = Comparison::of(&record(), &changed("process/pipe", 0.8), ["A", "B"]).unwrap();
        let printed = Printed { a_file: Path::new("a"), b_file: Path::new("b"), comparison: &comparison };
        let json = serde_json::to_value(&printed).unwrap();
        assert_eq!(json["a_file"], "a");
        assert_eq!(json["drift"]["anchors"], 1);
        assert_eq!(json["cases"][0]["verdict"], "faster");
        assert_eq!(json["cases"][0]["cell"]["pattern"], "ping-pong");
        assert!((json["cases"][0]["change"]["estimate"].as_f64().unwrap() - 1.25_f64.ln()).abs() < 0.01);
    }
}
