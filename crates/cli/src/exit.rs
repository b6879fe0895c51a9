//! The exit codes of the command.

use std::process::ExitCode;

/// The exit codes. If several apply to a run, the first of 4, 130, 2, 1, 3 wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything succeeded, even if some mechanisms are unavailable.
    Fine,
    /// A gate: a case is slower than allowed.
    GateFailed,
    /// Wrong usage, or a failed instance.
    Usage,
    /// The measurement does not decide the question of `gate` or `choose`.
    Undecided,
    /// A message was lost, reordered, duplicated or damaged although the mechanism promises
    /// otherwise.
    Breach,
    /// The user interrupted the run: 128 + SIGINT, as in shells.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Fine => 0,
            Exit::GateFailed => 1,
            Exit::Usage => 2,
            Exit::Undecided => 3,
            Exit::Breach => 4,
            Exit::Interrupted => 130,
        })
    }
}
