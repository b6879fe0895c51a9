//! `flow`: pipelines of WASM functions.

mod check;
mod new;

use anyhow::Result;

use crate::args::{Flow, FlowCommand};
use crate::exit::Exit;

/// Runs `flow`.
pub(crate) fn run(args: &Flow) -> Result<Exit> {
    match &args.command {
        FlowCommand::Check(args) => check::run(args),
        FlowCommand::New(args) => new::run(args),
    }
}
