//! Summary sentences below the tables: the winners, their distance to the bound, the noise, and
//! whether the latency between the two cores changed during the run.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use estafette_measure::case::Place;
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::limits;
use estafette_measure::ranking::Ranking;
use estafette_measure::record::{Outcome, Record};
use estafette_measure::spec::Scope;
use estafette_measure::stats::Verdict;
use estafette_measure::units::{duration, grouped, three_digits};
use estafette_measure::variant::variant_name;

use crate::allocator::Allocator;
use crate::columns::{plain, wrapped};
use crate::table::{best_candidate, capitalised, is_different, list, outcome, percent, short};

/// Returns the sentences, each wrapped to at most 100 columns.
pub(crate) fn sentences(record: &Record, rankings: &[Ranking]) -> String {
    let doubts = doubts(record, rankings);
    let sentences = [winners(rankings), bounds(rankings)].into_iter().chain(doubts);
    sentences.filter(|sentence| !sentence.is_empty()).map(|sentence| wrapped("", &sentence)).collect()
}

/// Returns the sentences that say how far the results can be trusted: the noise, a change of the
/// cores, the allocator, TCP that is paced.
pub(crate) fn doubts(record: &Record, rankings: &[Ranking]) -> Vec<String> {
    let mut sentences =
        vec![noise(record, rankings), core_distance_change(record), allocator(record), pacing(record, rankings)];
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

/// Names the allocator, if it is not the system's, or not of every row.
fn allocator(record: &Record) -> String {
    let Some(provenance) = &record.provenance else { return String::new() };
    let allocator = plain(&provenance.allocator);
    let names: BTreeSet<&str> =
        record.entrants.iter().filter_map(|entrant| variant_name(&entrant.case.mechanism)).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| Allocator::from_str(name, false).is_ok()).collect();
    match &*names {
        [] if provenance.allocator == "system" => String::new(),
        [] => format!("The allocator was {allocator}."),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("@{name}")).collect();
            format!("Rows that end with {} used that allocator, the others {allocator}.", names.join(" or "))
        }
    }
}

/// Names the congestion control of TCP, if it paces packets and something was measured through the
/// network of one machine.
fn pacing(record: &Record, rankings: &[Ranking]) -> String {
    let paced = record.fingerprint.tcp_congestion_control.as_deref().filter(|name| Fingerprint::is_paced(name));
    let is_measured =
        rankings.iter().any(|ranking| ranking.cell.scope == Scope::Network && ranking.cell.place != Place::OtherHost);
    match paced {
        Some(name) if is_measured => format!(
            "TCP's congestion control is {}, which paces packets: within this machine, a stream takes up to 5 times as \
             long, and varies. To compare libraries: sysctl -w net.ipv4.tcp_congestion_control=cubic.",
            plain(name)
        ),
        _ => String::new(),
    }
}

/// Lists the winners by scope, and counts the cells without a decision.
fn winners(rankings: &[Ranking]) -> String {
    let (mut winners, mut undecided) = (Vec::new(), 0);
    for ranking in rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked()) {
        let Some(outcome) = outcome(ranking) else { continue };
        if outcome.is_decided() {
            let names: Vec<&str> = outcome.leaders.iter().map(|row| short(row)).collect();
            winners.push((list(&names, "or"), ranking));
        } else {
            undecided += 1;
        }
    }
    let mut sentences: Vec<String> = Vec::new();
    for scope in Scope::ALL {
        let of_scope: Vec<String> = winners
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
    let undecided = match undecided {
        0 => String::new(),
        1 => String::from(" In one table the fastest is not decided."),
        count => format!(" In {count} tables the fastest is not decided."),
    };
    match &*sentences {
        [] => undecided.trim_start().to_owned(),
        _ => format!("Fastest by scope: {}.{undecided}", sentences.join("; ")),
    }
}

/// Compares the fastest with the bound, for the first cell of each scope that has a bound and in
/// which the fastest is decided.
pub(crate) fn bounds(rankings: &[Ranking]) -> String {
    let mut parts = Vec::new();
    for scope in Scope::ALL {
        let part = rankings.iter().filter(|ranking| ranking.cell.scope == scope).find_map(|ranking| {
            let bound = ranking.bound.as_ref()?;
            outcome(ranking).filter(|outcome| outcome.is_decided())?;
            let best = best_candidate(ranking)?;
            let ratio = best.result.as_ref()?.metric_ns / bound.ns();
            let name = short(best);
            let result = ranking.cell.pattern.result();
            Some(format!("{scope}, {name}: {result} {} times its bound ({})", three_digits(ratio), bound.cost()))
        });
        parts.extend(part);
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("The fastest beside the bound, in the first decided table of each scope: {}.", parts.join("; "))
}

/// Summarizes the noise, the comparisons without a decision and the discarded instances.
fn noise(record: &Record, rankings: &[Ranking]) -> String {
    // The median and the 90th percentile.
    let quantiles = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let p90 = values.get((values.len() * 9 / 10).min(values.len().saturating_sub(1))).copied()?;
        Some([values[values.len() / 2], p90].map(percent))
    };
    let noise = match quantiles(rankings.iter().filter_map(|ranking| ranking.noise).collect()) {
        Some([median, p90]) => {
            format!("a mechanism differs from itself by {median} in the median table, by at most {p90} in nine of ten")
        }
        None => String::from("too few rounds to tell how much a mechanism differs from itself"),
    };
    let resolution = quantiles(rankings.iter().filter_map(|ranking| Some(ranking.resolution()?.exp_m1())).collect());
    let resolution = resolution.map_or(String::new(), |[median, p90]| {
        format!(". The median table detects differences from {median}, nine of ten from at most {p90}")
    });
    let ranked = rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked());
    let verdicts: Vec<Verdict> =
        ranked.flat_map(|ranking| &ranking.rows).filter_map(|row| row.result.as_ref()?.verdict).collect();
    let inconclusive = verdicts.iter().filter(|verdict| **verdict == Verdict::Inconclusive).count();
    let controls = || rankings.iter().filter_map(|ranking| ranking.control.as_ref()?.result.as_ref());
    let checked: Vec<Verdict> =
        controls().filter(|result| result.versus.is_some()).filter_map(|result| result.verdict).collect();
    let wrong = checked.iter().filter(|verdict| is_different(**verdict)).count();
    let controls = match checked.len() {
        0 => String::from("no control could be checked"),
        count => format!("{wrong} of {count} controls show a false difference"),
    };
    let inconclusive = match verdicts.len() {
        0 => String::new(),
        count => format!("{inconclusive} of {count} comparisons are inconclusive, "),
    };
    let sentence = format!("{inconclusive}{controls}, {}", discarded(record));
    format!("Noise: {noise}{resolution}. {}.{}", capitalised(&sentence), discarded_laps(record))
}

