//! Why a mechanism cannot run a case, and the checks that several patterns share.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::case::{Case, Pattern};
use crate::spec::{Loss, Spec};

/// The kind of reason for which a case is not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    /// The mechanism lacks a pattern, a payload, a wait mode, a runtime or a load.
    Unsupported,
    /// The messages are too long or too short.
    Size,
    /// The capacity is too small or too large.
    Capacity,
    /// There are too many producers or consumers.
    Parties,
    /// The cores, or the choice of cores, do not allow it.
    Cores,
    /// The case is between two hosts, and the mechanism or the pattern is for one.
    Hosts,
    /// The mechanism promises too little: it may lose messages or change their order.
    Promise,
    /// Something is missing on this machine.
    Machine,
    /// Another reason of the mechanism; also the kind of every reason in records without kinds.
    #[default]
    Mechanism,
}

impl RefusalKind {
    /// A refusal of this kind. `why` says what to do, for the user.
    pub(crate) fn because(self, why: impl Into<String>) -> Inadmissible {
        Inadmissible { kind: self, why: why.into() }
    }
}

/// Why a mechanism cannot run a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inadmissible {
    /// The kind of reason.
    pub kind: RefusalKind,
    /// The reason and what to do, for the user.
    pub why: String,
}

impl fmt::Display for Inadmissible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Inadmissible {}

/// # Errors
/// When the case is inside one process.
pub(crate) fn require_processes(case: &Case) -> Result<(), Inadmissible> {
    if case.scope.in_process() {
        return Err(RefusalKind::Unsupported.because(format!(
            "{} are between processes: use {} or {}",
            case.pattern,
            Pattern::FanIn,
            Pattern::Merge
        )));
    }
    Ok(())
}

/// # Errors
/// When the mechanism may lose messages. `why` says why the pattern cannot have that.
pub(crate) fn require_lossless(spec: &Spec, why: &str) -> Result<(), Inadmissible> {
    if spec.loss == Loss::BestEffort {
        return Err(RefusalKind::Promise.because(format!("may lose messages: {why}")));
    }
    Ok(())
}
