//! A question: which cells of a record it concerns, and what a mechanism must promise.

use std::collections::BTreeSet;
use std::fmt::Display;

use anyhow::{Context, Result, bail, ensure};
use estafette_measure::case::{Cell, Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::ranking::Ranking;
use estafette_measure::record::Record;
use estafette_measure::spec::{Loss, Ordering, Ownership, Runtime, Scope, Spec, Standing, Wait};
use glob::Pattern as Glob;

use crate::args::{Choose, Need};

/// What the user wants to know. An empty list means any value.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// Patterns of the names of mechanisms.
    pub(super) names: Vec<Glob>,
    pub(super) scopes: Vec<Scope>,
    pub(super) pattern: Option<Pattern>,
    pub(super) payload: Option<PayloadKind>,
    pub(super) size: Option<Payload>,
    pub(super) producers: Option<usize>,
    pub(super) capacity: Option<usize>,
    pub(super) wait: Option<Wait>,
    pub(super) runtime: Option<Runtime>,
    pub(super) place: Option<Place>,
    pub(super) load: Option<Load>,
    pub(super) needs: Vec<Need>,
}

/// The cells that answer a question.
pub(super) struct Found<'a> {
    pub(super) rankings: Vec<&'a Ranking>,
    /// How they differ from what was asked.
    pub(super) notes: Vec<String>,
}

impl Question {
    pub(super) fn of(args: &Choose) -> Result<Question> {
        let glob = |name: &String| Glob::new(name).with_context(|| format!("`{name}` is not a pattern of names"));
        Ok(Question {
            names: args.what.iter().map(glob).collect::<Result<_>>()?,
            scopes: args.scopes(),
            pattern: args.pattern,
            payload: args.payload,
            size: args.size,
            producers: args.producers,
            capacity: args.capacity,
            wait: args.wait,
            runtime: args.runtime,
            place: args.place,
            load: args.load,
            needs: args.need.clone(),
        })
    }

    /// Finds the cells that answer the question. If the record has neither the size nor the number
    /// of producers, those with the nearest ones answer it.
    ///
    /// # Errors
    /// If no cell has the other values. The text says which value excludes all cells.
    pub(super) fn find<'a>(&self, rankings: &'a [Ranking]) -> Result<Found<'a>> {
        let mut found: Vec<&Ranking> = rankings.iter().collect();
        if found.is_empty() {
            bail!("it has no cases; run `estafette bench`");
        }
        found.retain(|ranking| ranking.rows.iter().any(|row| self.names_mechanism(&row.spec)));
        keep(&mut found, "scope", &self.scopes, |cell| cell.scope)?;
        keep(&mut found, "pattern", self.pattern.as_slice(), |cell| cell.pattern)?;
        keep(&mut found, "payload", self.payload.as_slice(), |cell| cell.payload.kind())?;
        keep(&mut found, "wait", self.wait.as_slice(), |cell| cell.wait)?;
        keep(&mut found, "runtime", self.runtime.as_slice(), |cell| cell.runtime)?;
        keep(&mut found, "place", self.place.as_slice(), |cell| cell.place)?;
        keep(&mut found, "load", self.load.as_slice(), |cell| cell.load)?;
        let mut notes = Vec::new();
        if let Some(size) = self.size {
            let nearest = keep_nearest(&mut found, size.len(), |cell| cell.payload.len());
            if nearest != size.len() {
                notes.push(format!("The record has no size of {size}. The nearest is {}.", found[0].cell.payload));
            }
        }
        if let Some(producers) = self.producers {
            let nearest = keep_nearest(&mut found, producers, |cell| cell.producers);
            if nearest != producers {
                notes.push(format!("The record has no case of {producers} producers. The nearest has {nearest}."));
            }
        }
        if let Some(capacity) = self.capacity {
            let nearest = keep_nearest(&mut found, capacity, |cell| cell.capacity);
            if nearest != capacity {
                notes.push(format!("The record has no capacity of {capacity}. The nearest is {nearest}."));
            }
        }
        Ok(Found { rankings: found, notes })
    }

    /// Checks that a record has each mechanism that the user named.
    ///
    /// # Errors
    /// If it lacks one.
    pub(super) fn check_names(&self, record: &Record) -> Result<()> {
        for name in &self.names {
            let mut known = record.mechanisms.iter();
            let remedy = "`estafette report` shows what it has; leave the record out to measure";
            ensure!(known.any(|spec| name.matches(&spec.name)), "it has no `{name}`: {remedy}");
        }
        Ok(())
    }

    /// Whether a mechanism is one of those that the user named. True for all if none was named.
    pub(super) fn names_mechanism(&self, spec: &Spec) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| name.matches(&spec.name))
    }

    /// Whether a mechanism may be an answer, if it meets the needs: a program can choose it, and it
    /// is among the named ones.
    pub(super) fn concerns(&self, spec: &Spec) -> bool {
        spec.standing == Standing::Candidate && self.names_mechanism(spec)
    }

    /// The first need that a mechanism does not meet with this number of producers.
    pub(super) fn unmet(&self, spec: &Spec, producers: usize) -> Option<Need> {
        self.needs.iter().copied().find(|need| !is_met(*need, spec, producers))
    }
}

