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
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod args;
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
mod summary;
mod sweep;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{CommandFactory, FromArgMatches, Parser};
use estafette_measure::{Registry, child, tracer};

use crate::args::{Args, Command};
use crate::exit::Exit;

/// The allocator of the command and of the instances, which run in the same program.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The name of the global allocator, as in records.
const ALLOCATOR: &str = if cfg!(feature = "mimalloc") { "mimalloc" } else { "system" };

/// Whether this build contains the contest's mechanisms, but not those behind `all-peers`.
const PEERS_LEFT_OUT: bool = cfg!(all(feature = "contest", not(feature = "all-peers")));
/// The note that explains how to build with the peers that were left out.
const PEERS: &str = "not in this build: libraries and servers that need more than cargo and gcc (Cap'n Proto, D-Bus, gRPC, iceoryx2, \
                     MQTT, nanomsg, NATS, nng, QUIC, Redis, zenoh, ZeroMQ); build with `--features all-peers`, see the README";

/// Adds the note about peers that are not in this build to an error about an unknown name.
fn with_peers(error: String) -> anyhow::Error {
    if PEERS_LEFT_OUT { anyhow!("{error}\n{PEERS}") } else { anyhow!(error) }
}

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

/// Adds a remedy to the text of an error that any system call can return.
fn with_remedy(error: &str) -> String {
    // `EMFILE`: from this process or from a child.
    match error.contains("(os error 24)") {
        true => format!("{error}; allow more with `ulimit -n 1024`"),
        false => error.to_owned(),
    }
}

/// Prints text to stderr.
///
/// Control characters are replaced, because the text may quote a file or a child process. Errors
/// are ignored: a closed stderr must not stop the command, and `eprintln!` would panic.
fn report_to_stderr(text: &str) {
    let text = text.split('\n').map(columns::plain).collect::<Vec<_>>().join("\n");
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a result to stdout. A closed pipe, as in `estafette list | head -1`, is no error and does
/// not change the exit code.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("printing"),
    }
}

/// Prints a result to stdout as JSON.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}
