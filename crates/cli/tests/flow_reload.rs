//! `flow reload` and `--watch`: new code between two batches, while messages flow.

mod common;

use common::pipeline::{Flow, connector, count, function, guest, marking, numbered, slow};
use common::{Ground, wait_for};

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

/// Checks that each number came out once, in order, first with one letter and then with the other. Returns how many had
/// the first.
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
    assert_eq!(done.stdout, "`mark` of `pipeline`: 1 instance take the new code\n");
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
    flow.reload("mark").exits(0);
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

/// A function that waits for space has no batch done: it takes the new code later, and goes on sending until then.
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
