//! Rankings as tables of at most 100 columns.

use estafette_measure::case::{BURST, Cell, Load, Pattern};
use estafette_measure::plan::Refusal;
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::record::Record;
use estafette_measure::spec::{Loss, Ordering, Scope, Standing, Wait};
use estafette_measure::stats::Verdict;
use estafette_measure::{MAX_LOSS, units};

use crate::columns::{Left, Right, columns, lines, plain, wrapped};
use crate::with_remedy;

/// One cell's table with its heading.
pub(crate) fn ranking(ranking: &Ranking) -> String {
    match ranking.cell.pattern {
        Pattern::Cancel => return cancelled(ranking),
        Pattern::Burst => return held(ranking),
        Pattern::Codec => return coded(ranking),
        _ => {}
    }
    let round_trip = ranking.cell.pattern.asks();
    let open_loop = ranking.cell.load != Load::Saturated;
    let figures = match (round_trip, open_loop) {
        (true, _) => ["p50", "p99", "÷limit"],
        (_, true) => ["p50", "p99", "p99.9"],
        _ => ["rate", "each", "÷limit"],
    };
    let scope = ranking.cell.scope.to_string();
    let headers = [&scope, figures[0], figures[1], figures[2], "cpu/msg", "ctx/msg", "against the best", ""];
    let rows: Vec<_> = ranking.rows.iter().map(|row| columns_of(ranking, row, round_trip)).collect();
    let mut text = format!("{}\n", ranking.cell);
    text.push_str(&columns(&headers, &[Left, Right, Right, Right, Right, Right, Left, Left], &rows));
    text.push_str(&caveats(ranking));
    let batch = ranking.rows.iter().filter_map(|row| row.result.as_ref()).map(|result| result.batch).max();
    if let Some(batch) = batch.filter(|batch| *batch > 1) {
        text.push_str(&format!("  too short for the clock: times are means of up to {batch} round trips\n"));
    }
    text.push_str(&notes(ranking));
    text
}

/// What binds a cell, and how far its figures can be trusted.
fn notes(ranking: &Ranking) -> String {
    let bound = ranking.bound.as_ref().map(|bound| format!("limit: {} {}", bound.name, units::duration(bound.ns)));
    let noise = ranking.noise.zip(ranking.floor).map(|(noise, floor)| {
        format!("noise {} · nothing within {} is decided", percent(noise), percent(floor.exp_m1()))
    });
    let few = (noise.is_none() && ranking.rows.iter().any(|row| row.control))
        .then(|| String::from("fewer than 6 valid pairs of the control: nothing is decided"));
    let discarded = (ranking.discarded > 0).then(|| format!("{} instance(s) discarded", ranking.discarded));
    let notes: Vec<String> = [bound, noise, few, discarded].into_iter().flatten().collect();
    if notes.is_empty() { String::new() } else { wrapped("  ", &notes.join(" · ")) }
}

/// What became of messages on their way to receives that were dropped, beside what the documentation says of it.
fn cancelled(ranking: &Ranking) -> String {
    let headers = ["receives that wait are dropped", "documented", "dropped", "lost", "rate"];
    let rows = ranking.rows.iter().filter(|row| !row.control).map(|row| {
        let mut columns = vec![row.spec.name.clone(), row.spec.cancel.to_string()];
        match &row.result {
            Some(result) => columns.extend([
                units::grouped(result.dropped.0),
                units::grouped(result.dropped.1),
                units::rate(1e9 / result.metric_ns),
            ]),
            None => columns.push(String::from("failed")),
        }
        columns
    });
    let table = columns(&headers, &[Left, Left, Right, Right, Right], &rows.collect::<Vec<_>>());
    format!("{}\n{table}{}", ranking.cell, caveats(ranking))
}

/// What a burst took of memory.
fn held(ranking: &Ranking) -> String {
    let headers = ["memory held", "empty", "by the burst", "after it"];
    let rows = ranking.rows.iter().filter(|row| !row.control).map(|row| {
        let held = row.result.as_ref().and_then(|result| result.held);
        let sizes = held.map(|held| held.map(units::memory).to_vec());
        [vec![row.spec.name.clone()], sizes.unwrap_or_else(|| vec![String::from("failed")])].concat()
    });
    let table = columns(&headers, &[Left, Right, Right, Right], &rows.collect::<Vec<_>>());
    format!("{}, {} messages\n{table}{}", ranking.cell, units::grouped(BURST), caveats(ranking))
}

