//! The report of a record, or of two ([`changes`]): an HTML page that needs nothing else, Markdown, and charts as SVG.
//!
//! Nothing in a record is trusted. All text goes through maud, which escapes it by its type, and
//! through [`cleaned`] at the end. Figures that cannot be drawn are left out of charts.

mod answers;
mod cells;
pub(crate) mod changes;
mod charts;
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
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::answers::{Answers, scope_heading};
use self::instances::Instances;
use crate::summary;
use crate::table::capitalised;

pub(crate) use self::plot::{Chart, Kind, Lines, Point, Series, Unit, XAxis, YAxis};
pub(crate) use markdown::markdown;
pub(crate) use write::write;

/// The page's look and its script. Neither has a character that XML does not allow in text.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What a browser must know first, in a form that is HTML and XML.
const META: &str = r#"<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>"#;

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

/// A whole page. `head` has the links to the sections of `main`, of which one is `machine`; `source`
/// is what the page was written from.
fn document(title: &str, head: &Markup, main: &Markup, source: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" xmlns="http://www.w3.org/1999/xhtml" {
            head {
                (PreEscaped(META))
                title { (title) }
                style { (PreEscaped(svg::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#main" { "Skip to the answers" }
                (head)
                main id="main" { (main) }
                footer {
                    p { "Written by " a href="#machine" { "estafette" } " from " (source) ". The page loads nothing." }
                }
                script { (PreEscaped("/*<![CDATA[*/")) (PreEscaped(SCRIPT)) (PreEscaped("/*]]>*/")) }
            }
        }
    };
    cleaned(&page.into_string())
}

/// Returns the charts as files: names without a suffix, and SVG.
pub(crate) fn svgs(record: &Record) -> Vec<(String, String)> {
    let rankings = ranking::rank(record);
    let instances = Instances::of(record);
    let charts = Scope::ALL.into_iter().flat_map(|scope| charts::charts(&rankings, &instances, scope));
    charts.map(|chart| (chart.id().to_owned(), svg(&chart))).collect()
}

/// Returns a chart as a file.
pub(crate) fn svg(chart: &Chart) -> String {
    cleaned(&chart.svg(true).into_string())
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

/// A chart with its data.
fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption { (chart.title()) }
            (chart.svg(false))
            p class="facts" { (chart.note()) }
            details { summary { "Data of this chart" } (chart.grid().html()) }
        }
    }
}

/// Replaces characters that neither HTML nor XML allow, and those that reverse the order of text.
fn cleaned(text: &str) -> String {
    let is_bad = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    if text.contains(is_bad) { text.replace(is_bad, "\u{fffd}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_page_must_not_have_are_replaced() {
        assert_eq!(cleaned("a\0b\u{1b}\u{202e}\u{ffff}\n"), "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\n");
    }

    #[test]
    fn the_style_and_the_script_are_text_of_xml_too() {
        assert!(!STYLE.contains(['<', '&']) && !svg::STYLE.contains(['<', '&']));
        assert!(!SCRIPT.contains("]]>") && !SCRIPT.contains("</"));
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval"));
    }
}
