//! `flow reload` and `--watch`: new code between two batches, while messages flow.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use common::pipeline::{
    Flow, connector, count, each_message, function, functions, guest, marking, numbered, pid, slow,
};
use common::{Done, Ground, PROGRAM, wait_for};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const YAML: &str = "functions:
  - { name: mark, module: { path: mark.wat }, input: { topic: in }, output: { topics: [out] } }
  - { name: send, module: { path: send.wat }, args: [1, 1], output: { topics: [else] } }
sources:
  - { name: lines, stdin: lines, output: { topics: [in] } }
sinks:
  - { name: print, input: { topic: out }, stdout: lines }
  - { name: rest, input: { topic: else }, file: { path: else.txt } }
topics:
  in: { delivery: at-least-once }
";

/// A pipeline whose function writes a letter in front of each line.
fn ground(letter: char) -> Ground {
    let ground = Ground::new();
    ground.pipeline(YAML, &[("mark.wat", marking(letter)), ("send.wat", guest("send"))]);
    ground
}

/// Feeds numbered lines until the log says something, and some more after that. Returns how many.
fn feed_until(flow: &mut Flow<'_>, first: usize, log: &str) -> usize {
    let mut next = first;
    let mut more = |flow: &mut Flow<'_>| {
        let lines: String = (next..next + 500).map(|number| format!("{number}\n")).collect();
        flow.feed(&lines);
        next += 500;
    };
    wait_for(log, || {
        more(flow);
        flow.stderr().contains(log).then_some(())
    });
    (0..4).for_each(|_| more(flow));
    next
}

/// Checks that each number came out once, in order, first with one letter and then with the other.
/// Returns how many had the first.
#[track_caller]
fn check_switch(stdout: &str, count: usize, old: char, new: char) -> usize {
    let mut switched = None;
    for (at, line) in stdout.lines().enumerate() {
        if switched.is_none() && line.starts_with(new) {
            switched = Some(at);
        }
        let letter = if switched.is_none() { old } else { new };
        assert_eq!(line, format!("{letter}{at}"));
    }
    assert_eq!(stdout.lines().count(), count);
    switched.unwrap_or(count)
}

#[test]
fn new_code_takes_over_between_two_messages_and_none_is_lost() {
    let ground = ground('a');
    let mut flow = Flow::start(&ground, &[]);
    flow.feed(&numbered(500));
    flow.wait_for("the old code", |status| (connector(status, "print", "received_messages") == 500).then_some(()));
    ground.write("mark.wat", marking('b'));
    let done = flow.reload("mark").exits(0);
    assert_eq!(done.stdout, "`mark` of `pipeline`: 1 instance runs the new code\n");
    let count = feed_until(&mut flow, 500, "reloaded");
    flow.close_stdin();
    let done = flow.end().exits(0);
    assert!(check_switch(&done.stdout, count, 'a', 'b') < count);
    ground.assert_clean();
}

#[test]
fn code_that_is_broken_or_does_not_start_changes_nothing() {
    let ground = ground('a');
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_for("messages", |status| (function(status, "mark")["phase"] == "running").then_some(()));
    let refused = |name: &str, says: &str| {
        let done = flow.reload(name).exits(2);
        assert!(done.stderr.contains(says), "`{says}` is not in: {}", done.stderr);
    };
    refused("other", "there is no function `other`; the pipeline has mark, send");
    refused("send", "`send` receives nothing");
    ground.write("mark.wat", "(module (nonsense))");
    refused("mark", "mark.wat");
    ground.write("mark.wat", guest("faulty/exit"));
    refused("mark", "exports nothing that receives messages");
    // It is fine as far as can be seen, and traps as it starts.
    let start = "(func (export \"_start\") (unreachable)) (func (export \"estafette_batch\")";
    ground.write("mark.wat", marking('b').replacen("(func (export \"estafette_batch\")", start, 1));
    refused("mark", "the new code does not start in `mark`, and the old code goes on: ");
    let mut count = feed_until(&mut flow, 0, "the new code does not start, the old goes on");
    // A restart does not take the code that never started either.
    let host = flow.wait_for("its process", |status| common::pipeline::pid(status, "mark"));
    rustix::process::kill_process(host, rustix::process::Signal::KILL).expect("it runs");
    count = feed_until(&mut flow, count, "failed and is restarted");
    flow.close_stdin();
    let done = flow.end().exits(0);
    let numbers: std::collections::BTreeSet<usize> = done
        .stdout
        .lines()
        .map(|line| line.strip_prefix('a').expect("the old code").parse().expect("a number"))
        .collect();
    assert_eq!(numbers.len(), count, "at least once");
    ground.assert_clean();
}

