//! The report of a record, or of two ([`changes`]): an HTML page that needs nothing else, Markdown,
//! and charts as SVG.
//!
//! Nothing in a record is trusted. All text goes through maud, which escapes it by its type, and
//! through [`cleaned`](document::cleaned) at the end. Figures that cannot be drawn are left out of
//! charts.

mod answers;
mod cells;
pub(crate) mod changes;
mod chart;
mod charts;
mod document;
mod grid;
mod instances;
mod machine;
mod markdown;
mod plot;
mod svg;
mod trust;
mod write;

use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::ranking::{self, Ranking};
use estafette_measure::record::Record;
use estafette_measure::spec::Scope;
use maud::{Markup, html};

use self::answers::{Answers, scope_heading};
use self::document::{document, figure};
use self::instances::Instances;
use crate::summary;
use crate::table::capitalised;

pub(crate) use self::chart::Chart;
pub(crate) use self::document::svg;
pub(crate) use self::plot::{Kind, Lines, Point, Series, Unit, XAxis, YAxis};
pub(crate) use markdown::markdown;
pub(crate) use write::write;

/// Returns the page.
pub(crate) fn html(record: &Record) -> String {
    let rankings = ranking::rank(record);
    let instances = Instances::of(record);
    let answers = answers::answers(&rankings);
    let scopes: Vec<Scope> =
        Scope::ALL.into_iter().filter(|scope| rankings.iter().any(|ranking| ranking.cell.scope == *scope)).collect();
    let title = title(record);
    let main = html! {
        (first_section(record, &rankings, &answers))
        @for scope in &scopes { (of_scope(&rankings, &instances, *scope)) }
        section id="trust" aria-labelledby="trust-heading" {
            h2 id="trust-heading" { "How far to trust it" }
            (trust::html(record, &rankings))
        }
        section id="machine" aria-labelledby="machine-heading" {
            h2 id="machine-heading" { "The machine, and how to repeat the run" }
            (machine::html(record))
        }
    };
    document(&title, &head(record, &title, &scopes), &main, "one record")
}

/// Returns the charts as files: names without a suffix, and SVG.
pub(crate) fn svgs(record: &Record) -> Vec<(String, String)> {
    let rankings = ranking::rank(record);
    let instances = Instances::of(record);
    let charts = Scope::ALL.into_iter().flat_map(|scope| charts::charts(&rankings, &instances, scope));
    charts.map(|chart| (chart.id().to_owned(), svg(&chart))).collect()
}

fn title(record: &Record) -> String {
    let host = |machine: &Fingerprint| {
        let cores = if machine.cores == 1 { String::from("1 core") } else { format!("{} cores", machine.cores) };
        format!("{}, {cores}", machine.cpu)
    };
    let here = host(&record.fingerprint);
    match &record.peer {
        Some(peer) => format!("Passing messages between hosts: {here} → {}", host(&peer.fingerprint)),
        None => format!("Passing messages on {here}"),
    }
}

fn head(record: &Record, title: &str, scopes: &[Scope]) -> Markup {
    let date = record.started.split('T').next().unwrap_or_default();
    let rounds = if record.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", record.rounds) };
    html! {
        header {
            h1 { (title) }
            p class="facts" {
                "Measured " (date) " in " (rounds) " · Linux " (record.fingerprint.kernel)
                @if record.fingerprint.virtual_machine { " · virtual machine" }
                " · Estafette " (record.tool)
            }
            nav aria-label="Sections" {
                ul {
                    li { a href="#answers" { "What to use" } }
                    @for scope in scopes { li { a href=(format!("#{scope}")) { (capitalised(&scope.to_string())) } } }
                    li { a href="#trust" { "Trust" } }
                    li { a href="#machine" { "Machine" } }
                }
            }
        }
    }
}

fn first_section(record: &Record, rankings: &[Ranking], answers: &[Answers]) -> Markup {
    let bounds = summary::bounds(rankings);
    html! {
        section id="answers" aria-labelledby="answers-heading" {
            h2 id="answers-heading" { "What to use" }
            @if answers.is_empty() { p { "The record has no results that are ranked." } }
            (answers::html(answers))
            @if !bounds.is_empty() { p class="facts" { (bounds) } }
            @if record.rounds < record.rounds_planned {
                p class="facts" { "The run was interrupted: " (record.rounds) " of " (record.rounds_planned) " rounds." }
            }
        }
    }
}

/// The section of one scope: its charts and its tables.
fn of_scope(rankings: &[Ranking], instances: &Instances<'_>, scope: Scope) -> Markup {
    let charts = charts::charts(rankings, instances, scope);
    let cells = rankings.iter().enumerate().filter(|(_, ranking)| ranking.cell.scope == scope);
    let heading = format!("{scope}-heading");
    html! {
        section id=(scope) aria-labelledby=(heading) {
            h2 id=(heading) { (scope_heading(scope)) }
            @if !charts.is_empty() {
                h3 { "Charts" }
                div class="charts" { @for chart in &charts { (figure(chart)) } }
            }
            h3 { "Tables" }
            div class="tables" { @for (number, ranking) in cells { (cells::html(ranking, number)) } }
        }
    }
}
