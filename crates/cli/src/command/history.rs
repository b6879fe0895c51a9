//! The command `history`: how times changed over the runs of a folder.
//!
//! Runs of one machine and plan are a lineage. Each run of it is compared with the one before, and
//! the last with the first, as `compare` does it: unpaired, with the drift of the machine itself
//! subtracted, and without a correction for the number of cases.

mod chart;
mod folder;
mod lineage;
mod text;

use anyhow::{Context, Result, bail};
use glob::Pattern as Glob;
use serde::Serialize;

use self::folder::{Loaded, Skipped, load};
use self::lineage::{Lineage, lineages};
use crate::args::History;
use crate::exit::Exit;
use crate::page;
use crate::terminal::{print, print_json, report_to_stderr};

/// The JSON output.
#[derive(Serialize)]
struct PrintedHistory<'a> {
    /// The first has the newest run.
    lineages: &'a [Lineage],
    skipped: &'a [Skipped],
}

/// Runs `history`.
pub(crate) fn run(args: &History) -> Result<Exit> {
    let (loaded, skipped) = load(&args.dir)?;
    for Skipped { file, why } in &skipped {
        report_to_stderr(&format!("warning: {} is left out: {why}", file.display()));
    }
    if loaded.is_empty() {
        bail!(
            "there is no record in {}: run `estafette bench --out {}` first, or name another folder",
            args.dir.display(),
            args.dir.display()
        );
    }
    let glob = |name: &String| Glob::new(name).with_context(|| format!("`{name}` is not a pattern of names"));
    let names: Vec<Glob> = args.mechanism.iter().map(glob).collect::<Result<_>>()?;
    check_names(&names, &loaded)?;
    let lineages = lineages(&loaded, &names)?;
    if lineages.is_empty() {
        bail!("no case can be shown: name mechanisms with --mechanism");
    }
    if let (Some(path), Some(first)) = (&args.svg, lineages.first()) {
        page::write(path, &page::svg(&chart::chart(first)))?;
        report_to_stderr(&format!("chart: {}", path.display()));
    }
    if args.json {
        print_json(&PrintedHistory { lineages: &lineages, skipped: &skipped })?;
    } else {
        print(&text::text(&lineages))?;
    }
    Ok(Exit::Fine)
}

/// Checks that each name is in a record.
fn check_names(names: &[Glob], loaded: &[Loaded]) -> Result<()> {
    let mut known: Vec<&str> =
        loaded.iter().flat_map(|one| &one.record.mechanisms).map(|spec| spec.name.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    for name in names {
        if !known.iter().any(|known| name.matches(known)) {
            bail!("no record has a mechanism `{name}`; they have {}", known.join(", "));
        }
    }
    Ok(())
}