/// Counts the discarded instances, and says why.
fn discarded(record: &Record) -> String {
    let causes = discarded_by_cause(record);
    let count: usize = causes.iter().map(|(_, count)| count).sum();
    let all = record.instances.len();
    let failed = record.instances.iter().filter(|instance| matches!(instance.outcome, Outcome::Failed { .. })).count();
    let failed = if failed > 0 { format!(", and {failed} failed") } else { String::new() };
    match count {
        0 => format!("none of {all} instances is discarded{failed}"),
        _ => format!("{count} of {all} instances are discarded{failed}: {}", cause_list(&causes)),
    }
}

/// Lists the causes of discarded instances, with their counts.
pub(crate) fn cause_list(causes: &[(String, usize)]) -> String {
    let causes: Vec<String> = causes.iter().map(|(cause, count)| format!("{} ({count})", plain(cause))).collect();
    causes.join(", ")
}

/// The causes of discarded instances, and how many each discarded, most first.
pub(crate) fn discarded_by_cause(record: &Record) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for instance in &record.instances {
        if let Outcome::Measured(figures) = &instance.outcome
            && let Some(reason) = &figures.discarded
        {
            *counts.entry(reason.cause()).or_default() += 1;
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// Reports the laps that do not count because the machine changed during them.
fn discarded_laps(record: &Record) -> String {
    let laps: u64 = record.heats.iter().map(|heat| heat.laps).sum();
    let discarded: usize = record.heats.iter().map(|heat| heat.discarded_laps().len()).sum();
    let moved: usize = record.heats.iter().map(|heat| heat.moved_laps().len()).sum();
    if discarded == 0 {
        return String::new();
    }
    let causes = [
        (moved, "the hypervisor moved the virtual CPUs"),
        (discarded.saturating_sub(moved), "the hypervisor took time"),
    ];
    let causes = causes.iter().filter(|(count, _)| *count > 0);
    let causes: Vec<String> = causes.map(|(count, cause)| format!("{cause} ({})", grouped(*count as u64))).collect();
    format!(
        " {} of {} laps (turns of all mechanisms of a table) do not count: {}.",
        grouped(discarded as u64),
        grouped(laps),
        causes.join(", ")
    )
}

/// Warns if the latency between the two cores changed during the run.
///
/// This happens when a host moves its virtual CPUs.
fn core_distance_change(record: &Record) -> String {
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
    // Ignores the extreme readings on both sides: a few disturbed ones are no change.
    let ignored = (lines.len() / 20).max(3);
    let (Some(&near), Some(&far)) = (lines.get(ignored), lines.iter().rev().nth(ignored)) else { return String::new() };
    if limits::steady((near, far)) {
        return String::new();
    }
    let middle = (near * far).sqrt();
    let count = lines.iter().filter(|line| **line < middle).count();
    format!(
        "The latency between the two cores changed during the run, as when a host moves virtual CPUs: a cache line's round trip was about {} in {count} of {} measurements of a table and about {} in the others. A table with enough rounds at one of the two values compares only those.",
        duration(near),
        lines.len(),
        duration(far)
    )
}

#[cfg(test)]
mod tests {
    use estafette_measure::fingerprint;
    use estafette_measure::laps::HeatRecord;
    use estafette_measure::suite::{Profile, Suite};

    use super::*;

    #[test]
    fn laps_that_do_not_count_are_reported() {
        let mut record = record([50.0].into_iter());
        assert_eq!(discarded_laps(&record), "");
        let line_ns = [50.0, 50.0, 210.0, 210.0, 210.0].map(Some).to_vec();
        record.heats.push(HeatRecord { heat: 1, laps: 4, stolen_laps: vec![3], line_ns });
        assert!(discarded_laps(&record).contains("2 of 4 laps (turns"), "{}", discarded_laps(&record));
        assert!(discarded_laps(&record).contains("moved the virtual CPUs (1)"), "{}", discarded_laps(&record));
    }

    #[test]
    fn moved_cores_are_reported_and_a_few_disturbed_readings_are_not() {
        let sentence = |far: usize| {
            let record = record((0..60).map(|turn| if turn < far { 215.0 } else { 55.0 + turn as f64 / 60.0 }));
            core_distance_change(&record)
        };
        assert_eq!(sentence(0), "");
        assert_eq!(sentence(3), "");
        assert!(sentence(20).contains("in 40 of 60 measurements"), "{}", sentence(20));
    }

    /// A record of one mechanism with these cache-line round trips, one per round, in nanoseconds.
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
