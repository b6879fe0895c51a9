//! How the command ends.

use std::process::ExitCode;

/// The exit codes. The gravest of a run wins: 4, 2, 130. What is between them is kept for a gate: 1 for a failed one, 3
/// for one that could not be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was asked for was done; absent peers included.
    Fine,
    /// Wrong usage, or an instance that failed.
    Usage,
    /// A message lost, reordered, duplicated or damaged where the mechanism promises otherwise.
    Breach,
    /// The user stopped the run: 128 + SIGINT, as shells have it.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::Usage => 2,
            Exit::Breach => 4,
            Exit::Interrupted => 130,
        })
    }
}