/// A function that waits for space has no batch done: it takes the new code later, and goes on
/// sending until then.
#[test]
fn a_function_under_back_pressure_is_reloaded_and_goes_on() {
    let ground = ground('a');
    let yaml = YAML.replace("topics: [out] }", "topics: [then] }").replace(
        "  - { name: send",
        "  - { name: slow, module: { path: slow.wat }, input: { topic: then }, output: { topics: [out] } }\n  - { name: send",
    ) + "  then: { capacity: 4KiB }\n";
    ground.pipeline(&yaml, &[("slow.wat", slow(1))]);
    let mut flow = Flow::start(&ground, &[]);
    flow.feed(&numbered(2_000));
    flow.wait_for("work", |status| (count(status, "slow", "received_messages") > 100).then_some(()));
    for letter in ['b', 'c', 'd'] {
        ground.write("mark.wat", marking(letter));
        flow.reload("mark").exits(0);
    }
    flow.close_stdin();
    let done = flow.end().exits(0);
    let numbers: Vec<usize> = done.stdout.lines().map(|line| line[1..].parse().expect("a number")).collect();
    assert!(numbers == (0..2_000).collect::<Vec<_>>(), "{} lines", numbers.len());
    assert!(!done.stderr.contains("failed"), "{}", done.stderr);
}

#[test]
fn a_module_that_changes_is_reloaded_by_watch() {
    let ground = ground('a');
    let mut flow = Flow::start(&ground, &["--watch"]);
    flow.feed(&numbered(10));
    flow.wait_for("the old code", |status| (connector(status, "print", "received_messages") == 10).then_some(()));
    ground.write("mark.wat", "(module");
    flow.wait_for_log("the changed module cannot be used");
    // With another length: some file systems note times to within a second only.
    ground.write("mark.wat", marking('b') + " ;; changed");
    flow.wait_for_log("reloaded");
    let count = feed_until(&mut flow, 10, "reloaded");
    flow.close_stdin();
    assert_eq!(check_switch(&flow.end().exits(0).stdout, count, 'a', 'b'), 10);
}

/// Starts `flow reload mark`, and does not wait for its end.
fn start_reload(ground: &Ground, flow: &Flow<'_>) -> Child {
    let pid = flow.pid().as_raw_nonzero().to_string();
    ground.command(["flow", "reload", "mark", "--pipeline", &pid]).spawn().expect("the command starts")
}

fn end_of(child: Child) -> Done {
    Done::from(child.wait_with_output().expect("it is ours"))
}

/// Kills the process of a function's first instance, and waits until another one runs in its place.
fn kill_and_wait(flow: &Flow<'_>, name: &str) {
    let old = flow.wait_for("its process", |status| pid(status, name));
    kill_process(old, Signal::KILL).expect("it runs");
    flow.wait_for("the restart", |status| {
        let is_running = function(status, name)["phase"] == "running";
        (is_running && pid(status, name).is_some_and(|new| new != old)).then_some(())
    });
}

/// A module that is a FIFO keeps its compilation waiting for as long as the test likes.
fn replace_module_with_fifo(ground: &Ground) -> PathBuf {
    let module = ground.path("mark.wat");
    fs::remove_file(&module).expect("the module");
    mknodat(CWD, &module, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    module
}

#[test]
fn functions_are_supervised_while_new_code_is_compiled_and_a_second_reload_waits() {
    let ground = ground('a');
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_for("messages", |status| (function(status, "mark")["phase"] == "running").then_some(()));
    let module = replace_module_with_fifo(&ground);
    let first = start_reload(&ground, &flow);
    // A writer can be opened once the compilation waits for what the module holds.
    let writer = fs::OpenOptions::new().write(true).open(&module).expect("the FIFO");
    kill_and_wait(&flow, "mark");
    flow.feed("0\n");
    flow.wait_for("the old code", |status| (connector(status, "print", "received_messages") == 1).then_some(()));
    let second = start_reload(&ground, &flow);
    std::io::Write::write_all(&mut &writer, marking('b').as_bytes()).expect("a reader");
    drop(writer);
    end_of(first).exits(0);
    flow.feed("1\n");
    // The second reads the module anew.
    fs::write(&module, marking('c')).expect("a reader");
    end_of(second).exits(0);
    flow.feed("2\n");
    flow.close_stdin();
    let stdout = flow.end().exits(0).stdout;
    assert!(["a0\nb1\nc2\n", "a0\nc1\nc2\n"].contains(&&stdout[..]), "{stdout}");
    ground.assert_clean();
}

#[test]
fn a_pipeline_ends_while_new_code_is_compiled() {
    let ground = ground('a');
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_for("messages", |status| (function(status, "mark")["phase"] == "running").then_some(()));
    let module = replace_module_with_fifo(&ground);
    let reload = start_reload(&ground, &flow);
    let _writer = fs::OpenOptions::new().write(true).open(&module).expect("the FIFO");
    flow.feed(&numbered(100));
    flow.close_stdin();
    assert_eq!(flow.end().exits(0).stdout.lines().count(), 100);
    let done = end_of(reload).exits(2);
    assert!(done.stderr.contains("has ended"), "{}", done.stderr);
    ground.assert_clean();
}

/// Sleeps at a message that begins with S, and passes each on behind a letter.
fn sleepy(letter: char, ms: u32) -> String {
    marking(letter).replacen(
        "(func $on_message (param $at i32) (param $len i32) ",
        &format!(
            "(func $on_message (param $at i32) (param $len i32)
             (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 83)) (then (call $sleep (i64.const {ms}))))"
        ),
        1,
    )
}

