//! The commands `flow reload` and `flow status`: send a request to a running pipeline.

use anyhow::{Context, Result, bail};
use estafette_flow::admin::Running;

use super::view;
use crate::args::{FlowReload, FlowStatus};
use crate::exit::Exit;
use crate::terminal::{print, print_json};

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

/// Finds the selected pipeline: the only one that runs, or the one with this name or process
/// identifier.
fn find(name: Option<&str>) -> Result<Running> {
    let all = Running::all()?;
    let is_selected =
        |running: &&Running| name.is_none_or(|name| running.name == name || running.pid.to_string() == name);
    let mut selected = all.iter().filter(is_selected);
    let first = selected.next().with_context(|| match name {
        Some(name) => format!("no pipeline `{name}` runs here; running: {}", list(&all)),
        None => "no pipeline runs here; start one with `estafette flow run`".into(),
    })?;
    if selected.next().is_some() {
        bail!("several pipelines run here; choose one with --pipeline, by name or process identifier: {}", list(&all));
    }
    Ok(first.clone())
}

fn list(all: &[Running]) -> String {
    let names: Vec<_> = all.iter().map(|running| format!("{} (process {})", running.name, running.pid)).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
