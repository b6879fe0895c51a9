//! Parties with several connections, or with several senders on one connection.

use anyhow::{Context, Result, bail};
use estafette_measure::Ends;
use estafette_measure::case::{Case, Pattern, Role};

/// The patterns with several senders.
pub(super) const PATTERNS: [Pattern; 3] = [Pattern::FanIn, Pattern::Writers, Pattern::Connections];

/// Returns `others` and the patterns with several senders.
pub(super) fn with_multi_sender(others: &[Pattern]) -> Vec<Pattern> {
    [others, &PATTERNS].concat()
}

/// Returns whether the case has several senders.
pub(super) fn has_multiple_senders(case: &Case) -> bool {
    PATTERNS.contains(&case.pattern)
}

/// Returns how many connections a party has.
pub(super) fn connections(case: &Case, role: Role) -> usize {
    match (case.pattern, role) {
        (Pattern::Connections, _) | (Pattern::FanIn, Role::Consumer(_)) => case.producers,
        _ => 1,
    }
}

/// Creates the ends of a party in a pattern with several senders. `sender` creates an end that
/// sends on a connection of its own. `writers` creates all ends that share one connection, and
/// `receiver` the end that reads it. `merging` creates an end that receives from all connections.
pub(super) fn ends<C, T, R>(
    case: &Case,
    role: Role,
    mut connections: Vec<C>,
    sender: impl Fn(C) -> Result<T>,
    writers: impl FnOnce(C) -> Result<Vec<T>>,
    receiver: impl FnOnce(C) -> Result<R>,
    merging: impl FnOnce(Vec<C>) -> Result<R>,
) -> Result<Ends<T, R>> {
    let mut one = || connections.pop().context("a connection");
    Ok(match (case.pattern, role) {
        (Pattern::Writers, Role::Consumer(index)) => Ends::consumer(index, receiver(one()?)?),
        (Pattern::Writers, _) => Ends::many(writers(one()?)?, []),
        (_, Role::Consumer(index)) => Ends::consumer(index, merging(connections)?),
        (Pattern::Connections, _) => Ends::many(connections.into_iter().map(sender).collect::<Result<Vec<_>>>()?, []),
        (_, Role::Producer(index)) => Ends::producer(index, sender(one()?)?),
        (pattern, role) => bail!("{role} is no party of {pattern}"),
    })
}