#[test]
fn a_reload_waits_for_the_call_under_way_until_its_time_is_up() {
    let ground = ground('a');
    let yaml = YAML.replace("topics: [out] } }", "topics: [out] }, limits: { call: 10min } }");
    ground.pipeline(&yaml, &[("mark.wat", sleepy('a', 3_000))]);
    let mut flow = Flow::start(&ground, &[]);
    flow.feed("S\n");
    flow.wait_for("the call", |status| (count(status, "mark", "calls") == 1).then_some(()));
    ground.write("mark.wat", marking('b'));
    let pid = flow.pid().as_raw_nonzero().to_string();
    let done = ground.run(["flow", "reload", "mark", "--pipeline", &pid, "--timeout", "1ms"]).exits(2);
    assert!(done.stderr.contains("not all instances of `mark` run the new code"), "{}", done.stderr);
    flow.reload("mark").exits(0);
    // By then it has been logged.
    assert!(flow.stderr().contains("reloaded"), "{}", flow.stderr());
    flow.feed("1\n");
    flow.close_stdin();
    assert_eq!(flow.end().exits(0).stdout, "aS\nb1\n");
    ground.assert_clean();
}

/// An instance that starts with the old code while a reload is under way says nothing of the new
/// code.
#[test]
fn an_instance_that_starts_with_old_code_does_not_confirm_the_new() {
    let ground = ground('a');
    let start = |what: &str| format!("(func (export \"_start\") {what}) (func (export \"estafette_batch\")");
    let code = |letter, what: &str| marking(letter).replacen("(func (export \"estafette_batch\")", &start(what), 1);
    let patient = "output: { topics: [out] }, limits: { call: 10min } }";
    ground.pipeline(&YAML.replace("output: { topics: [out] } }", patient), &[]);
    ground.write("mark.wat", code('a', "(call $sleep (i64.const 4000))"));
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_for("its start", |status| (function(status, "mark")["phase"] == "starting").then_some(()));
    ground.write("mark.wat", code('b', "(unreachable)"));
    let done = flow.reload("mark").exits(2);
    assert!(done.stderr.contains("the old code goes on"), "{}", done.stderr);
    kill_and_wait(&flow, "mark");
    flow.feed("1\n");
    flow.close_stdin();
    assert_eq!(flow.end().exits(0).stdout, "a1\n");
    ground.assert_clean();
}

/// The new code prints that it starts, and then sleeps, so that its host is killed amid the switch.
#[test]
fn a_shared_host_that_is_killed_during_a_reload_by_watch_fails_its_instances_once() {
    let ground = ground('a');
    let mark = "input: { topic: in }, output: { topics: [out] }, replicas: 2, isolation: thread, limits: { call: 10min }, \
                restart: { max: 0, then: continue }";
    let yaml = YAML.replace("input: { topic: in }, output: { topics: [out] }", mark);
    ground.pipeline(&yaml, &[]);
    let mut flow = Flow::start(&ground, &["--watch"]);
    let host = flow.wait_for("both to run", |status| {
        let mut marks = functions(status).iter().filter(|function| function["function"] == "mark");
        marks.all(|mark| mark["phase"] == "running").then(|| pid(status, "mark")).flatten()
    });
    let starts = r#"(data (i32.const 256) "\08\01\00\00\0a\00\00\00new starts\n")
      (func (export "_start")
        (i32.store (i32.const 256) (i32.const 264))
        (i32.store (i32.const 260) (i32.const 11))
        (drop (call $write (i32.const 1) (i32.const 256) (i32.const 1) (i32.const 128)))
        (call $sleep (i64.const 600000)))
      (func (export "estafette_batch")"#;
    let write = r#"(module (import "wasi_snapshot_preview1" "fd_write"
      (func $write (param i32 i32 i32 i32) (result i32)))"#;
    let module = each_message("", "").replacen("(module", write, 1);
    ground.write("mark.wat", module.replacen("(func (export \"estafette_batch\")", starts, 1));
    flow.wait_for_log("new starts");
    kill_process(host, Signal::KILL).expect("it runs");
    flow.wait_for_log("the changed module cannot be used");
    flow.close_stdin();
    let done = flow.end().exits(2);
    for instance in ["mark.0", "mark.1"] {
        let failed = format!("function `{instance}` failed and has no restart left");
        assert!(done.stderr.contains(&failed), "{instance}: {}", done.stderr);
    }
    assert!(!done.stderr.contains("is restarted"), "{}", done.stderr);
    ground.assert_clean();
}

