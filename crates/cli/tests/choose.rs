//! The command `choose` on a published record.

mod common;

use std::path::PathBuf;

use common::Ground;

fn record() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/overview-quick.json.gz");
    path.canonicalize().expect("the record").display().to_string()
}

/// Runs `choose`, and returns its output and whether it decided.
fn choose(arguments: &[&str]) -> (String, bool) {
    let done = Ground::new().run([&["choose", "--record", &record()], arguments].concat());
    let status = done.status.code();
    assert!(matches!(status, Some(0 | 3)), "{status:?}: {}", done.stderr);
    (done.stdout, status == Some(0))
}

#[test]
fn a_question_gets_the_cells_that_answer_it() {
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--size=4KiB"]);
    assert!(text.starts_with("process · stream · 4KiB") && text.matches(" · ").count() >= 3, "{text}");
    assert!(text.contains("what it is") && text.contains("process/pipe"), "{text}");
    let (json, decided) = choose(&["--scope=process", "--pattern=stream", "--size=4KiB", "--json"]);
    let answers: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 1);
    let is_decided = matches!(answers[0]["certainty"].as_str(), Some("decided" | "equivalent" | "only-one"));
    assert_eq!(is_decided, decided, "{json}");
}

#[test]
fn a_size_that_the_record_lacks_is_answered_by_the_nearest() {
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--size=5KiB"]);
    assert!(text.starts_with("The record has no size of 5KiB. The nearest is 4KiB."), "{text}");
}

#[test]
fn a_need_excludes_what_does_not_meet_it() {
    let (text, _) = choose(&["--scope=network", "--pattern=stream", "--need=no-loss,order"]);
    assert!(text.contains("excluded by a need that they do not meet: network/udp (no-loss)"), "{text}");
    let (text, decided) = choose(&["--scope=network", "--pattern=stream", "--need=in-place"]);
    assert!(text.contains("No mechanism meets the needs.") && !decided, "{text}");
}

#[test]
fn what_the_record_cannot_answer_is_an_error() {
    let ground = Ground::new();
    for (arguments, words) in [
        (
            &["choose", "--record", &record(), "--scope=process", "--pattern=pub-sub"][..],
            "no case has --pattern pub-sub, only",
        ),
        (&["choose"], "cannot read the folder estafette-results; run `estafette bench` first"),
        (&["choose", "--record", "none.json"], "cannot use none.json"),
        (&["choose", "--need=speed"], "speed"),
    ] {
        let done = ground.run(arguments).exits(2);
        assert!(done.stderr.contains(words) && done.stdout.is_empty(), "{arguments:?}: {}", done.stderr);
    }
}
