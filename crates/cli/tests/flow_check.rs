//! `flow check` and `flow new`, as a user meets them.

mod common;

use std::fs;

use common::Ground;
use serde_json::Value;

const GOOD: &str = "\
functions:
  - name: greet
    module: { path: greet.wat }
    input: { topic: numbers }
    output: { topics: [greetings] }
sources:
  - { name: clock, timer: { every: 1s }, output: { topics: [numbers] } }
";

/// A function that takes messages and does nothing with them.
const MODULE: &str = r#"(module (memory (export "memory") 1)
    (func (export "estafette_buffer") (param i32) (result i32) i32.const 8)
    (func (export "estafette_batch") (param i32 i32 i32)))"#;

/// A ground with a pipeline, whose module is there.
fn ground(pipeline: &str) -> Ground {
    let ground = Ground::new();
    fs::write(ground.path("pipeline.yml"), pipeline).expect("it can be written");
    fs::write(ground.path("greet.wat"), MODULE).expect("it can be written");
    ground
}

#[test]
fn warnings_are_said_and_do_not_fail() {
    let ground = ground(GOOD);
    let done = ground.run(["flow", "check", "pipeline.yml"]).exits(0);
    assert_eq!(done.stdout, "pipeline.yml is good: 1 function, 1 source, 0 sinks, 2 topics\n");
    assert!(
        done.stderr.starts_with("pipeline.yml:5:24: warning: nobody reads the topic `greetings`"),
        "{}",
        done.stderr
    );
    ground.assert_clean();
}

#[test]
fn the_part_of_a_host_needs_no_files_of_others() {
    let ground = ground(
        "hosts: [near, far, third]
nats: { servers: ['nats://127.0.0.1:4222'], prefix: t }
functions:
  - { name: a, on: near, module: { path: greet.wat }, input: { topic: ticks } }
  - { name: b, on: far, module: { path: absent.wat }, input: { topic: ticks, queue: b } }
sources:
  - { name: in, on: near, timer: { every: 1s }, output: { topics: [ticks] } }
  - { name: elsewhere, on: far, timer: { every: 1s }, output: { topics: [others] } }
sinks:
  - { name: out, on: third, input: { topic: others }, file: { path: out.txt } }
topics:
  ticks: { transport: nats }
  others: { transport: nats }
",
    );
    let check = |arguments: &[&str]| ground.run([&["flow", "check", "pipeline.yml"], arguments].concat());
    let done = check(&["--host", "near"]).exits(0);
    assert!(done.stdout.contains("ticks: near -> ") && !done.stdout.contains("others:"), "{}", done.stdout);
    let done = check(&["--host", "third"]).exits(0);
    assert!(done.stdout.contains("others: far -> third") && !done.stdout.contains("ticks:"), "{}", done.stdout);
    for (arguments, message) in
        [(&[][..], "absent.wat"), (&["--host", "far"], "absent.wat"), (&["--host", "fra"], "far")]
    {
        let done = check(arguments).exits(2);
        assert!(done.stderr.contains(message), "{}", done.stderr);
    }
    ground.assert_clean();
}

#[test]
fn all_errors_are_said_at_once() {
    let ground = ground(&GOOD.replace("input:", "argz: []\n    input:").replace("[numbers]", "[number]"));
    let done = ground.run(["flow", "check", "pipeline.yml"]).exits(2);
    assert_eq!(done.stdout, "");
    let said = [
        "pipeline.yml:4:5: error: unknown key `argz` in a function; did you mean `args`?\n  help: the keys of",
        "pipeline.yml:5:21: error: nobody writes the topic `numbers`; did you mean `number`?\n  help: ",
        "estafette: 2 errors in pipeline.yml, and 2 warnings\n",
    ];
    for words in said {
        assert!(done.stderr.contains(words), "`{words}` is not in: {}", done.stderr);
    }
}

#[test]
fn a_file_cannot_steer_the_terminal() {
    let ground = ground("functions: []\n\"\\e[2Jkey\": 1\n");
    let done = ground.run(["flow", "check", "pipeline.yml"]).exits(2);
    assert!(!done.stderr.contains('\u{1b}') && done.stderr.contains("unknown key `\\u{1b}[2Jkey`"), "{}", done.stderr);
}

#[test]
fn findings_are_data_for_editors() {
    let ground = ground(GOOD);
    let json = |exit| -> Value {
        let done = ground.run(["flow", "check", "--json", "pipeline.yml"]).exits(exit);
        assert_eq!(done.stderr, "");
        serde_json::from_str(&done.stdout).expect("it is JSON")
    };
    let good = json(0);
    assert_eq!((&good["good"], &good["diagnostics"][0]["severity"]), (&Value::from(true), &Value::from("warning")));
    fs::remove_file(ground.path("greet.wat")).expect("it is there");
    let bad = json(2);
    assert_eq!(bad["good"], false);
    let error = &bad["diagnostics"][0];
    assert_eq!((&error["file"], &error["line"], &error["column"]), (&"pipeline.yml".into(), &3.into(), &21.into()));
    assert_eq!(error["message"], "there is no file at `greet.wat`");
}

#[test]
fn wrong_usage() {
    let ground = ground(GOOD);
    let refused = |arguments: &[&str], words: &[&str]| {
        let done = ground.run(arguments).exits(2);
        assert_eq!(done.stdout, "");
        for word in words {
            assert!(done.stderr.contains(word), "`{word}` is not in: {}", done.stderr);
        }
    };
    refused(&["flow"], &["Usage", "check", "new"]);
    refused(&["flow", "check"], &["PIPELINE.yml"]);
    refused(&["flow", "check", "no-such.yml"], &["no-such.yml: error: cannot read the file", "1 error in no-such.yml"]);
    refused(&["flow", "new", "a", "--language", "cobol"], &["`cobol` is not known", "wat, rust, go or c"]);
    refused(&["flow", "new", "."], &["estafette: . is not empty; name an empty folder or a new one"]);
    ground.assert_clean();
}

#[test]
fn a_new_example_is_good() {
    let ground = Ground::new();
    let done = ground.run(["flow", "new", "example"]).exits(0);
    assert!(done.stdout.contains("wrote example/pipeline.yml\n"), "{}", done.stdout);
    assert!(done.stdout.ends_with("Run it:\n    estafette flow run example/pipeline.yml\n"), "{}", done.stdout);
    let done = ground.run(["flow", "check", "example/pipeline.yml"]).exits(0);
    assert_eq!(done.stderr, "", "not even a warning");
    let done = ground.run(["flow", "new", "--language", "rust", "in-rust"]).exits(0);
    assert!(done.stdout.contains("    rustc "), "{}", done.stdout);
}
