//! The command `report` with two records: what changed, side by side, on published and on hostile
//! records.

mod common;

use std::fs;

use common::Ground;
use common::page::{Browser, all, check, check_shapes, hostile, parsed, published, rename, set_figures};
use roxmltree::Document;
use serde_json::Value;

/// The records of these tests, and their page.
const FILES: [&str; 2] = ["a.json", "b.json"];

/// Writes the overview as both records, the second one edited.
fn pair(ground: &Ground, edit: impl Fn(&mut Value)) {
    let record = ground.run(["report", &published("overview-quick.json.gz"), "--json"]).exits(0).json();
    let mut other = record.clone();
    edit(&mut other);
    for (file, record) in FILES.into_iter().zip([record, other]) {
        fs::write(ground.path(file), record.to_string()).expect("the record");
    }
}

/// Makes each message through a pipe take this many times as long.
fn slow_down(record: &mut Value, factor: f64) {
    let entrants = record["entrants"].clone();
    for instance in record["instances"].as_array_mut().expect("instances") {
        let at = instance["entrant"].as_u64().expect("an entrant") as usize;
        if entrants[at]["case"]["mechanism"] == "process/pipe" {
            let figures = &mut instance["outcome"]["measured"];
            scale(figures, factor);
        }
    }
}

/// Multiplies all times of an instance.
fn scale(figures: &mut Value, factor: f64) {
    let times = |value: &mut Value| match value.as_u64() {
        Some(whole) => *value = ((whole as f64 * factor) as u64).into(),
        None => *value = value.as_f64().map_or(Value::Null, |time| (time * factor).into()),
    };
    for key in ["window_ns", "unpaused_run_ns"] {
        figures.get_mut(key).into_iter().for_each(times);
    }
    if let Some(latency) = figures.get_mut("latency").and_then(Value::as_object_mut) {
        let is_time = |key: &str| key.ends_with("_ns");
        latency.iter_mut().filter(|(key, _)| is_time(key)).for_each(|(_, value)| times(value));
    }
    for slice in figures.get_mut("slices").and_then(Value::as_array_mut).into_iter().flatten() {
        times(&mut slice["ns"]);
    }
}

/// Writes the page of both records, and returns it.
fn page(ground: &Ground) -> String {
    let done = ground.run(["report", FILES[0], FILES[1], "-o", "report.html"]).exits(0);
    assert!(done.stderr.ends_with("report: report.html\n") && done.stdout.is_empty(), "{}", done.stderr);
    fs::read_to_string(ground.path("report.html")).expect("the page")
}