/// What it takes to write a message down and to read it back, and how much comes out.
fn coded(ranking: &Ranking) -> String {
    let scope = ranking.cell.scope.to_string();
    let headers = [&scope, "encode", "decode", "bytes", "÷limit", "against the best", ""];
    let rows = ranking.rows.iter().map(|row| {
        let label = labelled(row);
        let Some((result, codec)) = row.result.as_ref().and_then(|result| Some((result, result.codec?))) else {
            return vec![label, without(row).to_owned()];
        };
        let limit = ranking.bound.as_ref().map(|bound| result.metric_ns / bound.ns);
        vec![
            label,
            units::duration(codec.encode_ns),
            units::duration(codec.decode_ns),
            units::grouped(codec.encoded_bytes.round() as u64),
            limit.map_or(String::from("-"), |ratio| format!("{}×", units::three_digits(ratio))),
            versus(result),
            verdict(row, result),
        ]
    });
    let alignment = [Left, Right, Right, Right, Right, Left, Left];
    let table = columns(&headers, &alignment, &rows.collect::<Vec<_>>());
    format!("{}\n{table}{}{}", ranking.cell, caveats(ranking), notes(ranking))
}

/// Fairness between producers: for each kind of cell that has several, what the slowest got through as a part of the mean,
/// beside the number of producers. Of cells that differ in something else the first is shown; records have all.
pub(crate) fn fairness(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    for scope in Scope::ALL {
        for pattern in [
            Pattern::FanIn,
            Pattern::Merge,
            Pattern::Writers,
            Pattern::Connections,
            Pattern::Mpmc,
            Pattern::RequestReply,
        ] {
            let mut like = rankings
                .iter()
                .filter(|ranking| (ranking.cell.scope, ranking.cell.pattern) == (scope, pattern))
                .filter(|ranking| ranking.cell.load == Load::Saturated)
                .filter(|ranking| ranking.rows.iter().any(|row| fair(row).is_some()));
            let Some(first) = like.next() else { continue };
            let same =
                |ranking: &&Ranking| Cell { producers: first.cell.producers, ..ranking.cell.clone() } == first.cell;
            let cells: Vec<_> = std::iter::once(first).chain(like.filter(same)).take(8).collect();
            let name = format!("{scope}");
            let heads: Vec<_> =
                cells.iter().map(|of| format!("{}→{}", of.cell.senders(), of.cell.consumers())).collect();
            let rows = first.rows.iter().filter(|row| !row.control).map(|row| {
                let mut line = vec![short(row).to_owned()];
                line.extend(cells.iter().map(|of| {
                    let here = of.rows.iter().find(|other| !other.control && other.spec.name == row.spec.name);
                    here.and_then(fair).map_or(String::from("-"), |part| format!("{part:.2}"))
                }));
                line
            });
            let headers: Vec<&str> = std::iter::once(&*name).chain(heads.iter().map(String::as_str)).collect();
            let alignment: Vec<_> = std::iter::once(Left).chain(heads.iter().map(|_| Right)).collect();
            text.push_str(&columns(&headers, &alignment, &rows.collect::<Vec<_>>()));
            text.push('\n');
        }
    }
    if text.is_empty() { text } else { format!("Fairness: the slowest producer's messages ÷ the mean\n\n{text}") }
}

/// System calls for a message, or round trip: of each distance the first cell of every pattern, kind of payload
/// and way to wait.
pub(crate) fn system_calls(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    for scope in Scope::ALL {
        let mut cells: Vec<&Ranking> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for ranking in rankings.iter().filter(|ranking| ranking.cell.scope == scope) {
            let cell = &ranking.cell;
            let mut rows = ranking.rows.iter().filter(|row| !row.control && row.calls.is_some()).peekable();
            // What carries no bytes has a cell of its own.
            let kind = |cell: &Cell| (cell.pattern, cell.wait, cell.payload.kind());
            let like = |other: &&Ranking| kind(&other.cell) == kind(cell);
            if rows.peek().is_some() && !cells.iter().any(like) {
                cells.push(ranking);
                rows.for_each(|row| {
                    if !names.contains(&short(row)) {
                        names.push(short(row))
                    }
                });
            }
        }
        if cells.is_empty() {
            continue;
        }
        let heads = cells.iter().map(|Ranking { cell, .. }| match cell.wait {
            Wait::Block => format!("{} {}", cell.pattern, cell.payload),
            wait => format!("{} {} {wait}", cell.pattern, cell.payload),
        });
        let headers: Vec<String> = std::iter::once(scope.to_string()).chain(heads).collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let rows = names.iter().map(|name| {
            let of = |ranking: &&Ranking| {
                let row = ranking.rows.iter().find(|row| short(row) == *name);
                row.and_then(|row| row.calls).map_or(String::from("-"), |calls| format!("{calls:.1}"))
            };
            std::iter::once((*name).to_owned()).chain(cells.iter().map(of)).collect()
        });
        let alignment: Vec<_> = std::iter::once(Left).chain(cells.iter().map(|_| Right)).collect();
        text.push_str(&columns(&headers, &alignment, &rows.collect::<Vec<Vec<String>>>()));
        text.push('\n');
    }
    match text.is_empty() {
        true => text,
        false => format!("System calls a message or round trip, of all processes, counted apart\n\n{text}"),
    }
}

