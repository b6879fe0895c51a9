//! The command `choose`, on published records and by short runs.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Done, Ground, PROGRAM, is_disturbed, undisturbed};
use serde_json::Value;

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").canonicalize().expect("the records")
}

fn record() -> String {
    results().join("overview-quick.json.gz").display().to_string()
}

/// Runs `choose`, and returns its output and whether it decided.
fn choose(arguments: &[&str]) -> (String, bool) {
    let done = Ground::new().run([&["choose", "--record", &record()], arguments].concat());
    let status = done.status.code();
    assert!(matches!(status, Some(0 | 3)), "{status:?}: {}", done.stderr);
    (done.stdout, status == Some(0))
}

/// The words of a text, with one space between.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_question_gets_the_cells_that_answer_it() {
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--size=4KiB"]);
    assert!(text.starts_with("process · stream · 4KiB") && text.matches(" · ").count() >= 3, "{text}");
    assert!(text.contains("CPU/msg") && text.contains("process/pipe"), "{text}");
    let (json, decided) = choose(&["--scope=process", "--pattern=stream", "--size=4KiB", "--json"]);
    let reply: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(reply["answers"].as_array().unwrap().len(), 1);
    let is_decided = matches!(reply["answers"][0]["certainty"].as_str(), Some("decided" | "equivalent" | "only-one"));
    assert_eq!(is_decided, decided, "{json}");
}

/// Each table of the published overview answers the question for its cell by the same sentence.
#[test]
fn answers_are_those_of_the_published_tables() {
    let tables = fs::read_to_string(results().join("overview-quick.txt")).expect("the tables");
    let mut asked = 0;
    for (heading, rest) in tables.lines().zip(tables.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some(*end)
    })) {
        let parts: Vec<&str> = heading.split(" · ").collect();
        let [scope, pattern, payload, wait, place] = parts[..] else { continue };
        if !["task", "thread", "process", "network", "sandbox"].contains(&scope) {
            continue;
        }
        let pattern = pattern.split(' ').next().unwrap();
        let mut arguments = vec![format!("--scope={scope}"), format!("--pattern={pattern}"), format!("--wait={wait}")];
        arguments.push(if payload == "u64" { String::from("--payload=u64") } else { format!("--size={payload}") });
        arguments.push(if scope == "task" { format!("--runtime={place}") } else { format!("--place={place}") });
        let (text, _) = choose(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let sentence = words(&tables[rest..]);
        let sentence = sentence.split(['.', ';']).next().unwrap();
        assert!(words(&text).contains(sentence), "{heading}: {sentence}\n{text}");
        asked += 1;
    }
    assert!(asked >= 8, "{asked} tables");
}

#[test]
fn a_value_that_the_record_lacks_is_answered_by_the_nearest() {
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--size=5KiB"]);
    assert!(text.starts_with("The record has no size of 5KiB. The nearest is 4KiB."), "{text}");
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--capacity=500"]);
    assert!(text.starts_with("The record has no capacity of 500. The nearest is 1024."), "{text}");
}

#[test]
fn a_need_excludes_what_does_not_meet_it() {
    let (text, _) = choose(&["--scope=network", "--pattern=stream", "--need=no-loss,order"]);
    assert!(words(&text).contains("excluded: network/udp: does not meet --need no-loss"), "{text}");
    let (text, decided) = choose(&["--scope=network", "--pattern=stream", "--need=in-place"]);
    assert!(text.contains("No mechanism meets the needs.") && !decided, "{text}");
    assert!(words(&text).contains("network/udp network/tcp: does not meet --need in-place"), "{text}");
    let (text, _) = choose(&["--scope=process", "--pattern=stream", "--size=4KiB", "--need=no-dependencies"]);
    assert!(words(&text).contains("to start with pipe: no library: pipe(2)"), "{text}");
}

#[test]
fn names_restrict_the_answer() {
    let question = ["process/pipe", "process/unix-*", "--pattern=ping-pong", "--wait=block", "--json"];
    let reply: Value = serde_json::from_str(&choose(&question).0).unwrap();
    let [answer] = &reply["answers"].as_array().unwrap()[..] else { panic!("one table: {reply}") };
    let names: Vec<&str> =
        answer["mechanisms"].as_array().unwrap().iter().filter_map(|one| one["mechanism"].as_str()).collect();
    assert!(names.len() == 2 && names.contains(&"process/pipe") && names.contains(&"process/unix-stream"), "{names:?}");
}

