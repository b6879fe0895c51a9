//! Whatever a user gets wrong is an error that says what is wrong, where, and what to do: exit code
//! 2, nothing on stdout, and never a panic.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use common::{Done, Ground, PROGRAM};
use serde_json::{Value, json};

/// Checks that the command refuses these arguments, and says all of these words.
#[track_caller]
fn refused(ground: &Ground, arguments: &[&str], words: &[&str]) {
    said(ground.run(arguments), words);
    ground.assert_clean();
}

#[track_caller]
fn said(done: Done, words: &[&str]) {
    let done = done.exits(2);
    assert_eq!(done.stdout, "", "an error belongs on stderr");
    for word in words {
        assert!(done.stderr.contains(word), "`{word}` is not in: {}", done.stderr);
    }
}

#[test]
fn unknown_names() {
    let ground = Ground::new();
    refused(&ground, &["bench", "everything"], &["unknown suite `everything`", "overview", "`estafette list`"]);
    refused(&ground, &["bench", "process/*x*y"], &["no mechanism matches `process/*x*y`", "`estafette list`"]);
    refused(&ground, &["bench", "process/["], &["`process/[`"]);
    refused(&ground, &["ping", "process/pigeon"], &["no mechanism matches `process/pigeon`", "`estafette list`"]);
    refused(&ground, &["ping", "pipe"], &["`pipe`", "did you mean", "process/pipe"]);
    refused(&ground, &["ping", "process/*"], &["`process/*` is a pattern", "one mechanism"]);
    refused(&ground, &["list", "nothing/*"], &["no mechanism matches `nothing/*`", "`estafette list`"]);
    refused(&ground, &["gallop"], &["gallop", "Usage"]);
    refused(&ground, &["bench", "--pattern", "knot"], &["knot", "--pattern", "ping-pong, stream, fan-in"]);
    refused(&ground, &["bench", "--wait", "long"], &["long", "--wait", "spin, adaptive, block"]);
    refused(&ground, &["bench", "--place", "here"], &["here", "--place", "other-core, same-core, free"]);
    refused(&ground, &["bench", "--runtime", "java"], &["java", "--runtime", "thread, tokio-multi, tokio-current"]);
    refused(&ground, &["bench", "--payload", "u32"], &["u32", "--payload", "u64, bytes"]);
    refused(&ground, &["bench", "--profile", "slow"], &["slow", "--profile", "quick, standard, full"]);
}

/// Where they run out, before the first instance or within one, depends on how many the command was
/// started with: it says the same wherever it is, and what could not be measured is a row that
/// failed.
#[test]
fn too_few_descriptors() {
    let ground = Ground::new();
    for limit in [8, 10, 12] {
        let few = format!("ulimit -n {limit}; exec {PROGRAM} bench process/pipe --rounds 1 --window 20ms --out out");
        let done = Done::from(ground.program("sh", ["-c", &few]).output().unwrap()).exits(2);
        for word in ["open files", "`ulimit -n 1024`"] {
            assert!(done.stderr.contains(word), "`{word}` is not in: {}", done.stderr);
        }
        ground.assert_clean();
    }
}

#[test]
fn sweeps_that_are_none() {
    let ground = Ground::new();
    let file = ground.path("sweep.toml");
    let sweep = |text: &str, words: &[&str]| {
        fs::write(&file, text).unwrap();
        let words = [&["sweep.toml"], words].concat();
        said(ground.run(["bench", "--config", file.to_str().unwrap()]), &words);
    };
    sweep("sizes = [64]", &["unknown key `sizes`", "known:", "size"]);
    sweep("size = [\"4Kib\"]", &["4Kib", "--size", "one of B, kB"]);
    sweep("size = {}", &["`size`", "table is no text"]);
    sweep("what = ", &["is not TOML"]);
    refused(&ground, &["bench", "--config", "no-such.toml"], &["cannot read no-such.toml"]);
    refused(&ground, &["bench", "--config", "/dev/null"], &["/dev/null is not a regular file", "save the sweep"]);
}

#[test]
fn impossible_sizes() {
    let ground = Ground::new();
    let sizes = [
        ("0", "at least 1 byte"),
        ("-1", "write a number and a unit"),
        ("4kib", "KiB"),
        ("99999999999GiB", "too large"),
        ("2GiB", "1 GiB"),
        ("", "write a number"),
        ("1.5KiB", "write a whole number"),
    ];
    for (size, remedy) in sizes {
        refused(&ground, &["bench", "--size", size], &[&format!("'{size}'"), "--size", remedy]);
        refused(&ground, &["ping", "process/pipe", "--size", size], &[&format!("'{size}'"), "--size", remedy]);
    }
    refused(&ground, &["bench", "--size", "u64"], &["--payload u64"]);
}

