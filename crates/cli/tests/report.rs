//! The command `report` on published and on hostile records: page, Markdown, charts.

mod common;

use std::fs;
use std::path::Path;

use common::page::{Browser, all, check, check_shapes, hostile, parsed, published, rename, root, set_figures};
use common::{Ground, names};
use estafette_measure::record::Record;
use roxmltree::Document;
use serde_json::Value;

/// Writes the page of a record, and returns it.
fn page(ground: &Ground, record: &str) -> String {
    let done = ground.run(["report", record, "-o", "report.html"]).exits(0);
    assert!(done.stderr.ends_with("report: report.html\n") && done.stdout.is_empty(), "{}", done.stderr);
    fs::read_to_string(ground.path("report.html")).expect("the page")
}

#[test]
fn every_published_record_has_a_page() {
    let records = names(root().join("docs/results"));
    let records: Vec<&String> = records.iter().filter(|name| name.ends_with(".json.gz")).collect();
    assert!(records.len() > 5);
    for name in records {
        let page = page(&Ground::new(), &published(name));
        check(&page);
        let tree = parsed(&page);
        assert!(all(&tree, "svg").count() > 0, "{name} has charts");
        assert!(all(&tree, "h2").any(|heading| heading.text() == Some("What to use")), "{name}");
    }
}

#[test]
fn the_page_of_the_overview_answers_first() {
    let page = page(&Ground::new(), &published("overview-quick.json.gz"));
    let first = page.find("What to use</h2>").expect("the answers");
    assert!(first < page.find("Charts</h3>").expect("charts"), "the answers come first");
    for words in
        ["Between processes", "Through the network stack", "estafette bench", "fill or check", "Noise of each table"]
    {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_page_can_be_written_to_stdout() {
    let ground = Ground::new();
    let record = published("overview-quick.json.gz");
    let done = ground.run(["report", &record, "-o", "-"]).exits(0);
    assert!(done.stderr.is_empty() && !ground.path("-").exists(), "{}", done.stderr);
    assert_eq!(done.stdout, page(&ground, &record));
    let changes = ground.run(["report", &record, &record, "-o", "-"]).exits(0).stdout;
    assert!(changes.starts_with("<!DOCTYPE html>"), "{:.100}", changes);
}

#[test]
fn names_with_markup_stay_text() {
    let ground = Ground::new();
    let record = hostile(&ground, rename);
    let page = page(&ground, &record);
    check(&page);
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;]]&gt;"), "the name is shown");
    assert!(page.contains("'a b' &quot;it's&quot;"), "the command is quoted for a shell");
    let markdown = ground.run(["report", &record, "--markdown"]).exits(0).stdout;
    // The command at the end is code, where markup is text.
    let (text, command) = markdown.rsplit_once("To measure again: ").expect("the command");
    assert!(!text.contains("<script>") && text.contains("\\<script\\>"), "{text}");
    assert!(command.starts_with("`` estafette bench ") && command.ends_with(" ``\n"), "{command}");
    assert!(!markdown.contains(['\u{1b}', '\u{202e}']));
    ground.run(["report", &record, "--svg", "charts"]).exits(0);
    for name in names(ground.path("charts")) {
        let svg = fs::read_to_string(ground.path("charts").join(&name)).expect("a chart");
        let tree = Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(all(&tree, "script").count(), 0);
    }
}

#[test]
fn figures_of_any_size_neither_panic_nor_break_the_page() {
    for figure in [1e308, -1e308, 0.0, -1.0, 5e-324] {
        let ground = Ground::new();
        let record = hostile(&ground, |record| {
            set_figures(record, figure);
            record["fingerprint"]["cores"] = usize::MAX.into();
        });
        let page = page(&ground, &record);
        check(&page);
        check_shapes(&page);
        ground.run(["report", &record, "--markdown"]).exits(0);
    }
}

