//! What the tables come to, in plain words: what wins where, what binds it, how noisy the machine was, and whether it was
//! the same machine all the time.

use std::collections::BTreeMap;

use estafette_measure::case::{Load, Pattern, Place};
use estafette_measure::limits;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::record::Record;
use estafette_measure::spec::{Scope, Standing, Wait};
use estafette_measure::stats::Verdict;
use estafette_measure::units::{duration, three_digits};

use crate::columns::wrapped;
use crate::table::{decided, percent};

/// What takes less than this part of a limit is not that by chance.
const MUCH_SOONER: f64 = 0.8;

/// The sentences, each wrapped to 100 columns.
pub(crate) fn sentences(record: &Record, rankings: &[Ranking]) -> String {
    let sentences = [winners(rankings), binding(rankings), woken(rankings), noise(record, rankings), moved(record)];
    sentences.iter().filter(|sentence| !sentence.is_empty()).map(|sentence| wrapped("", sentence)).collect()
}

/// What a cell is a race of, the best first.
fn candidates(ranking: &Ranking) -> impl Iterator<Item = &Row> {
    let candidate = |row: &&Row| !row.control && row.spec.standing == Standing::Candidate && row.result.is_some();
    ranking.rows.iter().filter(candidate)
}

/// The candidates of the fastest ownership class that has several, where the cell can decide between them: a row is held
/// against others of its class.
fn rivals(ranking: &Ranking) -> Vec<&Row> {
    let class = |one: &Row| candidates(ranking).filter(|row| row.spec.ownership == one.spec.ownership).collect();
    let classes = candidates(ranking).map(class);
    classes.into_iter().find(|class: &Vec<_>| class.len() > 1 && ranking.floor.is_some()).unwrap_or_default()
}

/// Rivals that nothing is known to be faster than: the best and whoever is not decided against it.
fn winners_of(ranking: &Ranking) -> Vec<&Row> {
    let unbeaten = |row: &&Row| row.result.as_ref().is_some_and(|result| result.verdict != Some(Verdict::Slower));
    rivals(ranking).into_iter().filter(unbeaten).collect()
}

fn winners(rankings: &[Ranking]) -> String {
    let (mut won, mut open) = (Vec::new(), Vec::new());
    for scope in Scope::ALL {
        for (pattern, doing) in [
            (Pattern::PingPong, "round trips"),
            (Pattern::Stream, "streams"),
            (Pattern::FanIn, "fan-in"),
            (Pattern::Merge, "merging"),
            (Pattern::Writers, "several writers"),
            (Pattern::Connections, "several connections"),
            (Pattern::Mpmc, "sharing out"),
            (Pattern::Duplex, "both ways at once"),
            (Pattern::RequestReply, "requests of several"),
            (Pattern::PubSub, "publishing"),
            (Pattern::Codec, "encoding and decoding"),
            (Pattern::SameThread, "sending and receiving in one thread"),
            (Pattern::SendReceive, "pipelines"),
            (Pattern::SendChecksum, "pipelines with a checksum"),
            (Pattern::SendCompete, "pipelines with two that compete"),
        ] {
            let contested = |ranking: &&Ranking| {
                let cell = &ranking.cell;
                let asked = (cell.scope, cell.pattern, cell.load) == (scope, pattern, Load::Saturated);
                asked && !rivals(ranking).is_empty()
            };
            let Some(ranking) = rankings.iter().find(contested) else { continue };
            // One cell of several does not speak for the others.
            let several = rankings.iter().filter(contested).count() > 1;
            let details = ranking.cell.to_string();
            let details = details.splitn(3, " · ").nth(2).filter(|_| several);
            let mut doing = details.map_or(doing.to_owned(), |details| format!("{doing} of {details}"));
            let winners = winners_of(ranking);
            // Where there are others, whose bytes belong to somebody else.
            if let Some(first) = winners.first()
                && candidates(ranking).any(|row| row.spec.ownership != first.spec.ownership)
            {
                doing = format!("{doing} of what is {}", first.spec.ownership);
            }
            let names: Vec<&str> =
                winners.iter().filter_map(|row| row.spec.name.split_once('/').map(|(_, name)| name)).collect();
            match names.as_slice() {
                [] => {}
                [one] => won.push(format!("{one} wins {scope} {doing}")),
                several if level(&winners) => {
                    won.push(format!("{} are level in {scope} {doing}", several.join(" and ")))
                }
                several => open.push(format!("{scope} {doing} ({})", several.join(", "))),
            }
        }
    }
    if !open.is_empty() {
        won.push(format!("not decided: {}", open.join(", ")));
    }
    if won.is_empty() { String::new() } else { format!("What wins where: {}.", won.join("; ")) }
}

