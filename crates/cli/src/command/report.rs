//! The command `report`: prints the tables of a record, or writes its report as files. Of two
//! records, it shows what changed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use estafette_measure::record::Record;

use super::compare;
use crate::args::Report;
use crate::exit::Exit;
use crate::output::{self, Detail};
use crate::page;
use crate::page::changes::{self, Pair};
use crate::terminal::{print, print_json, report_to_stderr};

/// Runs `report`.
pub(crate) fn run(args: &Report) -> Result<Exit> {
    let record = Record::load(&args.record)?;
    match &args.other {
        Some(other) => of_two(args, &record, other),
        None => of_one(args, &record),
    }
}

fn of_one(args: &Report, record: &Record) -> Result<Exit> {
    if let Some(file) = &args.output {
        write_page(file, &page::html(record))?;
    }
    if let Some(path) = &args.svg {
        let charts = page::svgs(record);
        if charts.is_empty() {
            bail!("the record has no charts: they need several sizes, loads or producers, round trips, or a bound");
        }
        write_charts(&charts, path)?;
    }
    if args.json {
        print_json(record)?;
    } else if args.markdown {
        print(&page::markdown(record))?;
    } else if args.output.is_none() && args.svg.is_none() {
        print(&output::report(record, Detail::of(args.details)))?;
    }
    Ok(Exit::Fine)
}

/// The report of two records. Without files, it prints what `compare` prints.
fn of_two(args: &Report, record: &Record, other: &Path) -> Result<Exit> {
    let second = Record::load(other)?;
    let (a, b) = (&*args.record, other);
    let what = || format!("cannot compare {} with {}", a.display(), b.display());
    let pair = Pair::of([a, b].map(file_name), [record, &second]).with_context(what)?;
    if let Some(file) = &args.output {
        write_page(file, &changes::html(&pair))?;
    }
    if args.markdown {
        print(&changes::markdown(&pair))?;
    }
    let is_shown = args.markdown || args.output.is_some() || args.svg.is_some();
    if args.svg.is_none() && !args.json && is_shown {
        return Ok(Exit::Fine);
    }
    // The page says why nothing is compared. What is left has nothing else to show.
    let comparison = match &pair.comparison {
        Ok(comparison) => comparison,
        Err(error) => bail!("{}: {error}", what()),
    };
    if let Some(path) = &args.svg {
        let charts = changes::svgs(&pair);
        if charts.is_empty() {
            bail!("the records have no chart in common: run both with the same suite and options");
        }
        write_charts(&charts, path)?;
    }
    if args.json || !is_shown {
        compare::show([a, b], comparison, args.json)?;
    }
    Ok(Exit::Fine)
}

/// The name of a file without its folder, which says nothing to another reader.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Writes a page to a file, or to stdout if its name is `-`.
fn write_page(file: &Path, page: &str) -> Result<()> {
    if file == Path::new("-") {
        return print(page);
    }
    page::write(file, page)?;
    report_to_stderr(&format!("report: {}", file.display()));
    Ok(())
}

/// Writes all charts to a folder, or one to a file, whose name chooses the chart.
fn write_charts(charts: &[(String, String)], path: &Path) -> Result<()> {
    if path.extension().is_some_and(|extension| extension == "svg") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let Some((_, svg)) = charts.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = charts.iter().map(|(known, _)| &**known).collect();
            bail!(
                "there is no chart `{name}`; name the file after one of these, or give a folder for all:\n  {}",
                known.join("\n  ")
            );
        };
        page::write(path, svg)?;
    } else {
        let remedy = || format!("cannot write to the folder {}: choose another with --svg", path.display());
        fs::create_dir_all(path).with_context(remedy)?;
        for (name, svg) in charts {
            page::write(&path.join(format!("{name}.svg")), svg)?;
        }
    }
    report_to_stderr(&format!("charts: {}", path.display()));
    Ok(())
}