#[test]
fn a_record_without_results_has_a_page_too() {
    let ground = Ground::new();
    let record = hostile(&ground, |record| {
        for list in ["entrants", "refusals", "instances", "mechanisms", "handling", "heats"] {
            record[list] = serde_json::json!([]);
        }
        record["limits"] = Value::Null;
        record["provenance"] = Value::Null;
    });
    let page = page(&ground, &record);
    check(&page);
    assert!(page.contains("no results that are ranked"));
    let done = ground.run(["report", &record, "--svg", "charts"]).exits(2);
    assert!(done.stderr.contains("no charts"), "{}", done.stderr);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_with_a_remedy() {
    let ground = Ground::new();
    let record = published("overview-quick.json.gz");
    for arguments in
        [["-o", "missing/report.html"], ["-o", "."], ["--svg", "missing/network-stream-block-other-core-bound.svg"]]
    {
        let done = ground.run([&["report", &record], &arguments[..]].concat()).exits(2);
        assert!(done.stderr.contains("choose a file in a folder that exists"), "{arguments:?}: {}", done.stderr);
    }
    fs::write(ground.path("file"), "").expect("a file");
    let done = ground.run(["report", &record, "--svg", "file/charts"]).exits(2);
    assert!(done.stderr.contains("choose another with --svg"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn charts_are_files_and_a_name_chooses_one() {
    let ground = Ground::new();
    let record = published("net-standard.json.gz");
    ground.run(["report", &record, "--svg", "charts"]).exits(0);
    let charts = names(ground.path("charts"));
    for chart in [
        "network-stream-block-other-core-by-size.svg",
        "network-ping-pong-block-other-core-by-size.svg",
        "network-ping-pong-block-other-core-by-percentile.svg",
        "network-connections-block-other-core-by-producers.svg",
        "network-stream-block-other-core-bound.svg",
    ] {
        assert!(charts.contains(chart), "{chart} in {charts:?}");
        ground.run(["report", &record, "--svg", chart]).exits(0);
        let [one, all] =
            [ground.path(chart), ground.path("charts").join(chart)].map(|path| fs::read(path).expect("a chart"));
        assert_eq!(one, all);
    }
    let done = ground.run(["report", &record, "--svg", "other.svg"]).exits(2);
    assert!(done.stderr.contains("there is no chart `other`") && done.stderr.contains("-by-size"), "{}", done.stderr);
}

#[test]
fn latency_against_load_shows_the_knee() {
    let ground = Ground::new();
    let done = ground.run(["report", &published("net-standard.json.gz"), "--json"]).exits(0);
    let mut record = done.json();
    let load = |entrant: &Value| entrant["case"]["cell"]["load"].as_str().map(str::to_owned);
    let entrants = record["entrants"].as_array().expect("entrants").clone();
    let open: Vec<usize> =
        (0..entrants.len()).filter(|at| load(&entrants[*at]).as_deref() == Some("10000/s")).collect();
    for (rate, times) in [("100000/s", 2), ("1000000/s", 100)] {
        for at in &open {
            let mut entrant = entrants[*at].clone();
            entrant["case"]["cell"]["load"] = rate.into();
            let new = record["entrants"].as_array().expect("entrants").len();
            let instances = record["instances"].as_array().expect("instances").clone();
            for mut instance in instances.into_iter().filter(|instance| instance["entrant"] == *at) {
                instance["entrant"] = new.into();
                let latency = &mut instance["outcome"]["measured"]["latency"];
                latency["p99_ns"] = (latency["p99_ns"].as_u64().unwrap_or(1_000) * times).into();
                record["instances"].as_array_mut().expect("instances").push(instance);
            }
            record["entrants"].as_array_mut().expect("entrants").push(entrant);
        }
    }
    fs::write(ground.path("loads.json"), record.to_string()).expect("the record");
    let page = page(&ground, "loads.json");
    check(&page);
    assert!(page.contains("Latency against offered load: stream · 64B · block · other-core"), "the chart");
    assert!(page.contains("at 100 k/s") && page.contains("class=\"ring\""), "the knee in the table and in the chart");
}

#[test]
fn markdown_has_the_answers_and_a_table_for_each_cell() {
    let path = published("ipc-quick.json.gz");
    let record = Record::load(Path::new(&path)).expect("a record");
    let done = Ground::new().run(["report", &path, "--markdown"]).exits(0);
    assert!(done.stdout.starts_with("## What to use\n\n- **Between processes**\n  - "), "{}", done.stdout);
    assert_eq!(done.stdout.matches("\n| \\# | mechanism |").count(), 4, "{}", done.stdout);
    let command = format!("`estafette {}`", record.provenance.expect("its command").arguments.join(" "));
    assert!(command.contains(" bench ipc") && done.stdout.contains(&command), "{command}: {}", done.stdout);
}

#[test]
fn bench_writes_the_page_beside_the_record() {
    let ground = Ground::new();
    let arguments = ["process/pipe", "process/unix-stream", "--pattern=ping-pong", "--rounds=1", "--size=64"];
    let done = ground.bench(20, &arguments);
    let page = ground.record().with_extension("html");
    let last = done.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("report: out/") && last.ends_with(".html"), "{}", done.stderr);
    check(&fs::read_to_string(page).expect("the page"));
    fs::remove_dir_all(ground.path("out")).expect("the folder");
    let done = ground.bench(20, &[&arguments[..], &["--no-report"]].concat());
    assert!(done.stderr.lines().last().unwrap_or_default().starts_with("record: "), "{}", done.stderr);
    assert!(!ground.record().with_extension("html").exists());
}

#[test]
fn the_page_works_in_a_browser() {
    let ground = Ground::new();
    let Some(browser) = Browser::find(&ground) else { return };
    for record in ["net-standard.json.gz", "overview-quick.json.gz"] {
        page(&ground, &published(record));
        browser.check(&ground.path("report.html"));
    }
}
