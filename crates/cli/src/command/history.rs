//! The command `history`: how times changed over the runs of a folder.
//!
//! Runs of one machine and plan are a lineage. Each run of it is compared with the one before, and
//! the last with the first, as `compare` does it: unpaired, with the drift of the machine itself
//! subtracted, and without a correction for the number of cases.

mod chart;
mod lineage;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use estafette_measure::record::Record;
use glob::Pattern as Glob;
use serde::Serialize;

use self::lineage::{Lineage, lineages};
use crate::args::History;
use crate::comparison;
use crate::exit::Exit;
use crate::{page, print, print_json, report_to_stderr};

/// A record of the folder.
struct Loaded {
    file: PathBuf,
    record: Record,
}

/// A file of the folder that is no record.
#[derive(Debug, Serialize)]
struct Skipped {
    file: PathBuf,
    why: String,
}

/// The JSON output.
#[derive(Serialize)]
struct Printed<'a> {
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
        print_json(&Printed { lineages: &lineages, skipped: &skipped })?;
    } else {
        print(&text::text(&lineages))?;
    }
    Ok(Exit::Fine)
}

/// Loads the records of a folder, oldest first. Files that only look like records are skipped.
fn load(dir: &Path) -> Result<(Vec<Loaded>, Vec<Skipped>)> {
    let remedy = || format!("cannot read the folder {}: name the folder that `bench` wrote to", dir.display());
    let files = fs::read_dir(dir).with_context(remedy)?.flatten().map(|file| file.path());
    let is_record = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") || name.ends_with(".json.gz")
    };
    let mut files: Vec<PathBuf> = files.filter(is_record).collect();
    files.sort();
    let (mut loaded, mut skipped) = (Vec::new(), Vec::new());
    for file in files {
        match usable(&file) {
            Ok(record) => loaded.push(Loaded { file, record }),
            Err(why) => skipped.push(Skipped { file, why }),
        }
    }
    loaded.sort_by(|a, b| (&a.record.started, &a.file).cmp(&(&b.record.started, &b.file)));
    Ok((loaded, skipped))
}

/// Loads a record that can be compared.
fn usable(file: &Path) -> Result<Record, String> {
    let record = Record::load(file).map_err(|error| reason(&error))?;
    if record.rounds == 0 {
        return Err(String::from("it has no complete round"));
    }
    comparison::check(&record).map_err(|error| format!("{error:#}"))?;
    Ok(record)
}

/// The reason of an error without its first part, the name of the file, which the warning has too.
fn reason(error: &anyhow::Error) -> String {
    let reasons: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
    if reasons.is_empty() { error.to_string() } else { reasons.join(": ") }
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