#[test]
fn impossible_numbers() {
    let ground = Ground::new();
    let numbers = [
        ("--rounds", &["0", "-1", "1000000000", "many"][..], "1 to 1000"),
        ("--producers", &["0", "-1", "2049", "x"], "1 to 2048"),
        ("--capacity", &["-1", "x", "99999999999999999999"], "0 to 16777216"),
        ("--seed", &["9007199254740992", "-1", "x"], "0 to 9007199254740991"),
        ("--window", &["0ms", "61s", "3600s"], "1ms to 60s"),
        ("--window", &["1h", "100", "-1ms", "ms"], "write a"),
        ("--timeout", &["99ms", "11min", "0s"], "100ms to 10min"),
        ("--timeout", &["1h", "5", "-1s"], "write a"),
    ];
    for (option, values, remedy) in numbers {
        for value in values {
            refused(&ground, &["bench", option, value], &[&format!("'{value}'"), option, remedy]);
        }
    }
    for value in ["0", "-1", "1000000001", "x"] {
        refused(&ground, &["ping", "process/pipe", "--count", value], &["--count", "1 to 1000000000"]);
    }
    refused(&ground, &["ping", "process/pipe", "--timeout", "1ms"], &["--timeout", "100ms to 1440min"]);
}

#[test]
fn what_no_mechanism_can_do() {
    let ground = Ground::new();
    refused(&ground, &["bench", "network/udp", "--size", "4"], &["under 8 bytes", "loses none"]);
    refused(&ground, &["ping", "task/flume", "--place", "same-core"], &["not pinned", "--place free"]);
    let bench = |arguments: &[&str], words: &[&str]| {
        refused(&ground, &[&["bench"], arguments].concat(), &[&["nothing to measure"], words].concat());
    };
    bench(&["network/udp", "--size", "64KiB"], &["network/udp", "longest message is 65507 bytes", "65536"]);
    refused(&ground, &["ping", "network/udp", "--size", "64KiB"], &["network/udp", "65507"]);
    let spins = ["process/reference-ring", "spinning on one core", "--wait block", "--place other-core"];
    bench(&["process/reference-ring", "--wait", "spin", "--place", "same-core"], &spins);
    refused(&ground, &["ping", "process/reference-ring", "--wait", "spin", "--place", "same-core"], &spins);
    bench(
        &["network/udp", "--pattern", "fan-in", "--producers", "2", "--size", "1"],
        &["network/udp", "under 8 bytes", "one producer"],
    );
    bench(&["process/pipe", "--wait", "adaptive"], &["process/pipe", "no wait mode adaptive"]);
    bench(&["task/tokio-mpsc", "--capacity", "0"], &["task/tokio-mpsc", "cannot have a capacity of 0", "at least 1"]);
    bench(&["thread/rtrb", "--pattern", "fan-in"], &["thread/rtrb", "no fan-in"]);
    let idle = |arguments: &[&str], words: &[&str]| refused(&ground, &[&["bench"], arguments].concat(), words);
    idle(&["process/pipe", "--payload", "u64", "--size", "64"], &["--size is not for --payload u64"]);
    idle(&["thread/rtrb", "--pattern", "stream", "--producers", "3"], &["--producers", "--pattern fan-in"]);
    idle(&["task/flume", "--pattern", "ping-pong", "--load", "100k/s"], &["--load", "--pattern stream"]);
    idle(&["task/flume", "--pattern", "stream", "--arrivals", "poisson"], &["--arrivals", "--load 10k/s"]);
    idle(&["pipe"], &["unknown suite `pipe`", "did you mean process/pipe or "]);
    refused(
        &ground,
        &["bench", "--size", "1,2,3,4,5,6,7,8,9,10"],
        &["cases are too many", "quick", "80", "fewer values", "--profile"],
    );
}

#[test]
fn spinning_where_there_is_one_core() {
    // Whatever core this runs on is one that may be used.
    let core = rustix::thread::sched_getcpu().to_string();
    let ground = Ground::new();
    if Command::new("taskset").arg("--version").output().is_err() {
        eprintln!("skipped: there is no `taskset` here; it is in util-linux");
        return;
    }
    let on_one_core = |arguments: &[&str]| {
        let all = [&["-c", &core, PROGRAM], arguments].concat();
        Done::from(ground.program("taskset", all).output().expect("taskset starts"))
    };
    let spins = ["process/reference-ring", "spinning on one core", "--wait block", "two cores"];
    said(on_one_core(&["bench", "process/reference-ring", "--wait", "spin"]), &spins);
    said(on_one_core(&["ping", "process/reference-ring", "--wait", "spin"]), &spins);
    on_one_core(&["ping", "process/pipe", "-c", "100"]).exits(0);
    ground.assert_clean();
}

