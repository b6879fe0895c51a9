//! Tables and figures in the documents that come from committed records. [`sentences`] has the
//! figures in sentences.
//!
//! A table stands behind a comment that describes it:
//!
//! ```text
//! <!-- table of results/ipc-quick.json.gz, in us
//! column | round trip | time | process · ping-pong · 64B · block · other-core
//! row | process/pipe | a pipe
//! row | process/shm-memfd | shared memory, polled | spin
//! -->
//! ```
//!
//! A column has a title, a figure (`time`, `p50`, `p99`, `p99.9`, `lost` in percent, `cpu`, `calls`
//! or `fairness`) and the heading of a cell. A row has a mechanism, the name to show, and
//! optionally a wait mode instead of the cell's. Rows are sorted by the first column.
//! `UPDATE=1 cargo test -p estafette-cli --test document_tables` writes all tables anew.

mod results;
mod sentences;

use std::fs;

use estafette_measure::ranking::Ranking;

use self::results::{Results, docs, is_time, quantity, ranking, unit_ns};

const OPENING: &str = "<!-- table of ";

/// A table as its comment describes it.
struct Table {
    /// Path of the record, relative to the document.
    record: String,
    /// Nanoseconds in the unit of its times.
    unit_ns: f64,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

struct Column {
    title: String,
    figure: String,
    cell: String,
}

struct Row {
    mechanism: String,
    label: String,
    wait: Option<String>,
}

impl Table {
    fn parse(comment: &str) -> Table {
        let (head, lines) = comment.split_once('\n').expect("a first line");
        let (record, unit) = head.trim_start_matches(OPENING).split_once(", in ").expect("`RECORD, in UNIT`");
        let unit_ns = unit_ns(unit.trim());
        let mut table = Table { record: record.to_owned(), unit_ns, columns: Vec::new(), rows: Vec::new() };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let fields: Vec<String> = line.split(" | ").map(|field| field.trim().to_owned()).collect();
            match &*fields {
                [kind, title, figure, cell] if kind == "column" => {
                    let (title, figure, cell) = (title.clone(), figure.clone(), cell.clone());
                    table.columns.push(Column { title, figure, cell });
                }
                [kind, mechanism, label, wait @ ..] if kind == "row" && wait.len() < 2 => {
                    let (mechanism, label, wait) = (mechanism.clone(), label.clone(), wait.first().cloned());
                    table.rows.push(Row { mechanism, label, wait });
                }
                _ => panic!("neither a column nor a row: {line}"),
            }
        }
        table
    }

    fn written(&self, rankings: &[Ranking]) -> String {
        let mut rows: Vec<(f64, String)> = Vec::new();
        for row in &self.rows {
            let figures: Vec<Option<f64>> =
                self.columns.iter().map(|column| self.figure(rankings, column, row)).collect();
            assert!(figures.iter().any(Option::is_some), "{}: {} has no figure in it", self.record, row.mechanism);
            let cells = figures.iter().map(|figure| figure.map_or(String::new(), two_digits));
            let line = [row.label.clone()].into_iter().chain(cells).collect::<Vec<_>>().join(" | ");
            rows.push((figures[0].unwrap_or(f64::INFINITY), format!("| {line} |\n")));
        }
        rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title.as_str()).collect();
        let head = format!("| | {} |\n|{}\n", titles.join(" | "), "---|".repeat(titles.len() + 1));
        rows.into_iter().fold(head, |text, (_, row)| text + &row)
    }

    /// The figure of a row in a column; `None` if the row's mechanism is not in that cell.
    fn figure(&self, rankings: &[Ranking], column: &Column, row: &Row) -> Option<f64> {
        let heading =
            row.wait.as_ref().map_or(column.cell.clone(), |wait| column.cell.replace(" block ", &format!(" {wait} ")));
        let ranking = ranking(rankings, &heading);
        assert!(ranking.is_some() || row.wait.is_some(), "{} has no cell `{heading}`", self.record);
        let row = ranking?.rows.iter().find(|found| found.spec.name == row.mechanism)?;
        let unit = if is_time(&column.figure) { self.unit_ns } else { 1.0 };
        Some(quantity(row, &column.figure)? / unit)
    }
}

/// Two significant digits: 0.13, 1.4, 57, 1200.
fn two_digits(value: f64) -> String {
    if value == 0.0 {
        return String::from("0");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let unit = 10_f64.powi(magnitude - 1);
    let rounded = (value / unit).round() * unit;
    let decimals = (1 - rounded.abs().log10().floor() as i32).clamp(0, 2) as usize;
    format!("{rounded:.decimals$}")
}

/// The document with each of its tables as its record says.
fn rewritten(text: &str, results: &mut Results) -> String {
    let mut parts = text.split(OPENING);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (comment, rest) = part.split_once("-->\n").expect("the comment ends");
        let table = Table::parse(comment);
        let is_blank_or_table = |line: &&str| line.is_empty() || line.starts_with('|');
        let old: usize = rest.lines().take_while(is_blank_or_table).map(|line| line.len() + 1).sum();
        let rest = &rest[old.min(rest.len())..];
        written += &format!("{OPENING}{comment}-->\n\n{}\n{rest}", table.written(results.of(&table.record)));
    }
    written
}

/// The documents: their names and their texts.
fn documents() -> Vec<(String, String)> {
    let of_folder = |folder: &str| -> Vec<String> {
        let files = fs::read_dir(docs().join(folder)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")).collect()
    };
    let names = [of_folder("../"), of_folder(""), of_folder("rationale/")].concat();
    let text = |name: &str| fs::read_to_string(docs().join(name)).unwrap();
    names.into_iter().map(|name| (name.clone(), text(&name))).collect()
}

#[test]
fn tables_in_the_documents_are_those_of_their_records() {
    let is_update = std::env::var_os("UPDATE").is_some();
    let mut results = Results::default();
    let mut tables = 0;
    for (name, text) in documents() {
        let written = rewritten(&text, &mut results);
        tables += text.matches(OPENING).count();
        if is_update {
            fs::write(docs().join(name), written).unwrap();
        } else {
            assert!(
                text == written,
                "a table in {name} is not what its record says: UPDATE=1 cargo test -p estafette-cli --test document_tables"
            );
        }
    }
    assert!(tables > 0, "no document has a table");
}

#[test]
fn figures_in_sentences_are_those_of_their_records() {
    let mut results = Results::default();
    let documents = documents();
    let differences: Vec<String> =
        documents.iter().flat_map(|(name, text)| sentences::differences(name, text, &mut results)).collect();
    assert!(differences.is_empty(), "write these sentences anew:\n{}", differences.join("\n"));
}

#[test]
fn comments_of_tables_and_figures_are_read() {
    let documents = documents();
    let count = |opening: &str| documents.iter().map(|(_, text)| text.matches(opening).count()).sum::<usize>();
    assert!(count(sentences::OPENING) > 0);
    assert_eq!(count("<!-- figure"), count(sentences::OPENING), "a comment begins with `{}`", sentences::OPENING);
    assert_eq!(count("<!-- table"), count(OPENING), "a comment begins with `{OPENING}`");
}

#[test]
fn figures_have_two_digits() {
    let shown = [0.1349, 1.44, 56.6, 99.6, 1188.0, 0.996, 0.0, 0.04].map(two_digits);
    assert_eq!(shown, ["0.13", "1.4", "57", "100", "1200", "1.0", "0", "0.04"]);
}
