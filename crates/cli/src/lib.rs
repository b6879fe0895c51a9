//! The `estafette` command, for any registry of mechanisms.
//!
//! ```no_run
//! use std::process::ExitCode;
//! use estafette_measure::Registry;
//!
//! fn main() -> ExitCode {
//!     estafette_cli::main(Registry::new())
//! }
//! ```
#![forbid(unsafe_code)]

mod args;
mod columns;
mod command;
mod exit;
mod progress;
mod summary;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use estafette_measure::{Registry, child};

use crate::args::{Args, Command};
use crate::exit::Exit;

/// Runs the command on the program's arguments. A child process of an instance never returns from here.
pub fn main(registry: Registry) -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == child::ARGUMENT) {
        child::serve(&registry);
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors: clap prints them to stdout and everything else to stderr.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage } else { Exit::Fine });
        }
    };
    let result = match &args.command {
        Command::Bench(bench) => command::bench::run(&registry, bench),
        Command::Ping(ping) => command::ping::run(&registry, ping),
        Command::Limits(limits) => command::limits::run(limits),
        Command::List(list) => command::list::run(&registry, list),
        Command::Doctor(doctor) => command::doctor::run(&registry, doctor),
        Command::Compare(compare) => command::compare::run(compare),
    };
    let exit = result.unwrap_or_else(|error| {
        if broken_pipe(&error) {
            return Exit::Fine;
        }
        eprintln!("estafette: {error:#}");
        Exit::Usage
    });
    ExitCode::from(exit)
}

/// Whether the reader of our output has gone, as with `estafette list | head -1`: no error of ours.
fn broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|error| error.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// Prints a result to stdout.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a result to stdout as JSON.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
