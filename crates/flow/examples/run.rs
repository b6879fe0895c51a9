//! Runs a pipeline from an embedding program: `cargo run --example run -- pipeline.yml`. With
//! `--host NAME` it runs the part of one host.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use estafette_flow::config::CheckedHost;
use estafette_flow::{Options, Supervisor, admin, config, host};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    // The program is its own host: the supervisor starts it again for each function.
    if first.as_deref() == Some(host::ARGUMENT.as_ref()) {
        return host::serve(arguments);
    }
    let rest: Option<Vec<_>> = arguments.map(|argument| argument.into_string().ok()).collect();
    let name = match rest.as_deref() {
        Some([]) => CheckedHost::Alone,
        Some([option, name]) if option == "--host" => CheckedHost::Named(name),
        _ => return usage(),
    };
    let Some(path) = first else { return usage() };
    match run(Path::new(&path), name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("run: {error}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: run PIPELINE.yml [--host NAME]");
    ExitCode::from(2)
}

fn run(path: &Path, host: CheckedHost) -> Result<(), Box<dyn std::error::Error>> {
    let checked = config::check(path, &config::Options { host, ..config::Options::default() });
    for diagnostic in &checked.diagnostics {
        eprintln!("{diagnostic}");
    }
    let pipeline = checked.pipeline.ok_or("the pipeline has errors")?;
    let pipeline = match host {
        CheckedHost::Named(name) => pipeline.part(name).ok_or("there is no such host")?,
        CheckedHost::All | CheckedHost::Alone => pipeline,
    };
    let options = Options { host_program: std::env::current_exe()?, drain_timeout: Duration::from_secs(10) };
    let supervisor = Supervisor::new(pipeline, options)?;
    // For `estafette flow status`.
    admin::serve("run", supervisor.remote())?;
    let summary = supervisor.run().map_err(|error| format!("{error:#}"))?;
    match summary.failures.first() {
        Some(failure) => Err(failure.as_str().into()),
        None => Ok(()),
    }
}
