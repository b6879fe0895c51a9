//! The command `man`: prints or writes manual pages, from the same description as the help.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man as Page;

use crate::args::{Args, Man};
use crate::exit::Exit;
use crate::terminal::print;

/// Runs `man`.
pub(crate) fn run(args: &Man) -> Result<Exit> {
    // Its pages would repeat those of the commands.
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        Some(folder) => {
            let remedy = || format!("cannot write to the folder {}: choose another with --out", folder.display());
            fs::create_dir_all(folder).with_context(remedy)?;
            write(&command, folder).with_context(remedy)?;
        }
        None => print(&page(&command)?.1)?,
    }
    Ok(Exit::Fine)
}

/// Writes the pages of a command and of all commands below it.
fn write(command: &clap::Command, folder: &Path) -> Result<()> {
    let (name, text) = page(command)?;
    fs::write(folder.join(name), text)?;
    command.get_subcommands().try_for_each(|command| write(command, folder))
}

/// Returns a page's file name and text.
fn page(command: &clap::Command) -> Result<(String, String)> {
    let page = Page::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8(text).context("the page is not text")?;
    // The text after the help: examples, exit codes, or both, which are lists. `.nf` keeps their
    // lines.
    let text = text.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n");
    let text = text.replace(".SH EXTRA\n", "").replace("\nExit codes:\n", "\n.SH \"EXIT STATUS\"\n.nf\n");
    Ok((page.get_filename(), text))
}
