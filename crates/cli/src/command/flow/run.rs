//! The command `flow run`: runs a pipeline until its work is done or it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use anyhow::{Context, Result};
use estafette_flow::config::{self, CheckedHost, Pipeline, check};
use estafette_flow::{Ended, Inspector, MetricsServer, Options, Remote, Summary, Supervisor, admin};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::screen::{FlowScreen, install_log};
use super::view;
use crate::args::FlowRun;
use crate::exit::Exit;
use crate::terminal::{print_json, report_to_stderr};

/// How often `--watch` checks files.
const WATCH: Duration = Duration::from_millis(500);

/// Runs `flow run`.
pub(crate) fn run(args: &FlowRun) -> Result<Exit> {
    let screen = Arc::new(FlowScreen::new());
    install_log(args.log, args.verbose, &screen);
    let inspector = Inspector;
    let host = args.host.as_deref().map_or(CheckedHost::Alone, CheckedHost::Named);
    let options = config::Options { inspector: Some(&inspector), host, ..config::Options::default() };
    let checked = check(&args.pipeline, &options);
    for diagnostic in &checked.diagnostics {
        report_to_stderr(&diagnostic.to_string());
    }
    let part = |pipeline: Pipeline| match &args.host {
        Some(host) => pipeline.part(host),
        None => Some(pipeline),
    };
    let Some(pipeline) = checked.pipeline.and_then(part) else { return Ok(Exit::Usage) };
    let options = Options { host_program: PathBuf::from("/proc/self/exe"), drain_timeout: args.drain_timeout };
    let name = pipeline.name.clone();
    let modules = watched(&pipeline);
    let supervisor = Supervisor::new(pipeline, options)?;
    let remote = supervisor.remote();
    end_on_signals(remote.clone())?;
    if let Err(error) = admin::serve(&name, remote.clone()) {
        tracing::warn!("`flow status` and `flow reload` cannot reach this pipeline: {error:#}");
    }
    let metrics = args.metrics.map(|address| {
        let remote = remote.clone();
        MetricsServer::start(address, move || remote.status())
    });
    let metrics = metrics.transpose()?;
    if args.watch {
        let remote = remote.clone();
        thread::Builder::new().name("watch".into()).spawn(move || watch(modules, &remote))?;
    }
    let view = (screen.is_terminal() && !args.no_view).then(|| view::FlowView::start(&screen, remote));
    let summary = supervisor.run();
    drop((view, metrics));
    let summary = summary?;
    report(&summary, args)?;
    Ok(exit(&summary))
}

fn report(summary: &Summary, args: &FlowRun) -> Result<()> {
    if args.json {
        return print_json(&summary.status);
    }
    report_to_stderr(&view::summary(summary));
    Ok(())
}

fn exit(summary: &Summary) -> Exit {
    match summary.ended {
        _ if !summary.failures.is_empty() => Exit::Usage,
        Ended::Finished | Ended::Drained => Exit::Fine,
        Ended::Stopped => Exit::Interrupted,
    }
}

/// The first signal drains the pipeline, the second stops it, a third kills its hosts.
fn end_on_signals(remote: Remote) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot wait for signals")?;
    let end = move || signals.forever().for_each(|_| remote.end());
    thread::Builder::new().name("signals".into()).spawn(end)?;
    Ok(())
}

/// Returns the functions that can be reloaded, and their modules' files.
fn watched(pipeline: &Pipeline) -> Vec<(String, PathBuf)> {
    let receivers = pipeline.functions.iter().filter(|function| function.input.is_some() || function.stream.is_some());
    receivers.map(|function| (function.name.clone(), function.module.clone())).collect()
}

/// Reloads a function when its module's file has changed and then stayed the same for one interval,
/// because a partly written file is not a module.
fn watch(modules: Vec<(String, PathBuf)>, remote: &Remote) {
    let stamp = |path: &PathBuf| -> io::Result<(SystemTime, u64)> {
        let about = fs::metadata(path)?;
        Ok((about.modified()?, about.len()))
    };
    let mut known: Vec<_> = modules.iter().map(|(_, path)| stamp(path).ok()).collect();
    let mut before = known.clone();
    loop {
        thread::sleep(WATCH);
        for (at, (function, path)) in modules.iter().enumerate() {
            let now = stamp(path).ok();
            if now.is_some() && now != known[at] && now == before[at] {
                known[at] = now;
                let name = function.clone();
                remote.reload(function, move |result| match result {
                    Ok(_) => tracing::info!(function = name, "it runs the changed module"),
                    Err(error) => tracing::error!(function = name, "the changed module cannot be used: {error:#}"),
                });
            }
            before[at] = now;
        }
    }
}