#[test]
fn tables_of_several_scopes_are_compared() {
    let question = ["--scope=same-host", "--pattern=ping-pong", "--wait=block", "--size=64"];
    let (text, decided) = choose(&question);
    assert!(text.starts_with("Of all these tables of ping-pong, 64B: "), "{text}");
    assert!(text.contains("\nprocess · ping-pong") && text.contains("\nnetwork · ping-pong"), "{text}");
    let (json, _) = choose(&[&question[..], &["--json"]].concat());
    let reply: Value = serde_json::from_str(&json).unwrap();
    let together = &reply["together"][0];
    let first = together["best"][0]["mechanism"].as_str().unwrap();
    let of_table = reply["answers"].as_array().unwrap().iter().flat_map(|answer| answer["best"].as_array().unwrap());
    assert!(of_table.into_iter().any(|name| name == first), "{json}");
    assert_eq!(matches!(together["certainty"].as_str(), Some("decided" | "equivalent")), decided, "{json}");
}

#[test]
fn what_cannot_be_answered_is_an_error() {
    let ground = Ground::new();
    for (arguments, words) in [
        (
            &["choose", "--record", &record(), "--scope=process", "--pattern=pub-sub"][..],
            "no case has --pattern pub-sub, only",
        ),
        (&["choose", "--record", &record(), "process/none"], "it has no `process/none`"),
        (&["choose"], "no question is given, and the dialogue needs a terminal"),
        (&["choose", "--dir=none"], "cannot read the folder none; run `estafette bench` first"),
        (&["choose", "--dir=tmp"], "there is no record in tmp"),
        (&["choose", "--record", "none.json"], "cannot use none.json"),
        (&["choose", "--record", "a.json", "--dir=b"], "cannot be used with"),
        (&["choose", "--record", "a.json", "--budget=5s"], "cannot be used with"),
        (&["choose", "--need=speed"], "speed"),
        (&["choose", "--scope=near"], "same-host"),
        (&["choose", "--size=64"], "say how far messages travel: --scope"),
        (&["choose", "process/none"], "process/none"),
        (&["choose", "process/reference-ring"], "nothing that a program can choose"),
        (&["choose", "process/pipe", "--pattern=send-receive"], "no suite has a case for this"),
        (&["choose", "--scope=process", "--budget=1ms"], "at least 1s"),
    ] {
        let done = ground.run(arguments).exits(2);
        assert!(done.stderr.contains(words) && done.stdout.is_empty(), "{arguments:?}: {}", done.stderr);
    }
}

/// A short run of a few mechanisms. Whether it decides depends on the machine, so both are fine.
fn short_run(ground: &Ground, arguments: &[&str]) -> Done {
    let done = ground.run([&["choose", "--budget=1s", "--seed=1", "--out=out"], arguments].concat());
    assert!(matches!(done.status.code(), Some(0 | 3)), "{}: {}{}", done.status, done.stdout, done.stderr);
    done
}

#[test]
fn without_a_record_a_short_run_answers_and_its_record_answers_the_same() {
    let ground = Ground::new();
    let question = ["process/pipe", "process/unix-stream", "--pattern=ping-pong", "--size=100"];
    let done = short_run(&ground, &question);
    assert!(done.stdout.starts_with("process · ping-pong · 100B · block"), "{}", done.stdout);
    assert!(done.stderr.contains("record: out/"), "{}", done.stderr);
    let record = ground.record();
    let from_record = ground.run([&["choose", "--record", &record.display().to_string()], &question[..]].concat());
    let body = |text: &str| text.lines().filter(|line| !line.starts_with("From ")).collect::<Vec<_>>().join("\n");
    assert_eq!(body(&from_record.stdout), body(&done.stdout));
    assert_eq!(from_record.status.code(), done.status.code());
    let content: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    let measured: Vec<&str> =
        content["mechanisms"].as_array().unwrap().iter().filter_map(|spec| spec["name"].as_str()).collect();
    assert_eq!(measured, ["process/pipe", "process/unix-stream"], "nothing else is measured");
    ground.assert_clean();
}

