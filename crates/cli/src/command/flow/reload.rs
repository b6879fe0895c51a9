//! `flow reload` and `flow status`: ask a pipeline that runs.

use anyhow::{Context, Result, bail};
use estafette_flow::admin::Running;

use super::view;
use crate::args::{FlowReload, FlowStatus};
use crate::exit::Exit;
use crate::{print, print_json};

/// Runs `flow reload`.
pub(crate) fn reload(args: &FlowReload) -> Result<Exit> {
    let running = find(args.pipeline.as_deref())?;
    let instances = running.reload(&args.function, args.timeout)?;
    let run = if instances == 1 { "instance runs" } else { "instances run" };
    print(&format!("`{}` of `{}`: {instances} {run} the new code\n", args.function, running.name))?;
    Ok(Exit::Fine)
}

/// Runs `flow status`.
pub(crate) fn status(args: &FlowStatus) -> Result<Exit> {
    let status = find(args.pipeline.as_deref())?.status()?;
    match args.json {
        true => print_json(&status)?,
        false => print(&view::tables(&status, None))?,
    }
    Ok(Exit::Fine)
}

/// The pipeline that is meant: the only one that runs, or that of this name or process number.
fn find(name: Option<&str>) -> Result<Running> {
    let all = Running::all()?;
    let is_meant = |running: &&Running| name.is_none_or(|name| running.name == name || running.pid.to_string() == name);
    let mut meant = all.iter().filter(is_meant);
    let first = meant.next().with_context(|| match name {
        Some(name) => format!("no pipeline `{name}` runs here; those that do: {}", list(&all)),
        None => "no pipeline runs here; start one with `estafette flow run`".into(),
    })?;
    if meant.next().is_some() {
        bail!("several pipelines run here; choose one with --pipeline, by name or process number: {}", list(&all));
    }
    Ok(first.clone())
}

fn list(all: &[Running]) -> String {
    let names: Vec<_> = all.iter().map(|running| format!("{} (process {})", running.name, running.pid)).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
