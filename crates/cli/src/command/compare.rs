//! The command `compare`: prints how two records of one machine differ.
//!
//! How, and the limits of the method: [`crate::comparison`].

use std::path::Path;

use anyhow::{Context, Result};
use estafette_measure::record::Record;
use serde::Serialize;

use crate::args::Compare;
use crate::columns::{Left, Right, columns, plain};
use crate::comparison::words::{between, drift, figures, percent, verdicts, within_clock_error, without_floor};
use crate::comparison::{Compared, Comparison, Side};
use crate::exit::Exit;
use crate::terminal::{print, print_json};

/// The JSON output.
#[derive(Serialize)]
struct PrintedComparison<'a> {
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
    show([&args.a, &args.b], &comparison, args.json)?;
    Ok(Exit::Fine)
}

/// Prints a comparison of two files.
pub(super) fn show([a, b]: [&Path; 2], comparison: &Comparison, as_json: bool) -> Result<()> {
    if as_json {
        return print_json(&PrintedComparison { a_file: a, b_file: b, comparison });
    }
    let sides = [("A", a, &comparison.a), ("B", b, &comparison.b)];
    let sides: Vec<_> = sides.iter().map(|(name, path, side)| described(name, path, side)).collect();
    print(&format!("{}\n{}", columns(&[], &[], &sides), text(comparison)))
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
        let headers = ["mechanism", "A", "B", "B better by (drift subtracted)", "", "verdict"];
        let table = columns(&headers, &[Left, Right, Right, Right, Left, Left], &rows);
        text.push_str(&format!("{}\n{table}\n", cases[0].cell));
    }
    let mut lines = vec![drift(comparison.drift.as_ref()), verdicts(comparison)];
    lines.extend(without_floor(comparison));
    lines.extend(within_clock_error(comparison));
    lines.extend(comparison.notes.iter().map(|note| format!("Note: {}.", plain(note))));
    text.push_str(&columns(&[], &[], &lines.into_iter().map(|line| vec![line]).collect::<Vec<_>>()));
    text
}

fn row(case: &Compared) -> Vec<String> {
    let [a, b] = figures(case);
    let (change, interval) = case.change.as_ref().map_or((String::from("-"), String::new()), |change| {
        (format!("{} %", percent(change.estimate)), between(change))
    });
    let verdict = case.verdict.map_or(String::from("(drift reference)"), |verdict| verdict.to_string());
    vec![plain(&case.mechanism), a, b, change, interval, verdict]
}

#[cfg(test)]
mod tests {
    use estafette_measure::stats::Interval;

    use super::*;
    use crate::comparison::drift::{Drift, INTERVAL_COVERAGE};
    use crate::comparison::tests::{changed, record};

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
        assert!(text.contains("(drift reference)\n") && text.contains("/s  "), "{text}");
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
        assert!((INTERVAL_COVERAGE..1.0).contains(&coverage), "the coverage of the change alone: {coverage}");
    }

    #[test]
    fn anchors_that_disagree_are_reported() {
        let unsteady = "changed unevenly";
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
        let printed = PrintedComparison { a_file: Path::new("a"), b_file: Path::new("b"), comparison: &comparison };
        let json = serde_json::to_value(&printed).unwrap();
        assert_eq!(json["a_file"], "a");
        assert_eq!(json["drift"]["anchors"], 1);
        assert_eq!(json["cases"][0]["verdict"], "faster");
        assert_eq!(json["cases"][0]["cell"]["pattern"], "ping-pong");
        assert!((json["cases"][0]["change"]["estimate"].as_f64().unwrap() - 1.25_f64.ln()).abs() < 0.01);
    }
}