/// The new code starts in one instance only. The old code does not start in that one's place, as it
/// does in a fresh instance.
#[test]
fn an_instance_that_cannot_go_back_to_the_old_code_is_restarted_with_it() {
    let ground = ground('a');
    let mark = "input: { topic: in }, output: { topics: [out] }, replicas: 2, isolation: thread, \
                allow: { directories: [{ host: shared, guest: shared, write: true }] }";
    fs::create_dir(ground.path("shared")).expect("a folder");
    ground.write("pipeline.yml", YAML.replace("input: { topic: in }, output: { topics: [out] }", mark));
    let code = |letter, start: &str| {
        let imports = r#"(module
          (import "wasi_snapshot_preview1" "path_open"
            (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))"#;
        let start = format!(
            "(data (i32.const 256) \"taken\") (func (export \"_start\") {start}) (func (export \"estafette_batch\")"
        );
        let module = marking(letter).replacen("(module", imports, 1);
        module.replacen("(func (export \"estafette_batch\")", &start, 1)
    };
    // It traps if there is a file to remove.
    let old = "(if (i32.eqz (call $unlink (i32.const 3) (i32.const 256) (i32.const 5))) (then (unreachable)))";
    // It traps unless it is the one that makes the file.
    let new = "(if (call $open (i32.const 3) (i32.const 0) (i32.const 256) (i32.const 5) (i32.const 5)
                 (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 128)) (then (unreachable)))";
    ground.write("mark.wat", code('a', old));
    let mut flow = Flow::start(&ground, &[]);
    let marks = |status: &Value| -> Vec<Value> {
        functions(status).iter().filter(|function| function["function"] == "mark").cloned().collect()
    };
    let are_running = |status: &Value| marks(status).iter().all(|mark| mark["phase"] == "running");
    flow.wait_for("both to run", |status| are_running(status).then_some(()));
    ground.write("mark.wat", code('b', new));
    let done = flow.reload("mark").exits(2);
    assert!(done.stderr.contains("the old code goes on"), "{}", done.stderr);
    let restarts = |status: &Value| marks(status).iter().map(|mark| mark["restarts"].as_u64()).sum::<Option<u64>>();
    flow.wait_for("the restart", |status| (restarts(status) == Some(1) && are_running(status)).then_some(()));
    flow.feed(&numbered(100));
    flow.close_stdin();
    let stdout = flow.end().exits(0).stdout;
    assert!(stdout.lines().count() == 100 && stdout.lines().all(|line| line.starts_with('a')), "{stdout}");
    ground.assert_clean();
}

#[test]
fn a_restart_runs_the_same_program_after_its_file_was_replaced() {
    let ground = ground('a');
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder beside the program");
    let program = folder.path().join("estafette");
    // As a package does: the new file takes the name of the old one.
    fs::hard_link(PROGRAM, &program).expect("a second name");
    let mut flow = Flow::start_program(&ground, program.to_str().expect("UTF-8"), &[]);
    flow.wait_for("messages", |status| (function(status, "mark")["phase"] == "running").then_some(()));
    let other = folder.path().join("new");
    fs::write(&other, "#!/bin/sh\nexit 1\n").expect("a file");
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    fs::rename(&other, &program).expect("the same folder");
    kill_and_wait(&flow, "mark");
    fs::remove_file(&program).expect("the file");
    kill_and_wait(&flow, "mark");
    flow.feed("1\n");
    flow.close_stdin();
    assert_eq!(flow.end().exits(0).stdout, "a1\n");
    ground.assert_clean();
}