/// Whether all but the best are known to be as good as it.
fn level(winners: &[&Row]) -> bool {
    let verdict = |row: &&Row| row.result.as_ref().and_then(|result| result.verdict);
    winners.iter().filter_map(verdict).all(|verdict| verdict == Verdict::Equivalent)
}

fn binding(rankings: &[Ranking]) -> String {
    let mut parts = Vec::new();
    for scope in Scope::ALL {
        let best = rankings.iter().filter(|ranking| ranking.cell.scope == scope).find_map(|ranking| {
            let row = candidates(ranking).next()?;
            let bound = ranking.bound.as_ref()?;
            let ratio = row.result.as_ref()?.metric_ns / bound.ns;
            Some(format!("{scope} {} are {} times the {}", doing(ranking), three_digits(ratio), bound.name))
        });
        parts.extend(best);
    }
    if parts.is_empty() { String::new() } else { format!("What binds them: {}.", parts.join("; ")) }
}

/// Why a round trip may take less than that of the limit that sleeps as well.
fn woken(rankings: &[Ranking]) -> String {
    let asleep = rankings.iter().filter(|ranking| {
        ranking.cell.pattern == Pattern::PingPong
            && ranking.cell.wait == Wait::Block
            && ranking.cell.place != Place::SameCore
    });
    let sentence = asleep.into_iter().find_map(|ranking| {
        let row = candidates(ranking).next()?;
        let (_, name) = row.spec.name.split_once('/')?;
        let bound = ranking.bound.as_ref()?;
        sooner(name, row.result.as_ref()?.metric_ns, &bound.name, bound.ns)
    });
    sentence.unwrap_or_default()
}

fn sooner(name: &str, ns: f64, limit: &str, limit_ns: f64) -> Option<String> {
    (ns < MUCH_SOONER * limit_ns).then(|| {
        format!(
            "How {name} can need less than the {limit}: in a round trip whose ends sleep, most is waking a core, and one \
             that has slept less long wakes sooner. What a mechanism needs itself shows at --place same-core."
        )
    })
}

fn doing(ranking: &Ranking) -> &'static str {
    match ranking.cell.pattern {
        Pattern::PingPong => "round trips",
        Pattern::Stream => "messages of a stream",
        Pattern::FanIn => "messages of a fan-in",
        Pattern::Merge => "messages of a merge",
        Pattern::Writers => "messages of several writers",
        Pattern::Connections => "messages of several connections",
        Pattern::Mpmc => "messages shared out",
        Pattern::Burst => "messages of a burst",
        Pattern::Duplex => "messages both ways at once",
        Pattern::RequestReply => "requests",
        Pattern::PubSub => "messages published",
        Pattern::Codec => "messages encoded and decoded",
        Pattern::SameThread => "messages sent and received by one thread",
        Pattern::SendReceive | Pattern::SendChecksum | Pattern::SendCompete => "messages of a pipeline",
        Pattern::Cancel => "messages of a stream with dropped receives",
    }
}

fn noise(record: &Record, rankings: &[Ranking]) -> String {
    let mut noises: Vec<f64> = rankings.iter().filter_map(|ranking| ranking.noise).collect();
    noises.sort_by(f64::total_cmp);
    let ranked = rankings.iter().filter(|ranking| ranking.cell.pattern.ranks());
    let verdicts = ranked.flat_map(|ranking| &ranking.rows).filter(|row| !row.control);
    let verdicts: Vec<Verdict> = verdicts.filter_map(|row| row.result.as_ref()?.verdict).collect();
    let open = verdicts.iter().filter(|verdict| **verdict == Verdict::Inconclusive).count();
    let discarded: usize = rankings.iter().map(|ranking| ranking.discarded).sum();
    let controls = || rankings.iter().flat_map(|ranking| &ranking.rows).filter(|row| row.control);
    let wrong = controls().filter_map(|row| row.result.as_ref()?.verdict).filter(|verdict| decided(*verdict)).count();
    let spread = match (noises.first(), noises.get(noises.len() / 2), noises.last()) {
        (Some(least), Some(middle), Some(most)) => format!(
            "the same mechanism against itself differed by {} in the middle cell ({} to {})",
            percent(*middle),
            percent(*least),
            percent(*most)
        ),
        _ => String::from("too few rounds to tell how much a mechanism differs from itself"),
    };
    format!(
        "How noisy it was: {spread}; {open} of {} comparisons stayed inconclusive, {wrong} of {} controls were told apart, {discarded} of {} instances were discarded.",
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

    #[test]
    fn what_beats_a_limit_that_sleeps_is_explained() {
        assert_eq!(sooner("rpc", 60e3, "reference ring", 64e3), None);
        assert!(
            sooner("rpc", 40e3, "reference ring", 64e3).is_some_and(|said| said.starts_with("How rpc can need less"))
        );
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
