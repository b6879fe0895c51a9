//! The command `flow check`: reports all errors in a pipeline's files.

use std::path::Path;

use anyhow::Result;
use estafette_flow::config::{Checked, CheckedHost, Crossing, Diagnostic, Options, Pipeline, Severity, check};
use estafette_flow::{Inspector, missing_on_server};
use serde::Serialize;

use crate::args::FlowCheck;
use crate::exit::Exit;
use crate::terminal::{print, print_json, report_to_stderr};

/// The JSON output.
#[derive(Serialize)]
struct PrintedCheck<'a> {
    /// Whether the pipeline can run.
    good: bool,
    diagnostics: &'a [Diagnostic],
    /// The topics that cross hosts: all, or those with an end on the host that is asked for.
    #[serde(skip_serializing_if = "<[Crossing]>::is_empty")]
    crossings: &'a [Crossing],
    /// What the server lacks for them.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    missing: &'a [String],
}

/// Runs `flow check`. Warnings do not make it fail.
pub(crate) fn run(args: &FlowCheck) -> Result<Exit> {
    let host = args.host.as_deref().map_or(CheckedHost::All, CheckedHost::Named);
    let options = Options { inspector: Some(&Inspector), host, ..Options::default() };
    let Checked { pipeline, diagnostics } = check(&args.pipeline, &options);
    let mut crossings = pipeline.as_ref().map(Pipeline::crossings).unwrap_or_default();
    if let Some(host) = &args.host {
        crossings.retain(|Crossing { from, to, .. }| from.contains(host) || to.contains(host));
    }
    let missing = match pipeline.as_ref().filter(|_| args.server) {
        Some(pipeline) => missing_on_server(pipeline)?,
        None => Vec::new(),
    };
    if args.json {
        print_json(&PrintedCheck {
            good: pipeline.is_some(),
            diagnostics: &diagnostics,
            crossings: &crossings,
            missing: &missing,
        })?;
    } else {
        for diagnostic in &diagnostics {
            report_to_stderr(&diagnostic.to_string());
        }
        match &pipeline {
            Some(pipeline) => {
                print(&format!("{} is good: {}\n", args.pipeline.display(), contents(pipeline)))?;
                crossings.iter().try_for_each(|crossing| print(&format!("  {crossing}\n")))?;
                missing.iter().try_for_each(|missing| print(&format!("  {missing}\n")))?;
            }
            None => report_to_stderr(&summary(&args.pipeline, &diagnostics)),
        }
    }
    Ok(if pipeline.is_some() { Exit::Fine } else { Exit::Usage })
}

fn contents(pipeline: &Pipeline) -> String {
    let counts = [
        (pipeline.functions.len(), "function"),
        (pipeline.sources.len(), "source"),
        (pipeline.sinks.len(), "sink"),
        (pipeline.topics.len(), "topic"),
    ];
    counts.map(|(count, what)| counted(count, what)).join(", ")
}

fn summary(file: &Path, diagnostics: &[Diagnostic]) -> String {
    let count = |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let mut text = format!("estafette: {} in {}", counted(count(Severity::Error), "error"), file.display());
    let warnings = count(Severity::Warning);
    if warnings > 0 {
        text.push_str(&format!(", and {}", counted(warnings, "warning")));
    }
    text
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
