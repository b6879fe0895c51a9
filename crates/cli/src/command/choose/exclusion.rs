//! The mechanisms that are excluded from an answer, each with the reason.

use estafette_measure::plan::Refusal;
use estafette_measure::ranking::{NoResult, Row};
use estafette_measure::record::{Outcome, Record};
use estafette_measure::refusal::RefusalKind;
use estafette_measure::spec::Spec;
use estafette_measure::units;
use serde::Serialize;

use super::question::Question;
use crate::args::Need;
use crate::columns::{plain, wrapped};
use crate::table::{grouped_by_family, percent};

/// A mechanism that is excluded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Excluded {
    pub(super) mechanism: String,
    #[serde(flatten)]
    pub(super) why: Why,
}

/// Why a mechanism is excluded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "why")]
pub(super) enum Why {
    /// It does not promise this.
    Need(Need),
    /// It cannot run what was asked for, or not on this machine.
    CannotRun(String),
    /// It broke its promise while it was measured.
    BrokePromise(String),
    /// All its instances failed.
    Failed(String),
    /// All its instances were discarded.
    Discarded(String),
    /// It lost so many messages of an open loop that it has no 99th percentile.
    LosesTooMuch(String),
    /// Its round trips are longer than a slice, so it may have waited for timers between slices.
    LongerThanSlice(String),
}

impl Excluded {
    /// Why a row of a table is excluded. `None` if it is not, or if it does not concern the
    /// question.
    pub(super) fn of_row(row: &Row, record: &Record, question: &Question, producers: usize) -> Option<Excluded> {
        if !question.concerns(&row.spec) {
            return None;
        }
        let why = match (question.unmet(&row.spec, producers), &row.breach, &row.failed) {
            (Some(need), ..) => Why::Need(need),
            (None, Some(breach), _) => Why::BrokePromise(breach.to_string()),
            _ if row.result.is_some() => return None,
            (None, None, failed) => match (row.no_result, failed) {
                (Some(NoResult::LosesTooMuch(lost)), _) => {
                    Why::LosesTooMuch(format!("lost {} of the messages at this load", percent(lost)))
                }
                (Some(NoResult::LongerThanSlice(ns)), _) => Why::LongerThanSlice(format!(
                    "a round trip takes {}, longer than a slice: measure it with `estafette bench --slice off`",
                    units::duration(ns)
                )),
                (None, Some((_, why))) => Why::Failed(why.clone()),
                (None, None) => Why::Discarded(discarded(record, &row.spec)),
            },
        };
        Some(Excluded { mechanism: row.spec.name.clone(), why })
    }

    /// The mechanisms that the question concerns and that cannot run in any of the cells for a
    /// reason that says something about the mechanism or the machine. Without a named mechanism, a
    /// missing pattern or wait mode is none.
    pub(super) fn of_refusals(
        refusals: &[Refusal],
        question: &Question,
        is_run: impl Fn(&str) -> bool,
    ) -> Vec<Excluded> {
        let mut excluded: Vec<Excluded> = Vec::new();
        for refusal in refusals {
            let name = &refusal.case.mechanism;
            let is_telling = refusal.kind != RefusalKind::Unsupported || !question.names.is_empty();
            let is_named = question.names.is_empty() || question.names.iter().any(|pattern| pattern.matches(name));
            let is_known = excluded.iter().any(|known| known.mechanism == *name);
            if is_telling && is_named && !is_known && !is_run(name) {
                excluded.push(Excluded::refused(refusal));
            }
        }
        excluded
    }

    pub(super) fn refused(refusal: &Refusal) -> Excluded {
        Excluded { mechanism: refusal.case.mechanism.clone(), why: Why::CannotRun(refusal.why.clone()) }
    }

    /// The reason in words.
    fn reason(&self) -> String {
        match &self.why {
            Why::Need(need) => format!("does not meet --need {need}: it does not promise to {}", need.words()),
            Why::CannotRun(why) => format!("cannot run: {why}"),
            Why::BrokePromise(why) => format!("broke its promise: {why}"),
            Why::Failed(why) => format!("failed: {why}"),
            Why::Discarded(why) => format!("every instance discarded: {why}"),
            Why::LosesTooMuch(why) | Why::LongerThanSlice(why) => why.clone(),
        }
    }
}

/// Why a mechanism's last instance was discarded.
fn discarded(record: &Record, spec: &Spec) -> String {
    let is_of_it = |entrant: usize| record.entrants[entrant].case.mechanism == spec.name;
    let reasons = record.instances.iter().rev().filter(|instance| is_of_it(instance.entrant));
    let mut reasons = reasons.filter_map(|instance| match &instance.outcome {
        Outcome::Measured(figures) => figures.discarded.as_ref().map(ToString::to_string),
        Outcome::Failed { .. } => None,
    });
    reasons.next().unwrap_or_else(|| String::from("no instance"))
}

/// The mechanisms with one reason. Figures in a reason may differ from one to the next.
struct Group<'a> {
    reason: String,
    names: Vec<&'a str>,
    /// Whether the figures differ.
    is_example: bool,
}

/// Describes the excluded mechanisms, those with one reason together. At most this number of names
/// is listed for a reason.
pub(super) fn text(excluded: &[Excluded], max_names: usize) -> String {
    let gist = |reason: &str| reason.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in excluded {
        let reason = one.reason();
        match groups.iter_mut().find(|group| gist(&group.reason) == gist(&reason)) {
            Some(group) => {
                group.is_example |= group.reason != reason;
                group.names.push(&one.mechanism);
            }
            None => groups.push(Group { reason, names: vec![&one.mechanism], is_example: false }),
        }
    }
    groups.iter().map(|group| group.text(max_names)).collect()
}

impl Group<'_> {
    fn text(&self, max_names: usize) -> String {
        let more = self.names.len().saturating_sub(max_names);
        let names = grouped_by_family(&self.names[..self.names.len() - more]);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let example = if self.is_example { "for example " } else { "" };
        wrapped("  ", &plain(&format!("excluded: {names}{more}: {example}{}", self.reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mechanisms_with_one_reason_stand_together() {
        let excluded = |name: &str, why: Why| Excluded { mechanism: String::from(name), why };
        let late = |share: &str| Why::Discarded(format!("{share} % were late"));
        let all = [
            excluded("task/a", Why::Need(Need::Order)),
            excluded("task/b", late("3.1")),
            excluded("task/c", late("12")),
            excluded("task/d", Why::Need(Need::Order)),
            excluded("task/e", Why::Need(Need::Order)),
        ];
        let text = text(&all, 2);
        let order = "excluded: task/a task/d and 1 more: does not meet --need order: it does not promise to keep the order of all";
        let late = "excluded: task/b task/c: for example every instance discarded: 3.1 % were late";
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(order) && words.contains(late), "{text}");
    }
}
