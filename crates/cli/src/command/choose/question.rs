//! A question: which cells of a record it concerns, and what a mechanism must promise.

use std::collections::BTreeSet;
use std::fmt::Display;

use anyhow::{Result, bail, ensure};
use estafette_measure::case::{Cell, Load, Pattern, Payload, PayloadKind, Place};
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::spec::{Loss, Ordering, Ownership, Runtime, Scope, Wait};

use crate::args::{Choose, Need};

/// What the user wants to know. An empty list means any value.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) scopes: Vec<Scope>,
    pub(super) pattern: Option<Pattern>,
    pub(super) payload: Option<PayloadKind>,
    pub(super) size: Option<Payload>,
    pub(super) producers: Option<usize>,
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
    pub(super) fn of(args: &Choose) -> Question {
        Question {
            scopes: args.scope.clone(),
            pattern: args.pattern,
            payload: args.payload,
            size: args.size,
            producers: args.producers,
            wait: args.wait,
            runtime: args.runtime,
            place: args.place,
            load: args.load,
            needs: args.need.clone(),
        }
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
        Ok(Found { rankings: found, notes })
    }

    /// The first need that a mechanism does not meet.
    pub(super) fn unmet(&self, row: &Row, cell: &Cell) -> Option<Need> {
        let spec = &row.spec;
        self.needs.iter().copied().find(|need| !match need {
            Need::NoLoss => spec.loss == Loss::Never,
            Need::Order => {
                spec.ordering == Ordering::Strict || spec.ordering == Ordering::PerProducer && cell.producers == 1
            }
            Need::OrderPerProducer => spec.ordering != Ordering::Unordered,
            Need::Owned => spec.ownership == Ownership::Owned,
            Need::InPlace => spec.ownership == Ownership::Loaned,
        })
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
    ensure!(!found.is_empty(), "no case has --{option} {asked}, only {known}; measure it with `estafette bench`");
    Ok(())
}

/// Keeps the cells whose value is nearest to `asked`, as a ratio, and returns that value.
fn keep_nearest(found: &mut Vec<&Ranking>, asked: usize, value: impl Fn(&Cell) -> usize) -> usize {
    let distance = |of: usize| (of.max(1) as f64 / asked.max(1) as f64).ln().abs();
    let values = found.iter().map(|ranking| value(&ranking.cell));
    let nearest = values.min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(asked);
    found.retain(|ranking| value(&ranking.cell) == nearest);
    nearest
}
