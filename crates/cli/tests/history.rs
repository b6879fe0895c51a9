//! The command `history` on folders of records. They are made of one real round, repeated with
//! known differences, so no outcome depends on the machine.

mod common;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use common::{Done, Ground};
use roxmltree::Document;
use serde_json::{Value, json};

/// One round of two mechanisms and a reference ring.
fn round() -> &'static Value {
    static RECORD: OnceLock<Value> = OnceLock::new();
    RECORD.get_or_init(|| {
        let mechanisms = ["process/pipe", "process/fifo", "process/reference-ring"];
        Ground::new().one_round(60, &[&mechanisms[..], &["--pattern=ping-pong", "--wait=block", "--size=64"]].concat())
    })
}

/// A record of this day. A message through `process/fifo` takes `factor` times 100 us.
fn of_day(day: usize, factor: f64) -> Value {
    let mut record = common::repeated(round(), "process/fifo", factor);
    record["started"] = json!(format!("2026-01-{day:02}T10:00:00Z"));
    record
}

/// A folder with a record for each factor, on days from 1. The names are not in the order of time.
fn folder(factors: &[f64]) -> Ground {
    let ground = Ground::new();
    fs::create_dir(ground.path("runs")).unwrap();
    for (day, factor) in (1..).zip(factors) {
        write(&ground, &format!("{}.json", 99 - day), &of_day(day, *factor).to_string());
    }
    ground
}

fn write(ground: &Ground, name: &str, content: &str) {
    fs::write(ground.path("runs").join(name), content).unwrap();
}

fn history(ground: &Ground, options: &[&str]) -> Done {
    ground.run([&["history", "runs"], options].concat())
}

#[test]
fn the_run_in_which_a_mechanism_became_slower_is_marked() {
    let ground = folder(&[1.0, 1.3, 1.3, 1.0]);
    let text = history(&ground, &["--mechanism=process/fifo"]).exits(0).stdout;
    let case = text.split("process/fifo in process · ping-pong").nth(1).unwrap_or_else(|| panic!("{text}"));
    let lines: Vec<&str> = case.lines().skip(1).take(5).collect();
    let expected = ["", "▲ slower: +30", "equal within 5 %", "▼ faster: -23", "equal within 5 %"];
    for (at, (line, words)) in lines.iter().zip(expected).enumerate() {
        assert!(line.contains(words), "run {}: {line}\n{text}", at + 1);
    }
    assert!(lines[0].contains("1  2026-01-01 10:00") && lines[4].contains("since run 1"), "{text}");
    assert!(text.contains("1, 0 of 1") && text.contains("0, 1 of 1"), "{text}");
    assert!(text.contains("Run 4 against run 1: of 1 shown cases, 0 are slower"), "{text}");
    assert!(!text.contains("process/pipe in"), "only what was named: {text}");
}

#[test]
fn without_a_name_the_first_of_each_table_of_the_newest_run_is_shown() {
    let ground = folder(&[1.0, 1.3]);
    let text = history(&ground, &[]).exits(0).stdout;
    assert!(text.contains("process/pipe in process") && !text.contains("process/fifo in"), "{text}");
    assert!(text.contains("1, 0 of 2"), "each run counts all its cases: {text}");
    let text = history(&ground, &["--mechanism=*"]).exits(0).stdout;
    assert!(text.contains("process/pipe in") && text.contains("process/fifo in"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_new_first_of_a_table_is_noted() {
    let text = history(&folder(&[0.5, 1.5]), &[]).exits(0).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("is process/pipe, before it was process/fifo."), "{text}");
}

#[test]
fn json_has_the_figures_and_the_verdicts() {
    let ground = folder(&[1.0, 1.3]);
    let json = history(&ground, &["--mechanism=process/*", "--json"]).exits(0).json();
    let [lineage] = &json["lineages"].as_array().unwrap()[..] else { panic!("one lineage: {json}") };
    assert_eq!((lineage["runs"].as_array().unwrap().len(), &lineage["differs"]), (2, &json!([])));
    assert_eq!(lineage["runs"][1]["changes"]["slower"], 1);
    let cases = lineage["cases"].as_array().unwrap();
    let fifo = cases.iter().find(|case| case["mechanism"] == "process/fifo").unwrap();
    assert_eq!(fifo["points"][1]["change"]["verdict"], "slower");
    let estimate = fifo["since_first"]["time"]["estimate"].as_f64().unwrap();
    assert!((estimate - 1.3_f64.ln()).abs() < 0.02, "{estimate}");
    let ring = cases.iter().find(|case| case["mechanism"] == "process/reference-ring").unwrap();
    assert!(ring["points"][1]["change"].is_null(), "its change is the machine's: {ring}");
}

#[test]
fn a_chart_has_a_line_for_each_case() {
    let ground = folder(&[1.0, 1.3, 1.3]);
    let done = history(&ground, &["--mechanism=process/fifo,process/pipe", "--svg=history.svg"]).exits(0);
    assert!(done.stderr.contains("chart: history.svg"), "{}", done.stderr);
    let svg = fs::read_to_string(ground.path("history.svg")).unwrap();
    let tree = Document::parse(&svg).unwrap();
    let lines =
        tree.descendants().filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("series")));
    assert_eq!(lines.count(), 2, "{svg}");
    assert!(svg.contains("01-03 10:00") && svg.contains("process/fifo · ping-pong"), "{svg}");
    let done = history(&ground, &["--svg=none/history.svg"]).exits(2);
    assert!(done.stderr.contains("choose a file in a folder that exists"), "{}", done.stderr);
}

