//! What a check finds.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FindingVerdict {
    /// As it should be.
    Ok,
    /// Affects the figures: good to know, rarely necessary to change.
    Note,
    /// Invalidates figures.
    Warning,
}

/// The result of one check.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) verdict: FindingVerdict,
    pub(super) found: String,
    /// What to do, or what to consider.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, verdict: FindingVerdict::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn note(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what, verdict: FindingVerdict::Note, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn warning(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what, verdict: FindingVerdict::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }
}
