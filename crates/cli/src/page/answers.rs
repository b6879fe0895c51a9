//! The first section: what to use, for each scope.

use estafette_measure::case::Load;
use estafette_measure::ranking::{Ranking, RowResult};
use estafette_measure::spec::Scope;
use estafette_measure::units;
use maud::{Markup, html};

use crate::table::matrix::{self, Advice, Axis};
use crate::table::{best_candidate, capitalised, list, outcome, ratio, short};

/// The answers of one scope.
pub(super) struct Answers {
    pub(super) scope: Scope,
    pub(super) answers: Vec<TableAnswer>,
}

/// The answers for cells that differ in one value only.
pub(super) struct TableAnswer {
    /// The cell, without its scope and with the name of the axis instead of the value.
    pub(super) case: String,
    pub(super) parts: Vec<Part>,
}

/// One piece of advice.
pub(super) struct Part {
    /// The values on the axis for which it holds: `64B and 1KiB`. Empty without an axis.
    pub(super) at: String,
    /// `Use pipe`, `Not decided between a and b`.
    pub(super) words: String,
    pub(super) certainty: TableCertainty,
    /// The figure of the fastest, and what the next one costs.
    pub(super) more: String,
    /// The number of the first cell for which it holds.
    pub(super) cell: usize,
}

/// How certain a piece of advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableCertainty {
    /// One mechanism is the fastest.
    Decided,
    /// Several are equal within 5 %.
    Equal,
    /// The measurement does not tell.
    Open,
}

impl TableCertainty {
    /// What a badge says beside the advice. Advice that is not decided says so itself.
    fn word(self) -> Option<&'static str> {
        match self {
            TableCertainty::Decided => Some("decided"),
            TableCertainty::Equal => Some("equal"),
            TableCertainty::Open => None,
        }
    }

    fn class(self) -> &'static str {
        match self {
            TableCertainty::Decided => "decided",
            TableCertainty::Equal => "equal",
            TableCertainty::Open => "open",
        }
    }
}

/// Returns the answers of all scopes that have some.
pub(super) fn answers(rankings: &[Ranking]) -> Vec<Answers> {
    let of_scope = |scope: Scope| {
        let ranked = |ranking: &&Ranking| ranking.cell.scope == scope && ranking.cell.pattern.is_ranked();
        let cells: Vec<&Ranking> = rankings.iter().filter(ranked).collect();
        let number = |cell: &Ranking| rankings.iter().position(|other| std::ptr::eq(other, cell)).unwrap_or(0);
        let answers = matrix::groups(&cells).into_iter().map(|group| answer(&group, &number)).collect();
        Answers { scope, answers }
    };
    Scope::ALL.into_iter().map(of_scope).filter(|answers| !answers.answers.is_empty()).collect()
}

fn answer(group: &[&Ranking], number: &dyn Fn(&Ranking) -> usize) -> TableAnswer {
    let mut group = group.to_vec();
    group.sort_by_key(|ranking| {
        let cell = &ranking.cell;
        (cell.payload.len(), cell.load.rate(), cell.producers, cell.capacity)
    });
    let first = &group[0].cell;
    let axis = group.get(1).and_then(|second| matrix::axis(first, &second.cell));
    let case = axis.map_or_else(|| first.to_string(), |axis| matrix::label(first, axis));
    let case = case.split_once(" · ").map_or(&*case, |(_, rest)| rest).to_owned();
    let parts = matrix::advice(&group, axis).into_iter().map(|advice| part(&advice, axis, number));
    TableAnswer { case, parts: parts.collect() }
}

fn part(advice: &Advice<'_>, axis: Option<Axis>, number: &dyn Fn(&Ranking) -> usize) -> Part {
    let values: Vec<&str> = advice.values.iter().map(String::as_str).collect();
    let ranking = advice.cells[0];
    let outcome = outcome(ranking);
    let certainty = match &outcome {
        Some(outcome) if outcome.leaders.len() == 1 => TableCertainty::Decided,
        Some(outcome) if outcome.is_decided() => TableCertainty::Equal,
        _ => TableCertainty::Open,
    };
    // Cells with the same advice have different figures.
    let is_single = advice.cells.len() == 1;
    let mut more = Vec::new();
    if let Some(result) = first(ranking).filter(|_| is_single && certainty != TableCertainty::Open) {
        let bound = ranking.bound.as_ref();
        let times =
            bound.map(|bound| format!(", {} times its bound", units::three_digits(result.metric_ns / bound.ns())));
        more.push(format!("{}{}.", figure(ranking, result), times.unwrap_or_default()));
    }
    if let Some((row, interval)) = outcome.and_then(|outcome| outcome.next).filter(|_| is_single) {
        more.push(format!("The next, {}, takes {} times as long.", short(row), ratio(&interval)));
    }
    Part {
        at: if axis.is_some() { list(&values, "and") } else { String::new() },
        words: capitalised(&advice.words),
        certainty,
        more: more.join(" "),
        cell: number(ranking),
    }
}

/// The result of the fastest candidate.
fn first(ranking: &Ranking) -> Option<&RowResult> {
    best_candidate(ranking)?.result.as_ref()
}

/// The figure of a result as a user thinks of it: `3.20 us a round trip`, `1.20 GiB/s`.
fn figure(ranking: &Ranking, result: &RowResult) -> String {
    let (cell, ns) = (&ranking.cell, result.metric_ns);
    match cell.load {
        Load::Saturated if cell.pattern.is_round_trip() => format!("{} a round trip", units::duration(ns)),
        Load::Saturated if cell.payload.len() > 8 && !cell.scope.in_process() => {
            let bandwidth = units::bandwidth(cell.payload.len() as f64 * 1e9 / ns);
            format!("{bandwidth}, {} a message", units::duration(ns))
        }
        Load::Saturated => format!("{}, {} a message", units::rate(1e9 / ns), units::duration(ns)),
        Load::Rate(_) | Load::Poisson(_) => format!("99 % within {}", units::duration(ns)),
    }
}

/// The heading of what belongs to a scope.
pub(super) fn scope_heading(scope: Scope) -> &'static str {
    match scope {
        Scope::Task => "Between async tasks",
        Scope::Thread => "Between threads",
        Scope::Process => "Between processes",
        Scope::Network => "Through the network stack",
        Scope::Sandbox => "Through a WASM sandbox",
    }
}

/// The section's cards.
pub(super) fn html(answers: &[Answers]) -> Markup {
    html! {
        div class="cards" {
            @for of_scope in answers {
                article class="card" {
                    h3 { a href=(format!("#{}", of_scope.scope)) { (scope_heading(of_scope.scope)) } }
                    ul { @for answer in &of_scope.answers { li { (one(answer)) } } }
                }
            }
        }
    }
}

fn one(answer: &TableAnswer) -> Markup {
    html! {
        p class="case" { (answer.case) }
        @for part in &answer.parts {
            p class="advice" {
                @if !part.at.is_empty() { span class="at" { (part.at) ":" } " " }
                a class=(part.certainty.class()) href=(format!("#cell-{}", part.cell)) { (part.words) }
                @if let Some(word) = part.certainty.word() {
                    " " span class=(format!("badge {}", part.certainty.class())) { (word) }
                }
            }
            @if !part.more.is_empty() { p class="more" { (part.more) } }
        }
    }
}
