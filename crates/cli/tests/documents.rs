//! The documents match the records that they come from, and the files that they name exist. No
//! record has a result that its bound excludes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use estafette_measure::ranking::rank;
use estafette_measure::record::Record;

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

/// The noise that is assumed if a record has too few rounds to know it: such are pipelines with two
/// readers that compete, which vary by that much.
const UNKNOWN_NOISE: f64 = 0.5;

#[test]
fn no_result_is_below_its_bound() {
    for path in records() {
        let record = Record::load(&path).unwrap();
        for ranking in rank(&record) {
            let Some(bound) = &ranking.bound else { continue };
            let noise = ranking.floor.unwrap_or(UNKNOWN_NOISE);
            for row in &ranking.rows {
                let Some(result) = &row.result else { continue };
                assert!(
                    result.metric_ns >= bound.ns() * (1.0 - noise),
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

/// The questions of an index or a page, in order: the rest of each line that begins with `mark`.
fn questions<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(mark)).collect()
}

#[test]
fn the_index_of_the_rationale_has_the_questions_of_its_pages() {
    let index = fs::read_to_string(root().join("RATIONALE.md")).unwrap();
    let mut listed = BTreeSet::new();
    for section in index.split("\n## ").skip(1) {
        let (_, link) = section.split_once("](").expect("each section begins with a link to its page");
        let (page, _) = link.split_once(')').unwrap();
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert_eq!(
            questions(section, "- "),
            questions(&text, "### "),
            "left: RATIONALE.md, right: the headings of {page}"
        );
        listed.insert(root().join(page));
    }
    let pages = fs::read_dir(root().join("docs/rationale")).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(listed, pages.collect(), "left: the pages that RATIONALE.md links to, right: docs/rationale");
}

/// The files and folders of the repository, relative to its root. Without what is built.
fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if name == "target" || name.starts_with('.') {
            continue;
        }
        found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
        if path.is_dir() {
            files(&path, found);
        }
    }
}

/// What stands in backticks and names a file or folder: it has a suffix of this project's files, or
/// begins with one of its folders.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    let is_path = |name: &str| {
        let path = Path::new(name);
        let known = ["rs", "c", "h", "md", "toml", "wit"];
        let first = name.split('/').next().unwrap();
        !name.contains(|c: char| c.is_whitespace() || "*<>{}:".contains(c))
            && (path.extension().is_some_and(|suffix| known.iter().any(|known| suffix == *known))
                || name.contains('/') && ["crates", "docs", "examples", "wit"].contains(&first))
    };
    text.split('`').skip(1).step_by(2).filter(move |name| is_path(name))
}

#[test]
fn the_files_that_the_pages_for_contributors_name_exist() {
    let mut known = Vec::new();
    files(&root(), &mut known);
    let rationale = fs::read_dir(root().join("docs/rationale")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = rationale.collect();
    pages.push(root().join("docs/architecture.md"));
    let mut named = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for name in named_files(&text) {
            named += 1;
            // A page about one crate names its files by the end of their path.
            let exists = known.iter().any(|path| Path::new(path).ends_with(name));
            assert!(exists, "{} names {name}, which does not exist", page.display());
        }
    }
    assert!(named > 100, "only {named} names were found");
}
