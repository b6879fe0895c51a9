//! The arguments of `flow`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use estafette_flow::config::Language;

#[derive(Debug, clap::Args)]
pub(crate) struct Flow {
    #[command(subcommand)]
    pub(crate) command: FlowCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Check a pipeline: report all that is wrong, where, and what to do
    Check(FlowCheck),
    /// Write a working example of a pipeline into an empty folder
    New(FlowNew),
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowCheck {
    /// The pipeline's file
    #[arg(value_name = "PIPELINE.yml", value_hint = ValueHint::FilePath)]
    pub(crate) pipeline: PathBuf,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FlowNew {
    /// The folder, empty or new
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,

    /// The language of the function: wat (needs no compiler), rust, go, c
    #[arg(long, default_value_t, value_name = "LANGUAGE")]
    pub(crate) language: Language,
}
