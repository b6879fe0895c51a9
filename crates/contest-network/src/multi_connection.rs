//! Parties that have several connections, or several who send on one.

use anyhow::{Context, Result, bail};
use estafette_measure::Ends;
use estafette_measure::case::{Case, Pattern, Role};

/// How several may send.
pub(super) const PATTERNS: [Pattern; 3] = [Pattern::FanIn, Pattern::Writers, Pattern::Connections];

/// These patterns and those.
pub(super) fn and_several(others: &[Pattern]) -> Vec<Pattern> {
    [others, &PATTERNS].concat()
}

/// Whether several send in a case.
pub(super) fn send(case: &Case) -> bool {
    PATTERNS.contains(&case.pattern)
}

/// How many connections a party has.
pub(super) fn connections(case: &Case, role: Role) -> usize {
    match (case.pattern, role) {
        (Pattern::Connections, _) | (Pattern::FanIn, Role::Consumer(_)) => case.producers,
        _ => 1,
    }
}

/// The ends of a party where several send: `sender` sends on a connection of its own, `writers` are as many that send on
/// one, which `receiver` reads; `merging` receives from all that there are.
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
