//! `flow`: pipelines of WASM functions.

mod check;
mod new;
mod reload;
mod run;
mod screen;
mod view;

use anyhow::Result;

use crate::args::{Flow, FlowCommand};
use crate::exit::Exit;

/// Runs `flow`.
pub(crate) fn run(args: &Flow) -> Result<Exit> {
    match &args.command {
        FlowCommand::Check(args) => check::run(args),
        FlowCommand::New(args) => new::run(args),
        FlowCommand::Run(args) => run::run(args),
        FlowCommand::Reload(args) => reload::reload(args),
        FlowCommand::Status(args) => reload::status(args),
    }
}
