//! How far the results can be trusted: noise, controls, discarded instances, verification and
//! failures.

use std::collections::BTreeMap;

use estafette_measure::message::Faults;
use estafette_measure::ranking::Ranking;
use estafette_measure::record::{Outcome, Record};
use estafette_measure::units;
use maud::{Markup, html};

use super::grid::{Column, Entry, Grid};
use crate::table::{percent, reasons, times};
use crate::{other_load, summary};

/// The section's content.
pub(super) fn html(record: &Record, rankings: &[Ranking]) -> Markup {
    let discarded = discarded(record);
    let failures = failures(rankings);
    let refusals = reasons(record.refusals.iter().map(|refusal| (&*refusal.case.mechanism, &*refusal.why)));
    html! {
        @for sentence in summary::doubts(record, rankings) { p { (sentence) } }
        @if let Some(sentence) = other_load::sentence(record) { p { (sentence) } }
        p { (verification(record)) }
        h3 { "Noise of each table" }
        (noise(rankings).html())
        @if !discarded.rows.is_empty() { h3 { "Discarded instances" } (discarded.html()) }
        @if !failures.rows.is_empty() { h3 { "Failures and broken promises" } (failures.html()) }
        @if !refusals.is_empty() { h3 { "Not in every table of its scope" } (refused(refusals).html()) }
    }
}

/// What the consumers found wrong, in one sentence.
fn verification(record: &Record) -> String {
    let (mut delivered, mut faults) = (0_u64, Faults::default());
    for instance in &record.instances {
        if let Outcome::Measured(figures) = &instance.outcome {
            delivered = delivered.saturating_add(figures.delivered);
            faults.lost = faults.lost.saturating_add(figures.faults.lost);
            faults.duplicated = faults.duplicated.saturating_add(figures.faults.duplicated);
            faults.reordered = faults.reordered.saturating_add(figures.faults.reordered);
            faults.damaged = faults.damaged.saturating_add(figures.faults.damaged);
        }
    }
    let [delivered, lost, duplicated, reordered, damaged] =
        [delivered, faults.lost, faults.duplicated, faults.reordered, faults.damaged].map(units::grouped);
    format!(
        "Every message was verified: {delivered} arrived undamaged, {damaged} damaged; {lost} were lost, {duplicated} \
         duplicated and {reordered} reordered. Lossy and unordered mechanisms may lose and reorder; what breaks a promise \
         is listed as a failure."
    )
}

/// The noise of each cell.
fn noise(rankings: &[Ranking]) -> Grid {
    let columns = vec![
        Column::text("table"),
        Column::number("control"),
        Column::number("noise"),
        Column::number("noise floor"),
        Column::number("detects differences from"),
        Column::number("discarded"),
    ];
    let ratio = |ln: Option<f64>| Entry::optional(ln, ln.map_or(String::from("-"), |ln| percent(ln.exp_m1())));
    let rows = rankings.iter().map(|ranking| {
        let control = ranking.control.as_ref().and_then(|row| row.result.as_ref()?.versus.as_ref());
        vec![
            Entry::text(ranking.cell.to_string()),
            Entry::optional(control.map(|interval| interval.estimate), control.map_or(String::from("-"), times)),
            ratio(ranking.noise),
            ratio(ranking.floor),
            ratio(ranking.resolution()),
            Entry::number(ranking.discarded as f64, ranking.discarded.to_string()),
        ]
    });
    let caption =
        String::from("How much a mechanism differs from itself, and the smallest difference that each table detects");
    Grid { caption, columns, rows: rows.collect() }
}

/// The most rows of discarded instances; the CSV table has all.
const MAX_DISCARDED: usize = 200;

/// The discarded instances, by mechanism, cell and reason.
fn discarded(record: &Record) -> Grid {
    let mut counts: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    for instance in &record.instances {
        if let Outcome::Measured(figures) = &instance.outcome
            && let Some(reason) = &figures.discarded
        {
            let case = &record.entrants[instance.entrant].case;
            let key = (case.mechanism.clone(), case.cell.to_string(), reason.to_string());
            *counts.entry(key).or_default() += 1;
        }
    }
    let shown = counts.len().min(MAX_DISCARDED);
    let caption = match counts.len() - shown {
        0 => String::from("Instances that do not count, by a cause that was defined before the run"),
        more => format!(
            "Instances that do not count, by a cause that was defined before the run; {more} more in the CSV table"
        ),
    };
    let columns =
        vec![Column::text("mechanism"), Column::text("table"), Column::text("cause"), Column::number("count")];
    let rows = counts.into_iter().take(MAX_DISCARDED).map(|((mechanism, cell, reason), count)| {
        vec![
            Entry::text(mechanism),
            Entry::text(cell),
            Entry::text(reason),
            Entry::number(count as f64, count.to_string()),
        ]
    });
    Grid { caption, columns, rows: rows.collect() }
}

/// The mechanisms that failed or broke a promise.
fn failures(rankings: &[Ranking]) -> Grid {
    let mut rows = Vec::new();
    for ranking in rankings {
        for row in &ranking.rows {
            let cell = || Entry::text(ranking.cell.to_string());
            if let Some((count, why)) = &row.failed {
                let what = format!("failed in {count} instance(s): {why}");
                rows.push(vec![Entry::text(&row.spec.name), cell(), Entry::text(what)]);
            }
            if let Some(breach) = &row.breach {
                rows.push(vec![
                    Entry::text(&row.spec.name),
                    cell(),
                    Entry::text(format!("broke its promise: {breach}")),
                ]);
            }
        }
    }
    let columns = vec![Column::text("mechanism"), Column::text("table"), Column::text("what happened")];
    Grid { caption: String::from("Mechanisms that failed or broke a promise"), columns, rows }
}

fn refused(refusals: Vec<[String; 2]>) -> Grid {
    let rows = refusals.into_iter().map(|[why, names]| vec![Entry::text(why), Entry::text(names)]);
    let columns = vec![Column::text("reason"), Column::text("mechanisms")];
    Grid { caption: String::from("Mechanisms that could not run in some tables"), columns, rows: rows.collect() }
}
