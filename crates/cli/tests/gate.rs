//! The command `gate` as a system for continuous integration calls it. The records are made of one
//! real round, repeated with known differences, so no outcome depends on the machine.

mod common;

use std::fs;
use std::sync::OnceLock;

use common::{Done, Ground, is_disturbed, undisturbed};
use serde_json::{Value, json};

/// One round of two mechanisms.
fn round() -> &'static Value {
    static RECORD: OnceLock<Value> = OnceLock::new();
    RECORD.get_or_init(|| {
        let mechanisms = ["process/pipe", "process/fifo", "process/reference-ring"];
        Ground::new().one_round(20, &[&mechanisms[..], &["--pattern=ping-pong", "--wait=block", "--size=64"]].concat())
    })
}

/// A record of 9 rounds. A message takes 100 us, and `factor` times as long through `slower`.
fn record(slower: &str, factor: f64) -> Value {
    common::repeated(round(), slower, factor)
}

fn gate(new: &Value, options: &[&str]) -> Done {
    let ground = Ground::new();
    fs::write(ground.path("base.json"), record("", 1.0).to_string()).unwrap();
    fs::write(ground.path("new.json"), new.to_string()).unwrap();
    ground.run([&["gate", "base.json", "new.json"], options].concat())
}

#[test]
fn what_did_not_change_passes() {
    let done = gate(&record("", 1.0), &[]).exits(0);
    assert!(done.stdout.contains("Passed. Of 2 cases, 0 are slower by more than 5.00 %"), "{}", done.stdout);
}

#[test]
fn a_slower_case_fails_unless_it_is_allowed() {
    let slower = record("process/fifo", 1.3);
    let done = gate(&slower, &["--allow", "5%"]).exits(1);
    assert!(done.stdout.contains("process/fifo") && done.stdout.contains("Failed."), "{}", done.stdout);
    gate(&slower, &["--allow", "40%"]).exits(0);
    gate(&record("process/fifo", 0.7), &[]).exits(0);
}

#[test]
fn each_form_of_output_names_the_slower_case() {
    let slower = record("process/fifo", 1.3);
    let json = gate(&slower, &["--json"]).exits(1).json();
    assert_eq!((&json["outcome"], &json["cases"][0]["mechanism"]), (&json!("slower"), &json!("process/fifo")));
    assert_eq!(json, gate(&slower, &["--format", "json"]).exits(1).json());
    let markdown = gate(&slower, &["--format=markdown"]).exits(1).stdout;
    assert!(markdown.starts_with("**Failed.") && markdown.contains("| process/fifo | process ·"), "{markdown}");
    let junit = gate(&slower, &["--format=junit"]).exits(1).stdout;
    assert!(junit.contains(r#"<testcase classname="process/fifo""#) && junit.contains("<failure "), "{junit}");
}

#[test]
fn a_missing_case_cannot_be_decided() {
    let mut new = record("", 1.0);
    let gone =
        new["entrants"].as_array().unwrap().iter().position(|entrant| entrant["case"]["mechanism"] == "process/fifo");
    new["instances"].as_array_mut().unwrap().retain(|instance| instance["entrant"] != json!(gone.unwrap()));
    let done = gate(&new, &[]).exits(3);
    assert!(done.stdout.contains("Cannot tell"), "{}", done.stdout);
}

#[test]
fn a_broken_promise_is_the_gravest() {
    let mut new = record("process/fifo", 1.3);
    new["instances"][0]["outcome"]["measured"]["breach"] = json!("lost 3 messages");
    let done = gate(&new, &[]).exits(4);
    assert!(done.stdout.contains("broken promise: lost 3"), "{}", done.stdout);
}

#[test]
fn bad_input_is_an_error_with_a_remedy() {
    for (options, words) in [
        (&["--allow", "5"][..], "write a percentage, such as 5%"),
        (&["--allow", "-1%"], "choose 0% to 1000%"),
        (&["--allow", "nan%"], "choose 0% to 1000%"),
        (&["--json", "--format=text"], "cannot be used with"),
    ] {
        let done = gate(&record("", 1.0), options).exits(2);
        assert!(done.stderr.contains(words) && done.stdout.is_empty(), "{options:?}: {}", done.stderr);
    }
    let ground = Ground::new();
    let done = ground.run(["gate", "none.json", "none.json"]).exits(2);
    assert!(done.stderr.contains("cannot use none.json"), "{}", done.stderr);
    let mut other = record("", 1.0);
    other["fingerprint"]["cpu"] = json!("another processor");
    let done = gate(&other, &[]).exits(2);
    assert!(done.stderr.contains("different machines"), "{}", done.stderr);
}

/// `gate --rerun` with the command itself as the other build.
fn rerun(options: &[&str]) -> Done {
    let program = env!("CARGO_BIN_EXE_estafette");
    Ground::new().run([&["gate", "--rerun", program], options].concat())
}

#[test]
fn another_build_is_measured_in_turn() {
    // Any case may be ten times as slow: a busy machine does not decide this.
    let rounds =
        ["--", "--pattern=ping-pong", "--size=64", "--wait=block", "--rounds=6", "--window=60ms", "--timeout=60s"];
    let ground = Ground::new();
    let program = env!("CARGO_BIN_EXE_estafette");
    let what = ["gate", "--rerun", program, "process/pipe", "--allow=1000%", "--json"];
    let run = || {
        ground.remove_records();
        ground.run([&what[..], &rounds, &["--out=out"]].concat())
    };
    let has_verdict = |done: &Done| [Some(0), Some(3)].contains(&done.status.code());
    let done = undisturbed(run, |done| has_verdict(done) || !is_disturbed(&done.stderr));
    assert!(has_verdict(&done), "{}{}", done.stdout, done.stderr);
    let json = done.json();
    let cases = json["cases"].as_array().unwrap();
    assert!(cases.iter().all(|case| case["mechanism"] == "process/pipe") && !cases.is_empty(), "{json}");
    assert_eq!((&json["is_paired"], &json["base_file"]), (&json!(true), &json!(program)));
    let record: Value = serde_json::from_str(&fs::read_to_string(ground.record()).unwrap()).unwrap();
    let names: Vec<&Value> =
        record["entrants"].as_array().unwrap().iter().map(|entrant| &entrant["case"]["mechanism"]).collect();
    assert!(names.contains(&&json!("process/pipe@base")), "{names:?}");
    ground.assert_clean();
}

#[test]
fn what_is_no_other_build_is_refused() {
    let done = Ground::new().run(["gate", "--rerun", "missing", "process/pipe"]).exits(2);
    assert!(done.stderr.contains("cannot use missing as the other build"), "{}", done.stderr);
    assert!(rerun(&[]).exits(2).stderr.contains("name mechanisms"));
    assert!(rerun(&["process/pipe-c"]).exits(2).stderr.contains("do not depend on the build"));
    assert!(rerun(&["process/pipe", "--", "--colour"]).exits(2).stderr.contains("options of `bench`"));
    assert!(Ground::new().run(["gate", "one.json"]).exits(2).stderr.contains("1 records are given: name two"));
    // A program that is no build of it ends at once.
    let options = ["--", "--pattern=ping-pong", "--size=64", "--wait=block", "--rounds=6", "--window=5ms"];
    let done = Ground::new().run([&["gate", "--rerun", "/bin/true", "process/pipe"][..], &options].concat()).exits(2);
    assert!(done.stderr.contains("the other build, /bin/true, failed in every case"), "{}", done.stderr);
}