#[test]
fn runs_of_another_machine_or_plan_are_listed_apart() {
    let ground = folder(&[1.0, 1.0]);
    let mut other = of_day(3, 9.0);
    other["fingerprint"]["cpu"] = json!("another processor");
    write(&ground, "other.json", &other.to_string());
    let mut longer = of_day(4, 1.0);
    longer["window"] = json!({ "time": { "warmup_ns": 1, "measure_ns": 77_000_000 } });
    write(&ground, "longer.json", &longer.to_string());
    let text = history(&ground, &["--mechanism=process/fifo"]).exits(0).stdout;
    // Where a line ends depends on the name of this machine's processor.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = text.split("Runs that cannot be compared with those above: ").collect();
    assert_eq!(parts.len(), 3, "{text}");
    assert!(parts[0].contains("2026-01-04") && !parts[0].contains("2026-01-03"), "the newest is first: {text}");
    assert!(parts[1].contains("another processor") && parts[1].contains("2026-01-03"), "{text}");
    assert!(parts[2].starts_with("windows differ") && parts[2].contains("Run 2 against run 1"), "{text}");
}

#[test]
fn files_that_are_no_records_are_named_and_left_out() {
    let ground = folder(&[1.0, 1.3]);
    let whole = of_day(3, 1.0).to_string();
    write(&ground, "cut.json", &whole[..whole.len() / 2]);
    write(&ground, "package.json", "{ \"name\": \"x\" }");
    write(&ground, "empty.json.gz", "");
    write(&ground, "notes.txt", "nothing");
    let mut many = of_day(3, 1.0);
    many["rounds_planned"] = json!(50_000);
    write(&ground, "many.json", &many.to_string());
    let done = history(&ground, &["--mechanism=process/fifo"]).exits(0);
    for (name, why) in [
        ("cut.json", "cut off"),
        ("package.json", "not a record"),
        ("empty.json.gz", "empty"),
        ("many.json", "more than 1000 rounds"),
    ] {
        let warning =
            done.stderr.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {}", done.stderr));
        assert!(warning.starts_with("warning: ") && warning.contains(why), "{warning}");
    }
    assert!(!done.stderr.contains("notes.txt"), "{}", done.stderr);
    assert!(done.stdout.contains("▲ slower"), "the others are shown: {}", done.stdout);
    let json = history(&ground, &["--json"]).exits(0).json();
    assert_eq!(json["skipped"].as_array().unwrap().len(), 4);
}

#[test]
fn what_cannot_be_shown_is_an_error_with_a_remedy() {
    let ground = folder(&[1.0]);
    fs::create_dir(ground.path("empty")).unwrap();
    for (arguments, words) in [
        (&["history", "none"][..], "cannot read the folder none: name the folder"),
        (&["history"], "cannot read the folder estafette-results"),
        (&["history", "empty"], "there is no record in empty: run `estafette bench --out empty` first"),
        (
            &["history", "runs", "--mechanism=process/none"],
            "no record has a mechanism `process/none`; they have process/fifo",
        ),
        (&["history", "runs", "--mechanism=["], "not a pattern of names"),
    ] {
        let done = ground.run(arguments).exits(2);
        assert!(done.stderr.contains(words) && done.stdout.is_empty(), "{arguments:?}: {}", done.stderr);
    }
    let text = history(&ground, &[]).exits(0).stdout;
    assert!(text.contains("One run: nothing to compare it with."), "{text}");
}

/// They are of several plans, and some of an older format.
#[test]
fn the_published_records_have_a_history() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let done = Ground::new().run(["history", &results.display().to_string(), "--json"]).exits(0);
    let json = done.json();
    let runs: usize =
        json["lineages"].as_array().unwrap().iter().map(|lineage| lineage["runs"].as_array().unwrap().len()).sum();
    let files = common::names(&results).iter().filter(|name| name.ends_with(".json.gz")).count();
    assert_eq!((runs, json["skipped"].as_array().unwrap().len()), (files, 0), "{}", done.stderr);
}
