//! Runs a pipeline from an embedding program: `cargo run --example run -- pipeline.yml`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use estafette_flow::{Options, Supervisor, config, host};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    // The program is its own host: the supervisor starts it again for each function.
    if first.as_deref() == Some(host::ARGUMENT.as_ref()) {
        return host::serve(arguments);
    }
    let Some(path) = first else {
        eprintln!("usage: run PIPELINE.yml");
        return ExitCode::from(2);
    };
    match run(Path::new(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("run: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let checked = config::check(path, &config::Options::default());
    for diagnostic in &checked.diagnostics {
        eprintln!("{diagnostic}");
    }
    let pipeline = checked.pipeline.ok_or("the pipeline has errors")?;
    let options = Options { host_program: std::env::current_exe()?, drain_timeout: Duration::from_secs(10) };
    let summary = Supervisor::new(pipeline, options)?.run()?;
    match summary.failures.first() {
        Some(failure) => Err(failure.as_str().into()),
        None => Ok(()),
    }
}
