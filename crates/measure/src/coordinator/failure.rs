//! Why an instance has no result.

use serde::{Deserialize, Serialize};

/// Why an instance has no result.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The description for the user, with the last lines that the child wrote to stderr.
    pub text: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The user interrupted the run.
    Interrupted,
    /// The instance timed out.
    Hang,
    /// A child ended before its report, or with an error after it.
    Crash,
    /// A party saw no message for more than a second, or between two hosts for more than ten.
    Late,
    /// A child left a process running.
    Leak,
    /// No message arrived within the window.
    Empty,
    /// A child reported an error, or the instance could not be started.
    Error,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure { kind, text: text.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(FailureKind::Error, format!("{error:#}"))
    }
}
