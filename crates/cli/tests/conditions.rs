//! Runs on a full disk and beside other programs, and the progress that a terminal shows.

mod common;

use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Done, Ground, PROGRAM};
use serde_json::Value;

/// One at a time: what is measured shares the machine with nothing else.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_full_disk_ends_a_run_and_its_tables_are_printed() {
    let _alone = alone();
    let ground = Ground::new();
    // No file may become longer than 1 KiB, as if there were no more space. A record is longer after its first round.
    let bench = "bench process/pipe --pattern=ping-pong --size=64 --rounds=3 --window=60ms --timeout=60s --out=out";
    let script = format!("ulimit -f 2; trap '' XFSZ; exec {PROGRAM} {bench}");
    let done = Done::from(ground.program("sh", ["-c", &script]).output().expect("a shell starts")).exits(2);
    assert!(done.stdout.contains("process · ping-pong · 64B") && done.stdout.contains("pipe"), "{}", done.stdout);
    // The system's words for `EFBIG`, and the file that was not written.
    assert!(done.stderr.contains("(os error 27)") && done.stderr.contains("out/"), "{}", done.stderr);
    assert!(!done.stderr.contains("round 2 of 3"), "nothing of a second round could be kept: {}", done.stderr);
    assert!(!done.stderr.contains("record: "), "no record is announced: {}", done.stderr);
    ground.assert_clean();
}

#[test]
fn the_load_of_others_is_reported_and_recorded_and_is_no_failure() {
    let _alone = alone();
    let ground = Ground::new();
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell starts");
    let mut others = [busy(), busy()];
    // The window is so long that the load within it is known: an instance without a message is then discarded, and has not failed.
    let what = ["bench", "process/pipe", "--pattern=ping-pong", "--size=64"];
    let done = ground.run([&what[..], &["--rounds=1", "--window=300ms", "--timeout=60s", "--out=out"]].concat());
    for other in &mut others {
        other.kill().expect("it is ours");
        other.wait().expect("it ends");
    }
    let is_disturbed = common::is_disturbed(&done.stderr) && done.status.code() == Some(2);
    let done = done.exits(if is_disturbed { 2 } else { 0 });
    assert!(done.stderr.contains("warning: other processes use "), "{}", done.stderr);
    assert!(done.stdout.contains("\nOther processes used "), "{}", done.stdout);
    let record: Value = serde_json::from_str(&fs::read_to_string(ground.record()).expect("the record")).expect("JSON");
    assert!(record["other_load"].as_f64().is_some_and(|share| share > 0.1), "{}", record["other_load"]);
}

#[test]
fn the_progress_names_each_stage() {
    let _alone = alone();
    let ground = Ground::new();
    let what = ["bench", "process/pipe", "--pattern=ping-pong", "--size=64", "--rounds=2", "--window=60ms"];
    let done = ground.terminal(100, &[&what[..], &["--timeout=60s"]].concat());
    // On a disturbed machine it may be that no instance counts, which is no success. Here stdout and stderr are one.
    let is_disturbed = common::is_disturbed(&done.stdout);
    let done = done.exits(if is_disturbed { 2 } else { 0 });
    // Each redrawing begins at the first column.
    let drawn: Vec<&str> = done.stdout.split('\r').map(str::trim_end).collect();
    for (stage, of) in [("limits", ""), ("preparing", "capacities"), ("preparing", "system calls")] {
        let is_named = |line: &&str| line.contains(&format!("{stage} ")) && line.ends_with(of);
        assert!(drawn.iter().any(is_named), "no `{stage} … {of}` in {drawn:?}");
    }
    let measures = |line: &&str| line.contains("measuring ") && line.ends_with("process/pipe");
    assert!(drawn.iter().any(measures), "{drawn:?}");
    assert!(!drawn.iter().any(|line| line.contains("limits ") && line.contains("process/pipe")), "{drawn:?}");
}