/// Whether a mechanism promises what is needed.
fn is_met(need: Need, spec: &Spec, producers: usize) -> bool {
    let is_of_the_kernel = spec.version == "kernel";
    match need {
        Need::NoLoss => spec.loss == Loss::Never,
        Need::Order => spec.ordering == Ordering::Strict || spec.ordering == Ordering::PerProducer && producers == 1,
        Need::OrderPerProducer => spec.ordering != Ordering::Unordered,
        Need::Owned => spec.ownership == Ownership::Owned,
        Need::InPlace => spec.ownership == Ownership::Loaned,
        Need::Typed => {
            // What carries the bytes of a struct that the program lays out by itself passes no type.
            let has_values = spec.payloads.contains(&PayloadKind::Message) && spec.ownership != Ownership::Borrowed;
            has_values || spec.scope.in_process() && spec.ownership == Ownership::Owned
        }
        Need::Async => spec.runtimes.iter().any(|runtime| Runtime::TASKS.contains(runtime)),
        Need::OtherLanguages => {
            spec.any_language || spec.scope == Scope::Network || is_of_the_kernel && !spec.scope.in_process()
        }
        Need::NoDependencies => is_of_the_kernel || spec.version == "std",
    }
}

/// Keeps the cells that have one of the values asked for; all of them if none was.
///
/// # Errors
/// If there is none. The text names the values that the record has.
fn keep<T: PartialEq + Display>(
    found: &mut Vec<&Ranking>,
    option: &str,
    asked: &[T],
    value: impl Fn(&Cell) -> T,
) -> Result<()> {
    if asked.is_empty() {
        return Ok(());
    }
    let known: BTreeSet<String> = found.iter().map(|ranking| value(&ranking.cell).to_string()).collect();
    found.retain(|ranking| asked.contains(&value(&ranking.cell)));
    let asked = asked.iter().map(T::to_string).collect::<Vec<_>>().join(",");
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let remedy = "leave the record out to measure it by a short run";
    ensure!(!found.is_empty(), "no case has --{option} {asked}, only {known}; {remedy}");
    Ok(())
}

/// Keeps the cells whose value is nearest to `asked`, as a ratio, and returns that value.
fn keep_nearest(found: &mut Vec<&Ranking>, asked: usize, value: impl Fn(&Cell) -> usize) -> usize {
    let distance = |of: usize| (of.max(1) as f64 / asked.max(1) as f64).ln().abs();
    // A capacity of 0 is nearer to 0 than one of 1.
    let key = |of: usize| (distance(of), of.abs_diff(asked));
    let values = found.iter().map(|ranking| value(&ranking.cell));
    let nearest = values.min_by(|a, b| {
        let ((near_a, off_a), (near_b, off_b)) = (key(*a), key(*b));
        near_a.total_cmp(&near_b).then(off_a.cmp(&off_b))
    });
    let nearest = nearest.unwrap_or(asked);
    found.retain(|ranking| value(&ranking.cell) == nearest);
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_calls_protocols_and_libraries_for_several_languages_are_open_to_other_languages() {
        let is_open = |spec: &Spec| is_met(Need::OtherLanguages, spec, 1);
        assert!(is_open(&Spec::new("process/pipe")));
        assert!(is_open(&Spec::new("network/tungstenite").version("0.29.0")));
        assert!(is_open(&Spec::new("process/nats").version("0.51.0").any_language(true)));
        assert!(!is_open(&Spec::new("process/ipc-channel").version("0.23.1")));
        assert!(!is_open(&Spec::new("thread/std-mpsc").version("std")));
    }
}