fn fair(row: &Row) -> Option<f64> {
    row.result.as_ref()?.fairness
}

/// What must be said of a cell's mechanisms beside their figures: lesser promises, other capacities, failures, broken
/// promises, losses.
pub(crate) fn caveats(ranking: &Ranking) -> String {
    let mut text = String::new();
    let promises = ranking.rows.iter().filter(|row| !row.control).map(|row| {
        // The messages of a single producer are all that there are.
        let in_order = row.spec.ordering == Ordering::PerProducer && ranking.cell.producers == 1;
        (short(row), if in_order { Ordering::Strict } else { row.spec.ordering })
    });
    text.push_str(&lesser_orders(&promises.collect::<Vec<_>>()));
    let asked = ranking.cell.capacity as u64;
    // Where each message waits for its answer, one is under way.
    let counts = !ranking.cell.pattern.asks();
    let other = ranking
        .rows
        .iter()
        .filter(|row| counts && !row.control && row.effective_capacity.is_some_and(|capacity| capacity != asked));
    let other: Vec<_> =
        other.filter_map(|row| Some(format!("{} {}", short(row), units::grouped(row.effective_capacity?)))).collect();
    if !other.is_empty() {
        let words = format!("effective capacity, {} asked for: {}", units::grouped(asked), other.join(", "));
        text.push_str(&wrapped("  ", &words));
    }
    for row in &ranking.rows {
        if let Some((count, why)) = &row.failed {
            let why = lines(&with_remedy(why)).replace('\n', "\n    ");
            text.push_str(&format!("  {} failed in {count} instance(s): {why}\n", row.spec.name));
        }
        if let Some(breach) = &row.breach {
            text.push_str(&format!("  {} broke its promise: {breach}\n", row.spec.name));
        }
        if let Some(result) =
            row.result.as_ref().filter(|result| row.spec.loss == Loss::BestEffort && result.lost > 0.0)
        {
            let more = if result.lost > MAX_LOSS {
                format!(", more than the {} to stay below", percent(MAX_LOSS))
            } else {
                String::new()
            };
            let (name, lost) = (&row.spec.name, percent(result.lost));
            let words = format!("{name} lost {lost} of the messages it was given{more}{}", offered(ranking, result));
            text.push_str(&wrapped("  ", &words));
        }
    }
    text
}

/// What was sent and what arrived of a stream of which something was lost.
fn offered(ranking: &Ranking, result: &RowResult) -> String {
    if ranking.cell.pattern.asks() || ranking.cell.load != Load::Saturated || result.lost >= 1.0 {
        return String::new();
    }
    let delivered = 1e9 / result.metric_ns;
    format!(": {} offered, {} delivered", units::rate(delivered / (1.0 - result.lost)), units::rate(delivered))
}

/// A mechanism's name without its scope, which the heading has.
fn short(row: &Row) -> &str {
    row.spec.name.split_once('/').map_or(row.spec.name.as_str(), |(_, name)| name)
}

/// Which mechanisms keep less of an order than others beside them.
fn lesser_orders(promises: &[(&str, Ordering)]) -> String {
    let mut text = String::new();
    for (order, words) in [
        (Ordering::PerProducer, "each producer's messages are in order, those of several are not"),
        (Ordering::Unordered, "messages are in no order"),
    ] {
        let names: Vec<&str> = promises.iter().filter(|(_, of)| *of == order).map(|(name, _)| *name).collect();
        if !names.is_empty() && names.len() < promises.len() {
            text.push_str(&wrapped("  ", &format!("{words}: {}", names.join(", "))));
        }
    }
    text
}

/// The longest name that has room beside a whole line of figures.
const LONGEST_NAME: usize = 16;

/// What a row is called; a control is marked. A long name goes on in a second line, from its last dot.
fn labelled(row: &Row) -> String {
    let name = short(row);
    let label = if row.control { format!("{name} (A/A)") } else { name.to_owned() };
    match label.rfind('.') {
        Some(dot) if name.len() > LONGEST_NAME => format!("{}\n  {}", &label[..dot], &label[dot..]),
        _ => label,
    }
}

