//! Why two records cannot be compared.

use std::error::Error;
use std::fmt;

/// Why two records cannot be compared. Its text has the reason and a remedy.
#[derive(Debug)]
pub(crate) enum Incomparable {
    /// They are of different machines, or of one that was set up differently. With what differs.
    Machines(Vec<String>),
    /// Their instances were measured for different windows. With both windows.
    Windows(String),
    /// They have no cell in common.
    NoCell,
    /// No mechanism is in the same cell of both.
    NoMechanism,
    /// A record claims more rounds than this, the most that `bench` accepts.
    TooManyRounds(usize),
    /// A record has more instances of a case than its rounds allow.
    TooManyInstances,
}

impl Incomparable {
    /// Whether one of the records is wrong by itself, so that no other record would help.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Incomparable::TooManyRounds(_) | Incomparable::TooManyInstances)
    }
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomparable::Machines(differences) => write!(
                f,
                "they are of different machines, or of one that was set up differently; run both on one machine\n  {}",
                differences.join("\n  ")
            ),
            Incomparable::Windows(windows) => {
                write!(f, "their {windows}: run both with the same --profile and --window")
            }
            Incomparable::NoCell => {
                f.write_str("they have no cell in common: run both with the same suite and options")
            }
            Incomparable::NoMechanism => {
                f.write_str("no mechanism is in the same cell of both: run both with the same mechanisms")
            }
            Incomparable::TooManyRounds(most) => write!(f, "a record of more than {most} rounds cannot be compared"),
            Incomparable::TooManyInstances => {
                f.write_str("a record is damaged: it has more instances of a case than rounds")
            }
        }
    }
}

impl Error for Incomparable {}
