//! The two runs: their machines and builds side by side, and the commands that repeat them.

use estafette_measure::record::Record;
use maud::{Markup, html};

use super::super::grid::{Column, Entry, Grid};
use super::super::machine;
use super::pair::{NAMES, Pair};

/// The run in one line: file, start, rounds, version.
pub(super) fn line(file: &str, record: &Record) -> String {
    let rounds = if record.rounds == 1 { String::from("1 round") } else { format!("{} rounds", record.rounds) };
    format!("{file} · started {} · {rounds} · Estafette {}", record.started, record.tool)
}

/// The section's content.
pub(super) fn html(pair: &Pair<'_>) -> Markup {
    html! {
        @for (name, record) in NAMES.into_iter().zip(pair.records) {
            @if let Some(command) = machine::command(record) {
                p { "Run " (name) " again:" }
                pre tabindex="0" role="group" aria-label=(format!("The command of run {name}")) { code { (command) } }
            } @else {
                p { "The record of run " (name) " does not have the command: it was written by an older version." }
            }
        }
        (grid(pair).html())
    }
}

/// The properties of both runs, and which of them differ.
pub(super) fn grid(pair: &Pair<'_>) -> Grid {
    let [a, b] = pair.records.map(facts);
    let mut names: Vec<&str> = a.iter().map(|(name, _)| *name).collect();
    names.extend(b.iter().map(|(name, _)| *name).filter(|name| a.iter().all(|(known, _)| known != name)));
    let value = |facts: &[(&str, String)], name: &str| {
        let found = facts.iter().find(|(known, _)| *known == name);
        found.map_or_else(|| String::from("not recorded"), |(_, value)| value.clone())
    };
    let rows = names.into_iter().map(|name| {
        let (a, b) = (value(&a, name), value(&b, name));
        let differs = if a == b { "" } else { "differs" };
        [name.to_owned(), a, b, differs.to_owned()].map(Entry::text).into()
    });
    let columns = ["property", "A", "B", "difference"].map(Column::text).into();
    Grid { caption: String::from("The machines, builds and options of both runs"), columns, rows: rows.collect() }
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let mut facts = machine::facts(record);
    let machine = record.fingerprint.machine.clone();
    facts.push(("hash of the machine's identifier", machine.unwrap_or_else(|| String::from("unknown"))));
    if let Some(limits) = &record.limits {
        let cpus: Vec<String> = limits.cpus.iter().map(ToString::to_string).collect();
        facts.push(("CPUs used", cpus.join(", ")));
    }
    if let Some(command) = machine::command(record) {
        facts.push(("command", command));
    }
    facts
}