/// The text of the section `What changed`.
fn first_section(page: &str) -> String {
    let tree = parsed(page);
    let section = all(&tree, "section").next().expect("a section");
    assert_eq!(section.attribute("id"), Some("answers"));
    section.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_says_first_what_compare_says() {
    let ground = Ground::new();
    pair(&ground, |record| slow_down(record, 3.0));
    let comparison = ground.run(["compare", FILES[0], FILES[1], "--json"]).exits(0).json();
    let page = page(&ground);
    check(&page);
    let first = first_section(&page);
    let cases = comparison["cases"].as_array().expect("cases");
    let count = |verdict: &str| cases.iter().filter(|case| case["verdict"] == verdict).count();
    assert!(
        count("slower") > 0
            && cases.iter().all(|case| case["verdict"] != "slower" || case["mechanism"] == "process/pipe")
    );
    let counts = format!(
        "{} of {} cases are faster in B, {} slower",
        count("faster"),
        cases.iter().filter(|case| !case["verdict"].is_null()).count(),
        count("slower")
    );
    assert!(first.contains(&counts), "{counts}: {first}");
    let words = if count("slower") == 1 { "case" } else { "cases" };
    assert!(
        first.contains(&format!("Slower in B: {} {words}", count("slower"))) && first.contains("process/pipe"),
        "{first}"
    );
    let tree = parsed(&page);
    let rows: usize = all(&tree, "section")
        .filter(|section| section.attribute("id") == Some("cases"))
        .flat_map(|section| section.descendants())
        .filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", "tr")))
        .count();
    let tables = all(&tree, "article").filter(|article| article.attribute("class") == Some("cell")).count();
    assert_eq!(rows, cases.len() + tables, "a row for each case, and one of headers for each table");
}

#[test]
fn charts_have_both_runs() {
    let ground = Ground::new();
    pair(&ground, |record| slow_down(record, 3.0));
    let page = page(&ground);
    let tree = parsed(&page);
    let has_class = |class: &str| tree.descendants().any(|node| node.attribute("class") == Some(class));
    assert!(has_class("line earlier") && has_class("mark"), "lines and bars show run A too");
    ground.run(["report", FILES[0], FILES[1], "--svg", "charts"]).exits(0);
    let charts: Vec<String> = common::names(ground.path("charts")).into_iter().collect();
    assert_eq!(charts.len(), all(&tree, "svg").count());
    for name in charts {
        let svg = fs::read_to_string(ground.path("charts").join(&name)).expect("a chart");
        Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn the_page_has_both_machines_and_commands_and_what_differs() {
    let ground = Ground::new();
    pair(&ground, |record| {
        record["provenance"]["arguments"] = serde_json::json!(["bench", "--rounds", "7"]);
        record["tool"] = "9.9.9".into();
    });
    let page = page(&ground);
    check(&page);
    assert!(page.contains("Run A again:") && page.contains("estafette bench --rounds 7"), "the commands");
    assert!(page.contains("<td>9.9.9</td><td>differs</td>"), "what differs");
    assert!(page.contains("A was measured by Estafette"), "the notes of the comparison");
}

#[test]
fn records_of_different_machines_are_said_to_be_and_not_compared() {
    let ground = Ground::new();
    pair(&ground, |record| record["fingerprint"]["cpu"] = "Z80".into());
    let page = page(&ground);
    check(&page);
    let first = first_section(&page);
    assert!(first.starts_with("What changed\nThe two records come from different machines"), "{first}");
    assert!(first.contains("Z80") && !page.contains("<svg") && !page.contains("id=\"cases\""), "nothing is compared");
    let markdown = ground.run(["report", FILES[0], FILES[1], "--markdown"]).exits(0).stdout;
    assert!(markdown.starts_with("## What changed\n\nThe two records come from different machines"), "{markdown}");
    for arguments in [&["--svg", "charts"][..], &["--json"], &[]] {
        let done = ground.run([&["report", FILES[0], FILES[1]], arguments].concat()).exits(2);
        assert!(done.stderr.contains("run both on one machine") && done.stdout.is_empty(), "{}", done.stderr);
    }
    assert!(!ground.path("charts").exists());
}

#[test]
fn text_and_json_are_those_of_compare() {
    let ground = Ground::new();
    pair(&ground, |record| slow_down(record, 2.0));
    for arguments in [&[][..], &["--json"]] {
        let [ours, theirs] = ["report", "compare"]
            .map(|command| ground.run([&[command, FILES[0], FILES[1]], arguments].concat()).exits(0));
        assert_eq!(ours.stdout, theirs.stdout);
    }
    let done = ground.run(["report", FILES[0], FILES[1], "--details"]).exits(2);
    assert!(done.stderr.contains("--details"), "{}", done.stderr);
}

#[test]
fn markdown_has_the_answer_the_tables_and_the_machines() {
    let ground = Ground::new();
    pair(&ground, |record| slow_down(record, 3.0));
    let markdown = ground.run(["report", FILES[0], FILES[1], "--markdown"]).exits(0).stdout;
    assert!(markdown.starts_with("## What changed\n\n0 of "), "{markdown}");
    for words in [
        "- **Slower in B: ",
        "### Between processes: changes\n\n| mechanism | table | A | B |",
        "### The machines\n\n| property |",
        "To measure B again: `",
    ] {
        assert!(markdown.contains(words), "{words}: {markdown}");
    }
}

#[test]
fn names_with_markup_stay_text() {
    let ground = Ground::new();
    pair(&ground, rename);
    hostile(&ground, rename);
    // With a first record that is sound, and with one that is hostile too.
    for is_first_hostile in [false, true] {
        if is_first_hostile {
            fs::copy(ground.path("hostile.json"), ground.path(FILES[0])).expect("the first record");
        }
        let page = page(&ground);
        check(&page);
        assert!(!page.contains("<script>alert") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "the name is shown");
        let markdown = ground.run(["report", FILES[0], FILES[1], "--markdown"]).exits(0).stdout;
        let (text, _) = markdown.split_once("To measure A again: ").expect("the command");
        assert!(!text.contains("<script>") && !markdown.contains(['\u{1b}', '\u{202e}']), "{markdown}");
    }
}

#[test]
fn a_file_with_a_hostile_name_stays_text() {
    let ground = Ground::new();
    pair(&ground, |_| {});
    let name = "<img src=x>&\u{1b}.json";
    fs::copy(ground.path(FILES[0]), ground.path(name)).expect("a record");
    ground.run(["report", name, FILES[1], "-o", "report.html"]).exits(0);
    let page = fs::read_to_string(ground.path("report.html")).expect("the page");
    check(&page);
    assert!(page.contains("&lt;img src=x&gt;&amp;") && !page.contains('\u{1b}'));
}

#[test]
fn figures_of_any_size_neither_panic_nor_break_the_page() {
    for figure in [1e308, -1e308, 0.0, 5e-324] {
        let ground = Ground::new();
        pair(&ground, |record| set_figures(record, figure));
        let page = page(&ground);
        check(&page);
        check_shapes(&page);
        ground.run(["report", FILES[0], FILES[1], "--markdown"]).exits(0);
    }
}

#[test]
fn a_damaged_record_is_an_error_that_names_the_files() {
    let ground = Ground::new();
    pair(&ground, |record| record["rounds_planned"] = 2_000.into());
    let done = ground.run(["report", FILES[0], FILES[1], "-o", "report.html"]).exits(2);
    assert!(done.stderr.contains("cannot compare a.json with b.json: a record of more than"), "{}", done.stderr);
    assert!(!ground.path("report.html").exists());
}

#[test]
fn the_page_works_in_a_browser() {
    let ground = Ground::new();
    let Some(browser) = Browser::find(&ground) else { return };
    pair(&ground, |record| slow_down(record, 3.0));
    page(&ground);
    browser.check(&ground.path("report.html"));
}
