//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod choose;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod doctor;
#[cfg(feature = "flow")]
pub(crate) mod flow;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod limits;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod new_mechanism;
pub(crate) mod peer;
pub(crate) mod ping;
pub(crate) mod report;
pub(crate) mod verify;
