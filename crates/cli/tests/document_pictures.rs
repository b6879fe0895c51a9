//! Charts in the documents that come from committed records.
//!
//! `docs/pictures/RECORD/CHART.svg` is the chart of this name of `docs/results/RECORD.json.gz`, as
//! `estafette report RECORD --svg CHART.svg` writes it. `UPDATE=1 cargo test -p estafette-cli
//! --test document_pictures` writes all charts anew; `docs/pictures.sh` does so, and takes a
//! picture of a report page.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Ground;
use common::page::{published, root};

const UPDATE: &str = "UPDATE=1 cargo test -p estafette-cli --test document_pictures";
/// The largest chart and the largest picture in bytes: a repository keeps each version for ever.
const MAX_CHART: u64 = 100_000;
const MAX_PICTURE: u64 = 200 * 1024;

fn pictures() -> PathBuf {
    root().join("docs/pictures")
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn charts_in_the_documents_are_those_of_their_records() {
    let is_update = std::env::var_os("UPDATE").is_some();
    let charts: Vec<PathBuf> = files(&pictures())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "svg"))
        .collect();
    assert!(!charts.is_empty(), "no document has a chart");
    let ground = Ground::new();
    for chart in charts {
        let record = chart.parent().and_then(Path::file_name).expect("a folder with the name of a record");
        let name = chart.file_name().expect("a file").to_string_lossy().into_owned();
        let record = published(&format!("{}.json.gz", record.display()));
        ground.run(["report", &record, "--svg", &name]).exits(0);
        let written = fs::read(ground.path(&name)).expect("the chart");
        if is_update {
            fs::write(&chart, written).expect("the chart can be written");
        } else {
            let is_same = fs::read(&chart).expect("the chart") == written;
            assert!(is_same, "{} is not what its record says: {UPDATE}", chart.display());
        }
        assert!(fs::metadata(&chart).expect("the chart").len() < MAX_CHART, "{} is too large", chart.display());
    }
}

/// Whether a document shows a picture with a description: `![DESCRIPTION](…NAME)`.
fn shows(text: &str, name: &str) -> bool {
    text.split("![").skip(1).any(|image| {
        let parts = image.split_once("](").and_then(|(description, rest)| Some((description, rest.split_once(')')?.0)));
        parts.is_some_and(|(description, path)| description.len() > 20 && path.ends_with(name))
    })
}

#[test]
fn each_picture_is_small_and_in_a_document_with_a_description() {
    let documents = [vec![root().join("README.md")], files(&root().join("docs"))].concat();
    let texts: Vec<String> = documents
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| fs::read_to_string(path).expect("a document"))
        .collect();
    for picture in files(&pictures()) {
        assert!(fs::metadata(&picture).expect("a picture").len() <= MAX_PICTURE, "{} is too large", picture.display());
        let name = picture.strip_prefix(root().join("docs")).expect("a picture in docs").display().to_string();
        let is_shown = texts.iter().any(|text| shows(text, &name));
        assert!(is_shown, "{name} is in no document, or without a description");
    }
}