#[test]
fn folders_that_cannot_be_used() {
    let ground = Ground::new();
    fs::write(ground.path("file"), "").expect("a file");
    let remedy = ["cannot write to the folder", "choose another with --out"];
    for out in ["file", "file/below", "/proc/none"] {
        refused(&ground, &["bench", "process/pipe", "--out", out], &[&[out][..], &remedy].concat());
    }
    let deep = "d".repeat(100);
    fs::create_dir(ground.path(&deep)).expect("a folder");
    let temporary = [
        (String::from("/nowhere/at/all"), "set TMPDIR to one that can be written"),
        (ground.path("file").display().to_string(), "set TMPDIR to one that can be written"),
        (ground.path(&deep).display().to_string(), "set TMPDIR to a shorter one"),
    ];
    for (folder, remedy) in temporary {
        for arguments in [&["ping", "process/pipe"][..], &["bench", "process/pipe"]] {
            let output = ground.command(arguments).env("TMPDIR", &folder).output().expect("the command starts");
            said(Done::from(output), &["temporary directory", &folder, remedy]);
        }
    }
    assert!(!ground.path("estafette-results").exists(), "a run that cannot begin leaves no folder");
    assert_eq!(common::names(ground.path(&deep)).len(), 0);
}

/// A record of a tiny run.
fn record() -> &'static Value {
    static RECORD: OnceLock<Value> = OnceLock::new();
    RECORD.get_or_init(|| {
        let what = ["process/pipe", "network/udp", "--size=64", "--pattern=ping-pong,stream"];
        Ground::new().bench(60, &[&what[..], &["--rounds=1", "--json"]].concat()).json()
    })
}

/// Compares a good record with a file of this text, or the file with the record.
fn compare(ground: &Ground, text: &str, file_first: bool) -> Done {
    fs::write(ground.path("good.json"), record().to_string()).expect("a file");
    fs::write(ground.path("bad.json"), text).expect("a file");
    ground.run(if file_first { ["compare", "bad.json", "good.json"] } else { ["compare", "good.json", "bad.json"] })
}

#[track_caller]
fn refuses(text: &str, words: &[&str]) {
    let ground = Ground::new();
    for file_first in [true, false] {
        said(compare(&ground, text, file_first), &[&["bad.json"], words].concat());
    }
}

fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut copy = record().clone();
    change(&mut copy);
    copy.to_string()
}

#[test]
fn a_good_record_is_like_itself() {
    compare(&Ground::new(), &record().to_string(), true).exits(0);
}

#[test]
fn files_that_are_no_records() {
    let ground = Ground::new();
    refused(&ground, &["compare", "none.json", "none.json"], &["cannot use none.json", "No such file"]);
    refused(&ground, &["compare", "/", "/"], &["cannot use /", "directory"]);
    let whole = record().to_string();
    let no_record = "it is not a record of `estafette bench`";
    refuses("", &["it is empty"]);
    // Not within a number, which may be cut off behind its point.
    let half = whole[..whole.len() / 2].rfind(',').unwrap();
    refuses(&whole[..half], &["cut off at line 1, column", "run `estafette bench` again"]);
    refuses(&whole[..whole.len() - 1], &["cut off"]);
    refuses("not JSON", &[no_record]);
    refuses("{}", &[no_record, "format"]);
    refuses("[1, 2]", &[no_record]);
    refuses("null", &[no_record]);
    refuses(&"[".repeat(1_000_000), &[no_record]);
    refuses(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)), &[no_record]);
    refuses(&changed(|record| record["format"] = json!("a shopping list")), &[no_record, "a shopping list"]);
    refuses(
        &changed(|record| record["version"] = json!(5)),
        &["written by a newer Estafette", "format 5", "reads up to 4", "update this one"],
    );
    // What a newer version adds elsewhere must not hide that it is one.
    refuses(r#"{"format": "estafette-record", "version": 99, "tool": 7}"#, &["written by a newer Estafette"]);
    let not_utf8 = [&b"{\"format\": \""[..], &[0xFF, 0xFE], b"\"}"].concat();
    fs::write(ground.path("bytes.json"), not_utf8).expect("a file");
    refused(&ground, &["compare", "bytes.json", "bytes.json"], &["cannot use bytes.json", "UTF-8"]);
}

