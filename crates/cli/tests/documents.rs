//! The documents match the records that they come from, and no record has a result that its bound excludes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use estafette_measure::ranking::rank;
use estafette_measure::record::Record;

/// By how much a result may be below its bound, beside the noise of its table: both are medians of noisy measurements.
const TOLERANCE: f64 = 0.10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The committed records.
fn records() -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("docs/results")).unwrap();
    let files = folder.map(|entry| entry.unwrap().path());
    let records: Vec<PathBuf> = files.filter(|path| path.to_string_lossy().ends_with(".json.gz")).collect();
    assert!(!records.is_empty(), "docs/results has records");
    records
}

/// The tables beside a record.
fn tables(record: &Path) -> PathBuf {
    PathBuf::from(record.to_string_lossy().replace(".json.gz", ".txt"))
}

#[test]
fn each_table_file_is_what_report_prints_of_its_record() {
    for record in records() {
        let output = Command::new(env!("CARGO_BIN_EXE_estafette")).arg("report").arg(&record).output().unwrap();
        assert!(output.status.success(), "{}: {}", record.display(), String::from_utf8_lossy(&output.stderr));
        let (printed, file) = (String::from_utf8(output.stdout).unwrap(), tables(&record));
        let name = record.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            fs::read_to_string(&file).unwrap_or_default() == printed,
            "{} is not what its record says now; write it anew: estafette report docs/results/{name} > {}",
            file.display(),
            format_args!("docs/results/{}", file.file_name().unwrap().to_string_lossy())
        );
    }
}

#[test]
fn the_sample_in_the_readme_is_from_the_overview() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let overview = fs::read_to_string(root().join("docs/results/overview-quick.txt")).unwrap();
    let sample = readme.split("## What it prints").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let lines: Vec<&str> = sample.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(lines.len() > 20, "the README shows a sample");
    for line in lines.into_iter().filter(|line| !line.is_empty() && !line.starts_with('(')) {
        assert!(overview.lines().any(|printed| printed == line), "not in docs/results/overview-quick.txt: {line}");
    }
}

/// The noise that is assumed if a record has too few rounds to know it.
const UNKNOWN_NOISE: f64 = 0.4;

#[test]
fn no_result_is_below_its_bound() {
    for path in records() {
        let record = Record::load(&path).unwrap();
        for ranking in rank(&record) {
            let Some(bound) = &ranking.bound else { continue };
            let tolerance = TOLERANCE + ranking.floor.unwrap_or(UNKNOWN_NOISE);
            for row in &ranking.rows {
                let Some(result) = &row.result else { continue };
                assert!(
                    result.metric_ns >= bound.ns() * (1.0 - tolerance),
                    "{}: {} · {}: {} ns, below {} of {} ns",
                    path.display(),
                    row.spec.name,
                    ranking.cell,
                    result.metric_ns,
                    bound.cost(),
                    bound.ns()
                );
            }
        }
    }
}
