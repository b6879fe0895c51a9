//! Several who send through the network: writers of one connection, and connections by the hundred.
//! Every way that has them is verified, and whatever of it is killed, nothing is left.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};

use common::{Ground, Running, names, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One at a time: a run shares the machine with no other one.
static MACHINE: Mutex<()> = Mutex::new(());

const PATTERNS: [&str; 3] = ["writers", "connections", "fan-in"];

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

#[test]
fn every_way_that_has_writers_connections_or_producers_is_verified() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let run = |more: &[&str]| {
        let common = ["network/*", "--profile=standard", "--place=other-core", "--rounds=1", "--json"];
        ground.bench(20, &[&common[..], more].concat()).json()
    };
    let patterns = format!("--pattern={}", PATTERNS.join(","));
    let runs = [
        run(&[&patterns, "--producers=3", "--size=64", "--wait=block,adaptive"]),
        run(&[&patterns, "--producers=2", "--size=64KiB", "--wait=block"]),
        // More connections than one wait reports.
        run(&["--pattern=connections", "--producers=1,300", "--size=8", "--wait=block"]),
    ];
    let mut measured = BTreeSet::new();
    for record in &runs {
        for instance in list(&record["instances"]) {
            let figures = &instance["outcome"]["measured"];
            assert!(figures["breach"].is_null(), "{instance}");
            if figures["messages"].as_u64() == Some(0) {
                // On a disturbed machine an instance may receive nothing.
                assert!(!figures["discarded"].is_null(), "{instance}");
                continue;
            }
            let case = &record["entrants"][instance["entrant"].as_u64().unwrap() as usize]["case"];
            let text = |of: &Value| of.as_str().expect("a name").to_owned();
            measured.insert((text(&case["mechanism"]), text(&case["cell"]["pattern"])));
        }
    }
    for listed in list(&ground.run(["list", "network/*", "--json"]).json()) {
        let name = listed["name"].as_str().expect("a name");
        for pattern in list(&listed["patterns"]).iter().filter_map(Value::as_str).filter(|one| PATTERNS.contains(one)) {
            let measured = measured.contains(&(name.to_owned(), pattern.to_owned()));
            assert!(measured || !listed["unavailable"].is_null(), "{name} has not played {pattern}");
        }
    }
    ground.assert_clean();
}

/// A run with a thousand connections, once both processes of an instance have theirs.
fn a_thousand_connections(ground: &Ground, window: &str) -> (Running, Vec<Pid>) {
    const RUN: [&str; 9] = [
        "bench",
        "network/framed-tuned",
        "--pattern=connections",
        "--producers=1000",
        "--size=64",
        "--wait=block",
        "--rounds=1",
        "--out=out",
        "--json",
    ];
    let run = Running::start(ground, &[&RUN[..], &[window]].concat());
    let children = wait_for("a thousand connections", || {
        let numbers = ground.processes().into_iter().filter_map(|process| {
            let number: i32 = process.split_ascii_whitespace().next()?.parse().ok()?;
            // Of an instance whose system calls are counted they are somebody else's children, and it costs nothing.
            let status = fs::read_to_string(format!("/proc/{number}/status")).ok()?;
            let timed = status.contains(&format!("PPid:\t{}\n", run.pid().as_raw_nonzero()));
            Pid::from_raw(number).filter(|_| timed && names(format!("/proc/{number}/fd")).len() > 1000)
        });
        let children: Vec<Pid> = numbers.collect();
        (children.len() >= 2).then_some(children)
    });
    (run, children)
}

#[test]
fn an_interrupt_leaves_nothing_of_a_thousand_connections() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let (run, _) = a_thousand_connections(&ground, "--window=30s");
    kill_process(run.pid(), Signal::INT).unwrap();
    run.end().exits(130);
    ground.assert_clean();
}

#[test]
fn a_killed_process_with_a_thousand_connections_costs_one_instance() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = Ground::new();
    let (run, children) = a_thousand_connections(&ground, "--window=5s");
    kill_process(children[0], Signal::KILL).unwrap();
    let done = run.end().exits(2);
    let record = done.json();
    let whys = list(&record["instances"]).iter().filter_map(|instance| instance["outcome"]["failed"]["why"].as_str());
    let whys: Vec<&str> = whys.filter(|why| !common::is_disturbed(why)).collect();
    assert!(whys.len() == 1 && whys[0].contains("was killed by signal 9"), "{whys:?}");
    ground.assert_clean();
}

/// Runs connections where a process may have so many descriptors. Returns its status and what it
/// said.
fn with_descriptors(limit: &str, connections: u32, window: &str) -> (Option<i32>, String) {
    let ground = Ground::new();
    let bench = format!("{} bench network/framed-tuned --pattern=connections --size=64 --rounds=1", common::PROGRAM);
    let line = format!("ulimit {limit}; exec {bench} --producers={connections} --window={window} --out=out");
    let done = ground.program("sh", ["-c", &line]).output().expect("sh");
    ground.assert_clean();
    (done.status.code(), String::from_utf8(done.stderr).expect("UTF-8"))
}

#[test]
fn a_low_limit_of_descriptors_is_raised_and_a_hard_one_is_said_with_what_to_do() {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let raised = || with_descriptors("-Sn 200", 300, "500ms");
    let (code, said) = common::undisturbed(raised, |(code, said)| *code == Some(0) || !common::is_disturbed(said));
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = with_descriptors("-n 200", 300, "20ms");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("may have 200") && said.contains("ulimit -Hn"), "{said}");
}
