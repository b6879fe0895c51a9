//! The command `report` on published and on hostile records: page, Markdown, charts.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Done, Ground, names};
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

/// The longest page in bytes.
const MAX_PAGE: usize = 2_000_000;
/// What a hostile record has as its names.
const HOSTILE: &str = "x\"'><script>alert(1)</script>]]>-->&lt;\u{1b}[2J\u{202e}|`*";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn published(name: &str) -> String {
    root().join("docs/results").join(name).display().to_string()
}

/// Writes the page of a record, and returns it.
fn page(ground: &Ground, record: &str) -> String {
    let done = ground.run(["report", record, "-o", "report.html"]).exits(0);
    assert!(done.stderr.ends_with("report: report.html\n") && done.stdout.is_empty(), "{}", done.stderr);
    fs::read_to_string(ground.path("report.html")).expect("the page")
}

/// Parses a page. It is XML as well as HTML, so that a stray `<` of a record is an error.
#[track_caller]
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("not well-formed: {error}"))
}

fn all<'a>(page: &'a Document<'_>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    page.descendants().filter(move |node| node.is_element() && node.tag_name().name() == tag)
}

/// Checks what every page must have, whatever its record is.
#[track_caller]
fn check(page: &str) {
    assert!(page.len() < MAX_PAGE, "{} bytes", page.len());
    let tree = parsed(page);
    assert_eq!(all(&tree, "script").count(), 1, "only the page's own script");
    assert_eq!(all(&tree, "h1").count(), 1);
    let elements = || tree.descendants().filter(Node::is_element);
    for node in elements() {
        for attribute in node.attributes() {
            let is_link = matches!(attribute.name(), "href" | "src" | "action" | "data");
            assert!(!is_link || attribute.value().starts_with('#'), "loads {}", attribute.value());
            assert!(!attribute.name().starts_with("on"), "a handler: {}", attribute.name());
        }
    }
    let mut ids: Vec<&str> = elements().filter_map(|node| node.attribute("id")).collect();
    let links = all(&tree, "a").filter_map(|link| link.attribute("href"));
    for link in links {
        assert!(ids.contains(&&link[1..]), "a link to nowhere: {link}");
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an identifier twice");
    for svg in all(&tree, "svg") {
        assert_eq!(svg.attribute("role"), Some("img"));
        let has = |tag: &str| svg.children().any(|child| child.tag_name().name() == tag && child.text().is_some());
        assert!(has("title") && has("desc"), "a chart says what it is");
    }
    for table in all(&tree, "table") {
        assert!(table.children().any(|child| child.tag_name().name() == "caption"), "a table has a caption");
    }
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

/// A record with these names and figures in place of those of the overview.
fn hostile(ground: &Ground, edit: impl Fn(&mut Value)) -> String {
    let done = ground.run(["report", &published("overview-quick.json.gz"), "--json"]).exits(0);
    let mut record = done.json();
    edit(&mut record);
    fs::write(ground.path("hostile.json"), record.to_string()).expect("the record");
    String::from("hostile.json")
}

/// Replaces all mechanisms' names.
fn rename(record: &mut Value) {
    let rename = |value: &mut Value| {
        let name = value.as_str().expect("a name");
        *value = format!("{name}{HOSTILE}").into();
    };
    for spec in record["mechanisms"].as_array_mut().expect("mechanisms") {
        rename(&mut spec["name"]);
        spec["implementation"] = HOSTILE.into();
    }
    for list in ["entrants", "refusals"] {
        for entrant in record[list].as_array_mut().expect("a list") {
            rename(&mut entrant["case"]["mechanism"]);
        }
    }
    for key in ["cpu", "architecture", "kernel", "clock_source"] {
        record["fingerprint"][key] = HOSTILE.into();
    }
    for key in ["started", "tool"] {
        record[key] = HOSTILE.into();
    }
    record["provenance"]["arguments"] = serde_json::json!(["bench", HOSTILE, "a b", "it's"]);
    for instance in record["instances"].as_array_mut().expect("instances").iter_mut().step_by(7) {
        instance["outcome"] = serde_json::json!({ "failed": { "why": HOSTILE } });
    }
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
            for instance in record["instances"].as_array_mut().expect("instances") {
                let figures = &mut instance["outcome"]["measured"];
                let slices = figures.get_mut("slices").and_then(|slices| slices.as_array_mut());
                for slice in slices.into_iter().flatten() {
                    slice["ns"] = figure.into();
                }
                figures["cpu_ns_per_message"] = figure.into();
                instance["line_ns"] = figure.into();
            }
            for handling in record["handling"].as_array_mut().expect("handling") {
                handling["ns"] = figure.into();
            }
            record["seed"] = u64::MAX.into();
            record["fingerprint"]["memory_mib"] = u64::MAX.into();
            record["fingerprint"]["cores"] = usize::MAX.into();
        });
        let page = page(&ground, &record);
        check(&page);
        let tree = parsed(&page);
        for shape in all(&tree, "svg").flat_map(|svg| svg.descendants()) {
            for name in ["d", "x", "y", "width"] {
                let value = shape.attribute(name).unwrap_or_default();
                assert!(!value.contains("NaN") && !value.contains("inf"), "{figure}: {value}");
            }
        }
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
    let done = Ground::new().run(["report", &published("ipc-quick.json.gz"), "--markdown"]).exits(0);
    assert!(done.stdout.starts_with("## What to use\n\n- **Between processes**\n  - "), "{}", done.stdout);
    assert_eq!(done.stdout.matches("\n| \\# | mechanism |").count(), 4, "{}", done.stdout);
    assert!(done.stdout.contains("`estafette bench ipc`"), "{}", done.stdout);
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

/// Whether tests that need a browser must run.
fn are_pages_required() -> bool {
    std::env::var_os("ESTAFETTE_PAGES").is_some_and(|value| value == "required")
}

/// The rules of accessibility that the page is checked with, from npm. `None` if they cannot be installed.
fn axe(ground: &Ground) -> Option<PathBuf> {
    let folder = ground.path("npm");
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg("axe-core@4");
    let installed = npm.output().is_ok_and(|output| output.status.success());
    let script = folder.join("node_modules/axe-core/axe.min.js");
    (installed && script.exists()).then_some(script)
}

#[test]
fn the_page_works_in_a_browser() {
    let ground = Ground::new();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let axe = has("npm").then(|| axe(&ground)).flatten();
    let Some(axe) = axe.filter(|_| has("chromium") && has("node")) else {
        assert!(!are_pages_required(), "this needs chromium, node, and npm with a registry");
        eprintln!("SKIPPED: the page in a browser, which needs chromium, node, and npm with a registry");
        return;
    };
    for record in ["net-standard.json.gz", "overview-quick.json.gz"] {
        page(&ground, &published(record));
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/check.mjs");
        let output =
            Command::new("node").arg(check).arg(ground.path("report.html")).arg(&axe).output().expect("node starts");
        let done = Done::from(output);
        assert!(done.status.success(), "{record}:\n{}{}", done.stdout, done.stderr);
    }
}