#[test]
fn an_answer_has_the_memory_that_a_mechanism_takes() {
    const MIB: f64 = 1_048_576.0;
    let ground = Ground::new();
    let question =
        ["process/shm-memfd", "process/pipe", "--pattern=stream", "--size=64KiB", "--capacity=256", "--wait=block"];
    // The ring has 256 slots of 64 KiB. It is mapped in both processes and counts once.
    let is_ring = |bytes: f64| (16.0 * MIB..31.0 * MIB).contains(&bytes);
    let memory = |name: &str| {
        let from_record = ["choose", "--record", &ground.record().display().to_string(), "--json"].map(String::from);
        let reply: Value = serde_json::from_str(&ground.run(&from_record).stdout).unwrap();
        let all = reply["answers"][0]["mechanisms"].as_array().unwrap();
        let one = all.iter().find(|one| one["mechanism"] == name);
        one.and_then(|one| one["memory"].as_f64()).unwrap_or_else(|| panic!("{name}: {reply}"))
    };
    let done = undisturbed(
        || {
            ground.remove_records();
            short_run(&ground, &question)
        },
        // On a busy machine fewer than 256 messages may have been sent, and not all slots were written.
        |done| !is_disturbed(&done.stderr) && is_ring(memory("process/shm-memfd")),
    );
    assert!(done.stdout.contains("  memory  ") && done.stdout.contains("\n  memory: "), "{}", done.stdout);
    let [ring, pipe] = ["process/shm-memfd", "process/pipe"].map(memory);
    assert!(is_ring(ring) && pipe < 8.0 * MIB, "{ring} and {pipe} bytes");
}

#[test]
fn a_short_run_compares_scopes_and_excludes_by_needs_before_it_measures() {
    let ground = Ground::new();
    let what = ["process/unix-dgram", "process/pipe", "network/tcp", "network/udp"];
    let options = ["--pattern=ping-pong", "--size=64", "--need=no-loss", "--json"];
    let reply = short_run(&ground, &[&what[..], &options].concat()).json();
    let answers = reply["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 2, "{reply}");
    // Scopes without a valid result, as on a disturbed machine, are not compared.
    let have_results = answers.iter().all(|answer| answer["certainty"] != "no-result");
    assert_eq!(reply["together"].as_array().unwrap().len(), usize::from(have_results), "{reply}");
    assert_eq!(reply["excluded"][0]["mechanism"], "network/udp", "{reply}");
    assert_eq!((&reply["excluded"][0]["kind"], &reply["excluded"][0]["why"]), (&"need".into(), &"no-loss".into()));
}

#[test]
fn needs_that_nothing_meets_are_named_without_a_run() {
    let ground = Ground::new();
    let done = ground.run(["choose", "--scope=thread", "--need=async", "--pattern=stream", "--out=out"]).exits(3);
    assert!(done.stdout.starts_with("No mechanism can be the answer, so nothing was measured."), "{}", done.stdout);
    let text = words(&done.stdout);
    assert!(text.contains("thread/crossbeam") && text.contains("does not meet --need async"), "{text}");
    assert!(!ground.path("out").exists());
    let done = ground.run(["choose", "process/posix-mq", "--pattern=stream", "--size=1GiB", "--out=out"]).exits(3);
    assert!(
        words(&done.stdout).contains("process/posix-mq: cannot run: a message of 1073741824 bytes"),
        "{}",
        done.stdout
    );
}

/// Answers questions in a terminal. `script` closes the terminal's input at the end of `input`.
fn in_terminal(ground: &Ground, arguments: &str, input: &str) -> (Option<i32>, String) {
    let line = format!("exec '{PROGRAM}' choose {arguments}");
    let mut script = ground.program("script", ["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut script = script.stdin(Stdio::piped()).spawn().expect("`script` of util-linux starts");
    script.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = script.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n"))
}

#[test]
fn in_a_terminal_it_asks_and_then_answers() {
    let ground = Ground::new();
    // The number of the scope, a wrong one for the pattern, then the rest.
    let input = "6\n99\n1\n64B\n\n1\n";
    let (code, text) = in_terminal(&ground, "--budget=1s --out=out", input);
    assert!(text.contains("How far do messages travel?") && text.contains("`99` is not one of the choices."), "{text}");
    assert!(text.contains("estafette choose --scope sandbox --pattern ping-pong --size 64B\n"), "{text}");
    assert!(text.contains("sandbox · ping-pong · 64B · block"), "{text}");
    assert!(matches!(code, Some(0 | 3)), "{code:?}: {text}");
    ground.record();
    ground.assert_clean();
}

#[test]
fn the_end_of_the_input_ends_the_questions() {
    let ground = Ground::new();
    let (code, text) = in_terminal(&ground, "--out=out", "2\n");
    assert!(text.contains("the input ended before the last answer"), "{text}");
    assert_eq!(code, Some(2), "{text}");
    assert!(!ground.path("out").exists());
}
