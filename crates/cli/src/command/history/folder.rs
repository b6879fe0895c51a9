//! Loads the records of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use estafette_measure::record::Record;
use serde::Serialize;

use crate::comparison;

/// A record of the folder.
pub(super) struct Loaded {
    pub(super) file: PathBuf,
    pub(super) record: Record,
}

/// A file of the folder that is no record.
#[derive(Debug, Serialize)]
pub(super) struct Skipped {
    pub(super) file: PathBuf,
    pub(super) why: String,
}

/// Loads the records of a folder, oldest first. Files that only look like records are skipped.
pub(super) fn load(dir: &Path) -> Result<(Vec<Loaded>, Vec<Skipped>)> {
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
    // Opening a pipe would block. A folder has an error of its own.
    if !file.is_file() && !file.is_dir() {
        return Err(String::from("it is not a regular file"));
    }
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
