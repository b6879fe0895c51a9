//! The command `completions`: prints a shell's completion script.

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Args, Completions};
use crate::exit::Exit;
use crate::terminal::print;

/// Runs `completions`.
pub(crate) fn run(args: &Completions) -> Result<Exit> {
    // Into memory first: the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "estafette", &mut script);
    print(&String::from_utf8(script).context("the script is not text")?)?;
    Ok(Exit::Fine)
}
