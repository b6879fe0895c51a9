//! The output of `history` as text.

use estafette_measure::stats::Verdict;

use super::lineage::{CaseHistory, Change, Changes, Lineage, PastRun};
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::comparison::words::{figure, percent};
use crate::table::percent as share;

/// The maximum number of notes of a lineage.
const MAX_NOTES: usize = 12;
/// The maximum number of slower cases that the first sentence names.
const MAX_NAMED: usize = 5;
/// The maximum length of the column with the command line.
const MAX_COMMAND: usize = 20;

/// Returns the lineages, the one with the newest run first.
pub(super) fn text(lineages: &[Lineage]) -> String {
    let mut text = String::new();
    for (at, lineage) in lineages.iter().enumerate() {
        if at > 0 {
            let differs = lineage.differs.join("; ");
            text.push_str(&wrapped(
                "",
                &format!("\nRuns that cannot be compared with those above: {}", plain(&differs)),
            ));
        }
        text.push_str(&of_lineage(lineage));
    }
    text
}

fn of_lineage(lineage: &Lineage) -> String {
    let runs: Vec<Vec<String>> = (1..).zip(&lineage.runs).map(|(number, run)| row(number, run)).collect();
    let headers = ["run", "started", "command", "commit", "rounds", "noise", "undecided", "slower, faster"];
    let mut text = columns(&headers, &[Right, Left, Left, Left, Right, Right, Right, Left], &runs);
    text.push_str(&wrapped("", &headline(lineage)));
    for case in &lineage.cases {
        text.push_str(&format!("\n{}", of_case(case, &lineage.runs)));
    }
    if !lineage.notes.is_empty() {
        text.push('\n');
    }
    let more = lineage.notes.len().saturating_sub(MAX_NOTES);
    let notes = lineage.notes.iter().take(MAX_NOTES).map(|note| wrapped("", &format!("Note: {}.", plain(note))));
    text.extend(notes);
    if more > 0 {
        text.push_str(&format!("And {more} notes more: see --json.\n"));
    }
    text
}

/// A run's line.
fn row(number: usize, run: &PastRun) -> Vec<String> {
    let mut command = plain(&run.arguments.join(" "));
    if command.chars().count() > MAX_COMMAND {
        command = command.chars().take(MAX_COMMAND - 1).chain(['…']).collect();
    }
    let commit = run.commit.as_ref().map_or(String::from("-"), |commit| commit.chars().take(7).collect());
    let rounds = match run.rounds == run.rounds_planned {
        true => run.rounds.to_string(),
        false => format!("{} of {}", run.rounds, run.rounds_planned),
    };
    vec![
        number.to_string(),
        time(run),
        if command.is_empty() { String::from("-") } else { command },
        plain(&commit),
        rounds,
        run.noise.map_or(String::from("-"), |ln| share(ln.exp_m1())),
        format!("{} of {}", run.inconclusive, run.comparisons),
        run.changes.map_or(String::from("-"), |changes| changed(&changes)),
    ]
}

/// When a run started, to the minute.
fn time(run: &PastRun) -> String {
    plain(&run.started.chars().take(16).collect::<String>().replace('T', " "))
}

fn changed(changes: &Changes) -> String {
    let all = changes.slower + changes.faster + changes.equivalent + changes.inconclusive;
    format!("{}, {} of {all}", changes.slower, changes.faster)
}

/// What happened from the first run to the last.
fn headline(lineage: &Lineage) -> String {
    let (runs, shown) = (lineage.runs.len(), lineage.cases.len());
    if runs < 2 {
        return format!("One run: nothing to compare it with. {shown} of its {} cases are shown.", lineage.common);
    }
    let of = |verdict: Verdict| {
        let is_it = move |case: &&CaseHistory| case.since_first.is_some_and(|change| change.verdict == verdict);
        lineage.cases.iter().filter(is_it).collect::<Vec<_>>()
    };
    let slower = of(Verdict::Slower);
    let names: Vec<String> =
        slower.iter().take(MAX_NAMED).map(|case| format!("{} in {}", plain(&case.mechanism), case.cell)).collect();
    let names = match (&*names, slower.len().saturating_sub(MAX_NAMED)) {
        ([], _) => String::new(),
        (names, 0) => format!(" ({})", names.join("; ")),
        (names, more) => format!(" ({}; and {more} more)", names.join("; ")),
    };
    format!(
        "Run {runs} against run 1: of {shown} shown cases, {} are slower{names}, {} faster, {} equal within 5 %, {} not decided. \
         {} cases are in all runs.",
        slower.len(),
        of(Verdict::Faster).len(),
        of(Verdict::Equivalent).len(),
        of(Verdict::Inconclusive).len(),
        lineage.common
    )
}

/// A case with a line for each run.
fn of_case(case: &CaseHistory, runs: &[PastRun]) -> String {
    let lines = (1..).zip(case.points.iter().zip(runs)).map(|(number, (moment, run))| {
        let change = moment.change.as_ref().map_or(String::new(), described);
        vec![number.to_string(), time(run), figure(moment.ns, &case.cell), change]
    });
    let mut lines: Vec<Vec<String>> = lines.collect();
    // With two runs it is the same change.
    if let (Some(change), true) = (&case.since_first, runs.len() > 2) {
        lines.push(vec![String::new(), String::from("since run 1"), String::new(), described(change)]);
    }
    format!("{} in {}\n{}", plain(&case.mechanism), case.cell, columns(&[], &[Right, Left, Right, Left], &lines))
}

/// A change in words. Only decided ones are marked.
fn described(change: &Change) -> String {
    let Some(time) = &change.time else { return String::from("too few valid instances") };
    let by = format!("{} % [{} to {}]", percent(time.estimate), percent(time.low), percent(time.high));
    match change.verdict {
        Verdict::Slower => format!("▲ slower: {by} time"),
        Verdict::Faster => format!("▼ faster: {by} time"),
        Verdict::Equivalent => format!("equal within 5 %: {by}"),
        Verdict::Inconclusive => format!("not decided: {by}"),
    }
}
