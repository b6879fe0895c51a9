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
//!
//! The same program works under `cargo bench`, as a target with `harness = false`. There the
//! arguments are those of `bench`; without any, it measures the registry's
//! [own](Registry::own) mechanisms beside the built-in ones of their scopes. The command
//! `new-mechanism` writes a crate with such a target.
#![cfg_attr(not(feature = "mimalloc"), forbid(unsafe_code))]
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod allocator;
mod args;
mod build_features;
mod cargo_bench;
mod columns;
mod command;
mod comparison;
mod duration;
mod exit;
mod hosts;
mod live;
mod measurement;
mod other_load;
mod output;
mod page;
mod progress;
mod reference;
mod remedy;
mod summary;
mod sweep;
mod table;
mod terminal;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser};
use estafette_measure::{Registry, child, tracer};

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::remedy::with_remedy;
use crate::terminal::report_to_stderr;

/// Runs the command with the program's arguments and returns its exit code.
///
/// Child processes of instances run the same program. In them this function never returns.
pub fn main(registry: Registry) -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(argument) if argument == child::ARGUMENT => child::serve(&registry),
        #[cfg(feature = "flow")]
        Some(argument) if argument == estafette_flow::host::ARGUMENT => {
            return estafette_flow::host::serve(std::env::args_os().skip(2));
        }
        Some(argument) if argument == tracer::ARGUMENT => tracer::serve(std::env::args_os().skip(2)),
        _ => {}
    }
    let (arguments, by_cargo) = cargo_bench::arguments(std::env::args_os().collect());
    let args = match args(&arguments) {
        Ok(Ok(mut args)) => {
            if by_cargo && let Command::Bench(bench) = &mut args.command {
                cargo_bench::select_own(&registry, bench);
            }
            args
        }
        Ok(Err(error)) => {
            report_to_stderr(&format!("estafette: {error:#}"));
            return ExitCode::from(Exit::Usage);
        }
        Err(error) => {
            // clap prints help and version to stdout, and errors to stderr.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage } else { Exit::Fine });
        }
    };
    if args.command.measures()
        && let Err(error) = allocator::check_environment()
    {
        report_to_stderr(&format!("estafette: {error:#}"));
        return ExitCode::from(Exit::Usage);
    }
    let result = match &args.command {
        Command::Bench(bench) => command::bench::run(&registry, bench),
        Command::Peer(peer) => command::peer::run(&registry, peer),
        Command::Ping(ping) => command::ping::run(&registry, ping),
        Command::Verify(verify) => command::verify::run(&registry, verify),
        Command::Limits(limits) => command::limits::run(limits),
        Command::List(list) => command::list::run(&registry, list),
        Command::Doctor(doctor) => command::doctor::run(&registry, doctor),
        Command::Report(report) => command::report::run(report),
        Command::Choose(choose) => command::choose::run(&registry, choose),
        Command::Compare(compare) => command::compare::run(compare),
        Command::Gate(gate) => command::gate::run(&registry, gate),
        Command::History(history) => command::history::run(history),
        Command::NewMechanism(new) => command::new_mechanism::run(&registry, new),
        Command::Completions(completions) => command::completions::run(completions),
        Command::Man(man) => command::man::run(man),
        #[cfg(feature = "flow")]
        Command::Flow(flow) => command::flow::run(flow),
    };
    let exit = result.unwrap_or_else(|error| {
        report_to_stderr(&format!("estafette: {}", with_remedy(&format!("{error:#}"))));
        Exit::Usage
    });
    ExitCode::from(exit)
}

/// Parses the command line and the file that `--config` names.
///
/// # Errors
/// The outer error is clap's, about the command line. The inner error is about the file.
fn args(arguments: &[OsString]) -> Result<anyhow::Result<Args>, clap::Error> {
    let mut command = Args::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let bench = matches.subcommand_matches("bench");
    let Some((bench, file)) = bench.and_then(|bench| Some((bench, bench.get_one::<PathBuf>("config")?.clone()))) else {
        return Args::from_arg_matches(&matches).map(Ok);
    };
    let with_file = || -> anyhow::Result<Args> {
        let of_bench = command.find_subcommand("bench").context("there is no `bench`")?;
        let more = sweep::arguments(&file, of_bench, bench)?;
        let all = arguments.iter().cloned().chain(more.into_iter().map(OsString::from));
        let parsed = Args::try_parse_from(all);
        parsed.map_err(|error| {
            // The command line alone is valid, so the error is in the file.
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            anyhow::anyhow!("{}: {text}", file.display())
        })
    };
    Ok(with_file())
}