/// Why a row has no figures.
fn without(row: &Row) -> &'static str {
    if row.breach.is_some() {
        "broke its promise"
    } else if row.failed.is_some() {
        "failed"
    } else {
        "no valid instance"
    }
}

fn columns_of(ranking: &Ranking, row: &Row, round_trip: bool) -> Vec<String> {
    let label = labelled(row);
    let Some(result) = &row.result else { return vec![label, without(row).to_owned()] };
    let optional = |value: Option<f64>, show: &dyn Fn(f64) -> String| value.map_or(String::from("-"), show);
    let limit = ranking.bound.as_ref().map(|bound| result.metric_ns / bound.ns);
    let limit = optional(limit, &|ratio| format!("{}×", units::three_digits(ratio)));
    let time = |ns: Option<f64>| optional(ns, &units::duration);
    let figures = if ranking.cell.load != Load::Saturated {
        [time(result.p50_ns), time(result.p99_ns), time(result.p999_ns)]
    } else if round_trip {
        [time(result.p50_ns), time(result.p99_ns), limit]
    } else {
        // Between ends in one process most messages are handed on, not copied.
        let each = match ranking.cell.payload.len() {
            len if len > 8 && !ranking.cell.scope.in_process() => units::bandwidth(len as f64 * 1e9 / result.metric_ns),
            _ => units::duration(result.metric_ns),
        };
        [units::rate(1e9 / result.metric_ns), each, limit]
    };
    let [first, second, third] = figures;
    vec![
        label,
        first,
        second,
        third,
        optional(result.cpu_ns, &units::duration),
        optional(result.switches, &|switches| format!("{switches:.2}")),
        versus(result),
        verdict(row, result),
    ]
}

/// `1.43× [1.38–1.50]`: how much more time it takes than the best.
fn versus(result: &RowResult) -> String {
    match &result.versus {
        Some(interval) => format!(
            "{}× [{}–{}]",
            units::three_digits((-interval.estimate).exp()),
            units::three_digits((-interval.high).exp()),
            units::three_digits((-interval.low).exp())
        ),
        None => String::new(),
    }
}

fn verdict(row: &Row, result: &RowResult) -> String {
    match (&result.verdict, row.spec.standing) {
        (Some(verdict), _) => verdict.to_string(),
        (None, Standing::Reference) => String::new(),
        (None, _) => format!("best {}", row.spec.ownership),
    }
}

/// `3.2 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{} %", units::three_digits(part * 100.0))
}

/// The mechanisms that could not take part in a cell, by reason.
pub(crate) fn refusals(record: &Record) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for Refusal { case, why } in &record.refusals {
        let at = reasons.iter().position(|(known, _)| known == why).unwrap_or_else(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        let names = &mut reasons[at].1;
        if !names.contains(&&*case.mechanism) {
            names.push(&case.mechanism);
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = reasons.into_iter().map(|(why, names)| vec![plain(why), plain(&gathered(&names))]).collect();
    format!("Not in every cell of its distance:\n{}\n", columns(&[], &[], &rows))
}

/// Names in a row; those that differ behind a dot only are written as one, `task/select-all.{tokio,flume}`.
fn gathered(names: &[&str]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in names {
        match name.split_once('.') {
            Some((before, after)) => {
                match groups.last_mut().filter(|(last, afters)| last == &before && !afters.is_empty()) {
                    Some((_, afters)) => afters.push(after),
                    None => groups.push((before, vec![after])),
                }
            }
            None => groups.push((name, Vec::new())),
        }
    }
    let words = groups.into_iter().map(|(before, afters)| match &*afters {
        [] => before.to_owned(),
        [after] => format!("{before}.{after}"),
        afters => format!("{before}.{{{}}}", afters.join(",")),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a verdict says that there is a difference.
pub(crate) fn decided(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesser_order_is_said_where_others_keep_more() {
        let promises = [("a", Ordering::Strict), ("b", Ordering::PerProducer), ("c", Ordering::PerProducer)];
        let said = lesser_orders(&promises);
        assert!(said.contains("each producer's") && said.ends_with("not: b, c\n"), "{said}");
        assert_eq!(lesser_orders(&promises[1..]), "", "none keeps more");
    }

    #[test]
    fn names_of_one_family_are_written_as_one() {
        assert_eq!(
            gathered(&["task/a", "task/b.x", "task/b.y", "task/c.x", "task/b"]),
            "task/a task/b.{x,y} task/c.x task/b"
        );
    }
}
