//! The program of a host in a process of its own: it runs one part of a pipeline.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use estafette_flow::config::{self, CheckedHost};
use estafette_flow::{Options, Supervisor};

use crate::ground::PATIENCE;

/// The argument that makes this program a host. The path of the pipeline and the host's name
/// follow.
pub(crate) const ARGUMENT: &str = "run-host";

/// Runs a host until its work is done.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.collect();
    let [path, host] = arguments.as_slice() else {
        eprintln!("usage: {ARGUMENT} PIPELINE.yml HOST");
        return ExitCode::from(2);
    };
    match run_part(Path::new(path), &host.to_string_lossy()) {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => failed(&failures.join("; ")),
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("the host failed: {error}");
    ExitCode::from(2)
}

fn run_part(path: &Path, host: &str) -> Result<Vec<String>, String> {
    let options = config::Options { host: CheckedHost::Named(host), ..config::Options::default() };
    let checked = config::check(path, &options);
    let pipeline = checked.pipeline.ok_or_else(|| format!("{:?}", checked.diagnostics))?;
    let part = pipeline.part(host).ok_or("there is no such host")?;
    let supervisor = Supervisor::new(part, options_of_a_run()).map_err(|error| format!("{error:#}"))?;
    Ok(supervisor.run().map_err(|error| format!("{error:#}"))?.failures)
}

/// The options of every host: this program is started again for each function.
pub(crate) fn options_of_a_run() -> Options {
    Options { host_program: PathBuf::from("/proc/self/exe"), drain_timeout: PATIENCE }
}
