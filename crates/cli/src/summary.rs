//! What the tables come to, in plain words: what wins where, what binds it, how noisy the machine was, and whether it was
//! the same machine all the time.

use std::collections::BTreeMap;

use estafette_measure::limits;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::record::Record;
use estafette_measure::spec::{Scope, Standing};
use estafette_measure::stats::Verdict;
use estafette_measure::units::{duration, three_digits};

use crate::columns::wrapped;
use crate::table::{decided, list, outcome, percent, short};

/// The sentences, each wrapped to 100 columns.
pub(crate) fn sentences(record: &Record, rankings: &[Ranking]) -> String {
    let sentences = [winners(rankings), binding(rankings), noise(record, rankings), moved(record)];
    sentences.iter().filter(|sentence| !sentence.is_empty()).map(|sentence| wrapped("", sentence)).collect()
}

/// The best of a cell's candidates.
fn best(ranking: &Ranking) -> Option<&Row> {
    ranking.rows.iter().find(|row| row.spec.standing == Standing::Candidate && row.result.is_some())
}

/// What was decided, by distance; and how many cells were not.
fn winners(rankings: &[Ranking]) -> String {
    let (mut won, mut open) = (Vec::new(), 0);
    for ranking in rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked()) {
        let Some(outcome) = outcome(ranking) else { continue };
        if outcome.is_decided() {
            let names: Vec<&str> = outcome.leaders.iter().map(|row| short(row)).collect();
            won.push((list(&names, "or"), ranking));
        } else {
            open += 1;
        }
    }
    let mut sentences: Vec<String> = Vec::new();
    for scope in Scope::ALL {
        let of_scope: Vec<String> = won
            .iter()
            .filter(|(_, ranking)| ranking.cell.scope == scope)
            .map(|(names, ranking)| {
                let cell = ranking.cell.to_string();
                let cell = cell.split_once(" · ").map_or(&*cell, |(_, cell)| cell);
                format!("{names} ({cell})")
            })
            .collect();
        if !of_scope.is_empty() {
            sentences.push(format!("{scope}: {}", of_scope.join(", ")));
        }
    }
    let open = match open {
        0 => String::new(),
        1 => String::from(" One comparison of the fastest is not decided."),
        count => format!(" In {count} tables the fastest is not decided."),
    };
    match &*sentences {
        [] => open.trim_start().to_owned(),
        _ => format!("What wins where: {}.{open}", sentences.join("; ")),
    }
}

fn binding(rankings: &[Ranking]) -> String {
    let mut parts = Vec::new();
    for scope in Scope::ALL {
        let best = rankings.iter().filter(|ranking| ranking.cell.scope == scope).find_map(|ranking| {
            let bound = ranking.bound.as_ref()?;
            let ratio = best(ranking)?.result.as_ref()?.metric_ns / bound.ns();
            Some(format!("{scope} {} {} times {}", ranking.cell.pattern.result(), three_digits(ratio), bound.cost()))
        });
        parts.extend(best);
    }
    if parts.is_empty() { String::new() } else { format!("The best beside its bound: {}.", parts.join("; ")) }
}

/// How noisy the run was, and how much of it was decided.
fn noise(record: &Record, rankings: &[Ranking]) -> String {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let most = values.get((values.len() * 9 / 10).min(values.len().saturating_sub(1))).copied()?;
        Some([values[values.len() / 2], most].map(percent))
    };
    let noise = match middle(rankings.iter().filter_map(|ranking| ranking.noise).collect()) {
        Some([middle, most]) => {
            format!("a mechanism differs from itself by {middle} (median table; nine in ten: {most})")
        }
        None => String::from("too few rounds to tell how much a mechanism differs from itself"),
    };
    let shown = middle(rankings.iter().filter_map(|ranking| Some(ranking.resolution()?.exp_m1())).collect());
    let shown =
        shown.map_or(String::new(), |[middle, most]| format!("; differences show from {middle} (nine in ten: {most})"));
    let ranked = rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked());
    let verdicts: Vec<Verdict> =
        ranked.flat_map(|ranking| &ranking.rows).filter_map(|row| row.result.as_ref()?.verdict).collect();
    let open = verdicts.iter().filter(|verdict| **verdict == Verdict::Inconclusive).count();
    let controls = || rankings.iter().filter_map(|ranking| ranking.control.as_ref()?.result.as_ref());
    let wrong = controls().filter_map(|result| result.verdict).filter(|verdict| decided(*verdict)).count();
    let discarded: usize = rankings.iter().map(|ranking| ranking.discarded).sum();
    format!(
        "How noisy it was: {noise}{shown}. {open} of {} comparisons are inconclusive, {wrong} of {} controls are told apart, {discarded} of {} instances are discarded.",
        verdicts.len(),
        controls().count(),
        record.instances.len()
    )
}

/// Where the CPUs were not always as near to each other, as when a host moves them, figures of tasks and threads are of
/// two machines.
fn moved(record: &Record) -> String {
    let turns: BTreeMap<_, _> = record
        .instances
        .iter()
        .filter_map(|instance| {
            let cell = &record.entrants.get(instance.entrant)?.case.cell;
            Some(((instance.round, cell), instance.line_ns?))
        })
        .collect();
    let mut lines: Vec<f64> = turns.into_values().collect();
    lines.sort_by(f64::total_cmp);
    // A reading or two that were disturbed are no move.
    let part = (lines.len() / 20).max(3);
    let (Some(&near), Some(&far)) = (lines.get(part), lines.iter().rev().nth(part)) else { return String::new() };
    if limits::steady((near, far)) {
        return String::new();
    }
    let middle = (near * far).sqrt();
    let count = lines.iter().filter(|line| **line < middle).count();
    format!(
        "The two cores were not always as near to each other, as when a host moves its guests: a cache line's round trip was about {} in {count} of {} turns of a cell and about {} in the others; what passes between cores follows it.",
        duration(near),
        lines.len(),
        duration(far)
    )
}

#[cfg(test)]
mod tests {
    use estafette_measure::fingerprint;
    use estafette_measure::suite::{Profile, Suite};

    use super::*;

    #[test]
    fn cores_that_moved_are_told_from_a_reading_that_was_disturbed() {
        let said = |far: usize| {
            let record = record((0..60).map(|turn| if turn < far { 215.0 } else { 55.0 + turn as f64 / 60.0 }));
            moved(&record)
        };
        assert_eq!(said(0), "");
        assert_eq!(said(3), "");
        assert!(said(20).contains("in 40 of 60 turns"), "{}", said(20));
    }

    /// A record of one mechanism, by what was read before each of its rounds.
    fn record(lines: impl Iterator<Item = f64>) -> Record {
        let value = serde_json::json!({
            "format": "estafette-record", "version": 1, "tool": "0", "started": "", "seed": 0,
            "window": { "count": { "warmup": 1, "messages": 1 } }, "rounds_planned": 60, "rounds": 60,
            "fingerprint": fingerprint::Fingerprint::take(), "limits": null, "handling": [], "mechanisms": [],
            "entrants": [{ "case": { "mechanism": "task/x", "cell": Suite::Overview.cells(Profile::Quick)[0] }, "control": false }],
            "refusals": [],
            "instances": lines.enumerate().map(|(round, line_ns)| serde_json::json!({
                "round": round, "entrant": 0, "line_ns": line_ns, "outcome": { "failed": { "why": "" } }
            })).collect::<Vec<_>>(),
        });
        serde_json::from_value(value).unwrap()
    }
}
