//! What the parties of a process do with the ends that the mechanism opened for them.

use anyhow::{Result, bail, ensure};

use crate::case::{Pattern, Role};

/// A party for which a mechanism opened ends, without the ends themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// Its index among the parties that the mechanism opened.
    pub(crate) index: usize,
    /// Its position in the order of the roles, by which cores are assigned.
    pub(crate) order: usize,
    pub(crate) role: Role,
    /// Whether it has a sending end.
    pub(crate) sends: bool,
    /// Whether it has a receiving end.
    pub(crate) receives: bool,
}

/// One loop: what it does, in which role, and the party whose core it runs on ([`Opened::order`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopPlan {
    pub(crate) role: Role,
    pub(crate) core_of: usize,
    pub(crate) kind: LoopKind,
}

/// The kind of a loop, and the parties whose ends it uses ([`Opened::index`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    Sending(usize),
    SendingInTurn(Vec<usize>),
    Receiving(usize),
    Requesting(usize),
    Replying(usize),
    Serving { rx: usize, txs: Vec<usize> },
}

impl Opened {
    /// A loop on this party's core.
    pub(super) fn plan(&self, role: Role, kind: LoopKind) -> LoopPlan {
        LoopPlan { role, core_of: self.order, kind }
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
pub(super) fn one_way(pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
    let plan = |party: &Opened| match party.role {
        Role::Producer(_) => {
            party.require_sending(pattern)?;
            Ok(party.plan(party.role, LoopKind::Sending(party.index)))
        }
        Role::Consumer(_) => {
            party.require_receiving(pattern)?;
            Ok(party.plan(party.role, LoopKind::Receiving(party.index)))
        }
        role @ (Role::All | Role::Broker) => bail!("{role} is not a party"),
    };
    parties.iter().map(plan).collect()
}

/// Producers send requests, and consumers reply.
///
/// # Errors
/// When a party lacks an end.
pub(super) fn requests_and_replies(pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
    let plan = |party: &Opened| {
        party.require_sending(pattern)?;
        party.require_receiving(pattern)?;
        match party.role {
            Role::Producer(_) => Ok(party.plan(party.role, LoopKind::Requesting(party.index))),
            Role::Consumer(_) => Ok(party.plan(party.role, LoopKind::Replying(party.index))),
            role @ (Role::All | Role::Broker) => bail!("{role} is not a party"),
        }
    };
    parties.iter().map(plan).collect()
}
