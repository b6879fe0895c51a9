//! The command `report`: prints the tables of a record, or writes its report as files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use estafette_measure::record::Record;

use crate::args::Report;
use crate::exit::Exit;
use crate::output::{self, Detail};
use crate::{page, print, print_json, report_to_stderr};

/// Runs `report`.
pub(crate) fn run(args: &Report) -> Result<Exit> {
    let record = Record::load(&args.record)?;
    if let Some(file) = &args.output {
        page::write(file, &page::html(&record))?;
        report_to_stderr(&format!("report: {}", file.display()));
    }
    if let Some(path) = &args.svg {
        write_charts(&record, path)?;
    }
    if args.json {
        print_json(&record)?;
    } else if args.markdown {
        print(&page::markdown(&record))?;
    } else if args.output.is_none() && args.svg.is_none() {
        print(&output::report(&record, Detail::of(args.details)))?;
    }
    Ok(Exit::Fine)
}

/// Writes all charts to a folder, or one to a file, whose name chooses the chart.
fn write_charts(record: &Record, path: &Path) -> Result<()> {
    let charts = page::svgs(record);
    if charts.is_empty() {
        bail!("the record has no charts: they need several sizes, loads or producers, round trips, or a bound");
    }
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
        for (name, svg) in &charts {
            page::write(&path.join(format!("{name}.svg")), svg)?;
        }
    }
    report_to_stderr(&format!("charts: {}", path.display()));
    Ok(())
}