#[test]
fn records_that_are_damaged() {
    let damaged = "the record is damaged";
    let with = |number: &str, change: fn(&mut Value)| changed(change).replace("\"here\"", number);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for number in ["NaN", "Infinity", "1e999", "-1", "0.5", &deep] {
        refuses(&with(number, |record| record["rounds_planned"] = json!("here")), &["line 1 column"]);
        refuses(&with(number, |record| record["fingerprint"]["cores"] = json!("here")), &["line 1 column"]);
    }
    refuses(&changed(|record| record["instances"][0]["entrant"] = json!(1_000)), &[damaged, "does not exist"]);
    refuses(&changed(|record| record["instances"][0]["round"] = json!(1_000)), &[damaged, "does not exist"]);
    refuses(&changed(|record| record["rounds_planned"] = json!(u64::MAX)), &[damaged, "rounds"]);
    // One whose time was stolen may have been measured again.
    let twice = changed(|record| {
        let instances = record["instances"].as_array_mut().expect("a list");
        instances[0]["outcome"]["measured"]["discarded"] = Value::Null;
        instances.push(instances[0].clone());
    });
    refuses(&twice, &[damaged, "twice"]);
    refuses(&changed(|record| record["mechanisms"] = json!([])), &[damaged, "does not describe"]);
    let figures = "/instances/0/outcome/measured";
    let set = |name: &str, value: Value| {
        changed(|record| record.pointer_mut(figures).expect("the first instance's figures")[name] = value)
    };
    refuses(&set("window_ns", json!(0)), &[damaged, "instance 0", "impossible"]);
    refuses(&set("steal", json!(1.5)), &[damaged, "instance 0", "impossible"]);
}

#[test]
fn records_that_cannot_be_compared() {
    for (name, value) in [("cpu", json!("Z80")), ("cores", json!(4_096)), ("kernel", json!("2.4.0"))] {
        let other = changed(|record| record["fingerprint"][name] = value);
        refuses(&other, &["different machines", "run both on one machine"]);
    }
    let other = changed(|record| record["window"]["time"]["measure_ns"] = json!(1));
    refuses(&other, &["windows differ", "--window"]);
    let other = changed(|record| {
        for entrant in record["entrants"].as_array_mut().expect("a list") {
            entrant["case"]["cell"]["capacity"] = json!(3);
        }
    });
    refuses(&other, &["no cell in common", "same suite and options"]);
}

/// Every value of a record in turn gives way to hostile ones. The comparison takes it or leaves it;
/// it does not panic, print half a result, or let the file speak to the terminal.
#[test]
fn records_that_are_hostile() {
    let numbers = [json!(-1), json!(0), json!(u64::MAX), json!(1e308), json!(5e-324)];
    let others = [Value::Null, json!("\u{1b}[2J\r\n\u{9b}"), json!([]), json!({})];
    let values: Vec<Value> = numbers.into_iter().chain(others).collect();
    let places = places(record());
    let count = places.len() * values.len();
    assert!(count > 1_000, "{count} comparisons: has the record lost its content?");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for places in places.chunks(places.len().div_ceil(threads)) {
            scope.spawn(|| {
                let ground = Ground::new();
                for (at, place) in places.iter().enumerate() {
                    for (nth, value) in values.iter().enumerate() {
                        takes_or_leaves(&ground, place, value, (at + nth) % 2 == 0);
                    }
                }
            });
        }
    });
}

/// Compares a good record with one that has this value in this place.
fn takes_or_leaves(ground: &Ground, place: &str, value: &Value, file_first: bool) {
    let text = changed(|record| *record.pointer_mut(place).expect("a place of the record") = value.clone());
    let done = compare(ground, &text, file_first);
    let what = format!("{value} in {place}: {}\n{}\n{}", done.status, done.stdout, done.stderr);
    match done.status.code() {
        Some(0) => assert!(done.stderr.is_empty() && !done.stdout.is_empty(), "{what}"),
        Some(2) => assert!(done.stdout.is_empty() && !done.stderr.is_empty(), "{what}"),
        _ => panic!("{what}"),
    }
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!done.stdout.contains(control) && !done.stderr.contains(control), "{what:?}");
}

/// The places of all values in a record, one for each kind: of a list, the first that has it.
fn places(record: &Value) -> Vec<String> {
    fn walk(value: &Value, place: &str, kind: &str, seen: &mut BTreeSet<String>, found: &mut Vec<String>) {
        if !kind.is_empty() && seen.insert(kind.to_owned()) {
            found.push(place.to_owned());
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    walk(value, &format!("{place}/{name}"), &format!("{kind}/{name}"), seen, found);
                }
            }
            Value::Array(values) => {
                for (at, value) in values.iter().enumerate() {
                    walk(value, &format!("{place}/{at}"), &format!("{kind}/*"), seen, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(record, "", "", &mut BTreeSet::new(), &mut found);
    found
}
