//! The report of two runs: what changed, in which cases, and what differs in the machines and
//! commands.
//!
//! The comparison is that of `estafette compare`. Where it refuses the records, the report says why
//! in its first lines and compares nothing.

mod charts;
mod doubts;
mod markdown;
mod pair;
mod runs;
mod verdicts;

use estafette_measure::ranking::{self, Ranking};
use estafette_measure::spec::Scope;
use maud::{Markup, html};

use self::doubts::doubts;
pub(crate) use self::markdown::markdown;
use self::pair::NAMES;
pub(crate) use self::pair::Pair;
use super::answers::scope_heading;
use super::chart::Chart;
use super::document::{document, figure, svg};
use super::instances::Instances;
use crate::table::capitalised;

/// Returns the page.
pub(crate) fn html(pair: &Pair<'_>) -> String {
    let rankings = pair.records.map(ranking::rank);
    let charts = of_scopes(pair, &rankings);
    let title = format!("What changed from {} to {}", pair.files[0], pair.files[1]);
    let main = html! {
        section id="answers" aria-labelledby="answers-heading" {
            h2 id="answers-heading" { "What changed" }
            (verdicts::html(&pair.comparison))
        }
        @if let Ok(comparison) = &pair.comparison {
            section id="cases" aria-labelledby="cases-heading" {
                h2 id="cases-heading" { "Changes of each case" }
                div class="tables" {
                    @for (scope, grid) in verdicts::grids(comparison) {
                        article class="cell" { h3 { (scope_heading(scope)) } (grid.html()) }
                    }
                }
            }
        }
        @for (scope, charts) in &charts {
            section id=(scope) aria-labelledby=(format!("{scope}-heading")) {
                h2 id=(format!("{scope}-heading")) { (scope_heading(*scope)) ": charts" }
                div class="charts" { @for chart in charts { (figure(chart)) } }
            }
        }
        section id="trust" aria-labelledby="trust-heading" {
            h2 id="trust-heading" { "How far to trust it" }
            @for (title, sentences) in doubts(pair, &rankings) {
                @if let Some(title) = title { h3 { (title) } }
                @for sentence in &sentences { p { (sentence) } }
            }
        }
        section id="machine" aria-labelledby="machine-heading" {
            h2 id="machine-heading" { "The machines, and how to repeat the runs" }
            (runs::html(pair))
        }
    };
    document(&title, &head(pair, &title, &charts), &main, "two records")
}

/// Returns the charts as files: names without a suffix, and SVG.
pub(crate) fn svgs(pair: &Pair<'_>) -> Vec<(String, String)> {
    let rankings = pair.records.map(ranking::rank);
    let charts = of_scopes(pair, &rankings).into_iter().flat_map(|(_, charts)| charts);
    charts.map(|chart| (chart.id().to_owned(), svg(&chart))).collect()
}

/// The charts of both runs, of each scope that has some. None if the runs are not compared.
fn of_scopes(pair: &Pair<'_>, rankings: &[Vec<Ranking>; 2]) -> Vec<(Scope, Vec<Chart>)> {
    if pair.comparison.is_err() {
        return Vec::new();
    }
    let instances = pair.records.map(Instances::of);
    let of_scope = |scope: Scope| {
        let [a, b] = [0, 1].map(|at| super::charts::charts(&rankings[at], &instances[at], scope));
        (scope, charts::merged(a, b))
    };
    Scope::ALL.into_iter().map(of_scope).filter(|(_, charts)| !charts.is_empty()).collect()
}

fn head(pair: &Pair<'_>, title: &str, charts: &[(Scope, Vec<Chart>)]) -> Markup {
    html! {
        header {
            h1 { (title) }
            @for (at, name) in NAMES.into_iter().enumerate() {
                p class="facts" { strong { (name) } ": " (runs::line(&pair.files[at], pair.records[at])) }
            }
            nav aria-label="Sections" {
                ul {
                    li { a href="#answers" { "What changed" } }
                    @if pair.comparison.is_ok() { li { a href="#cases" { "Cases" } } }
                    @for (scope, _) in charts { li { a href=(format!("#{scope}")) { (capitalised(&scope.to_string())) } } }
                    li { a href="#trust" { "Trust" } }
                    li { a href="#machine" { "Machines" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use estafette_measure::record::Record;

    use super::*;
    use crate::comparison::tests::{changed, record};

    fn pair<'a>(a: &'a Record, b: &'a Record) -> Pair<'a> {
        Pair::of(["a.json", "b.json"].map(String::from), [a, b]).unwrap()
    }

    #[test]
    fn the_first_section_has_the_counts_and_the_cases() {
        let (a, b) = (record(), changed("process/pipe", 0.8));
        let page = html(&pair(&a, &b));
        let first = &page[page.find("id=\"answers\"").unwrap()..page.find("id=\"cases\"").unwrap()];
        assert!(first.contains("2 of 4 cases are faster in B, 0 slower, 2 about the same"), "{first}");
        assert!(first.contains("Faster in B: 2 cases") && first.contains("+24.9 %"), "{first}");
        assert!(!first.contains("Slower in B"), "{first}");
    }

    #[test]
    fn records_of_different_machines_are_not_compared() {
        let (a, mut b) = (record(), record());
        b.fingerprint.cpu = String::from("Z80 <b>");
        let page = html(&pair(&a, &b));
        let first = &page[page.find("id=\"answers-heading\"").unwrap()..page.find("id=\"trust\"").unwrap()];
        assert!(first.contains("The two records come from different machines"), "{first}");
        assert!(first.contains("Z80 &lt;b&gt;") && !first.contains("<table"), "{first}");
        assert!(!page.contains("id=\"cases\"") && !page.contains("<svg"), "nothing is compared");
        assert!(page.contains("Z80 &lt;b&gt;</td><td>differs</td>"), "{page}");
        assert!(svgs(&pair(&a, &b)).is_empty());
    }
}
