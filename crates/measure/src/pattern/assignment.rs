//! What the parties of a process do with the ends that the mechanism opened for them.

use anyhow::{Result, bail, ensure};

use crate::case::{Pattern, Role};

/// A party for which a mechanism opened ends, without the ends themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// Its index among the parties that the mechanism opened.
    pub(crate) at: usize,
    /// Its position in the order of the roles, by which cores are assigned.
    pub(crate) nth: usize,
    pub(crate) role: Role,
    /// Whether it has a sending end.
    pub(crate) sends: bool,
    /// Whether it has a receiving end.
    pub(crate) receives: bool,
}

/// One loop: what it does, in which role, and the party whose core it runs on ([`Opened::nth`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) role: Role,
    pub(crate) core_of: usize,
    pub(crate) takes: Takes,
}

/// The kind of a loop, and the parties whose ends it uses ([`Opened::at`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Sending(usize),
    SendingInTurn(Vec<usize>),
    Receiving(usize),
    Requesting(usize),
    Replying(usize),
    Serving { rx: usize, txs: Vec<usize> },
}

impl Opened {
    /// A loop on this party's core.
    pub(super) fn task(&self, role: Role, takes: Takes) -> Task {
        Task { role, core_of: self.nth, takes }
    }

    /// # Errors
    /// When the party has no sending end.
    pub(super) fn require_sending(&self, pattern: Pattern) -> Result<()> {
        ensure!(self.sends, "the mechanism opened no sending end for {} of a {pattern}", self.role);
        Ok(())
    }

    /// # Errors
    /// When the party has no receiving end.
    pub(super) fn require_receiving(&self, pattern: Pattern) -> Result<()> {
        ensure!(self.receives, "the mechanism opened no receiving end for {} of a {pattern}", self.role);
        Ok(())
    }
}

/// Producers send, and consumers receive.
///
/// # Errors
/// When a party lacks an end.
pub(super) fn one_way(pattern: Pattern, parties: &[Opened]) -> Result<Vec<Task>> {
    let task = |party: &Opened| match party.role {
        Role::Producer(_) => {
            party.require_sending(pattern)?;
            Ok(party.task(party.role, Takes::Sending(party.at)))
        }
        Role::Consumer(_) => {
            party.require_receiving(pattern)?;
            Ok(party.task(party.role, Takes::Receiving(party.at)))
        }
        role @ (Role::All | Role::Broker) => bail!("{role} is not a party"),
    };
    parties.iter().map(task).collect()
}

/// Producers send requests, and consumers reply.
///
/// # Errors
/// When a party lacks an end.
pub(super) fn requests_and_replies(pattern: Pattern, parties: &[Opened]) -> Result<Vec<Task>> {
    let task = |party: &Opened| {
        party.require_sending(pattern)?;
        party.require_receiving(pattern)?;
        match party.role {
            Role::Producer(_) => Ok(party.task(party.role, Takes::Requesting(party.at))),
            Role::Consumer(_) => Ok(party.task(party.role, Takes::Replying(party.at))),
            role @ (Role::All | Role::Broker) => bail!("{role} is not a party"),
        }
    };
    parties.iter().map(task).collect()
}
