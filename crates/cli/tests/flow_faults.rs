//! Functions that go wrong are contained, reported, and restarted or given up, as their pipeline
//! says.

mod common;

use std::time::Duration;

use common::pipeline::{Flow, connector, count, each_message, function, guest, marking, numbered, poisonable};
use common::{Done, Ground};

/// A sleep counts, and cannot be trapped; a wait for space is no time of the function's.
#[test]
fn a_sleep_counts_as_time_of_a_call() {
    let ground = Ground::new();
    let yaml = "functions:
  - { name: slow, module: { path: slow.wat }, input: { topic: in }, output: { topics: [out] }, limits: { call: 300ms }, restart: { max: 0 } }
sources:
  - { name: lines, stdin: lines, output: { topics: [in] } }
sinks:
  - { name: print, input: { topic: out }, stdout: lines }
";
    ground.pipeline(yaml, &[("slow.wat", common::pipeline::slow(600_000))]);
    let done = Flow::run(&ground, &[], "1\n").exits(2);
    assert!(done.stderr.contains("it could not be interrupted"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn a_send_that_waits_for_space_does_not_count_as_time_of_a_call() {
    let ground = Ground::new();
    // The ring holds one message. The third send waits for as long as the receiver sleeps at the first.
    let yaml = "functions:
  - { name: send, module: { path: send.wat }, args: [4, 3000], output: { topics: [in] }, limits: { call: 2s }, restart: { max: 0 } }
  - { name: slow, module: { path: slow.wat }, input: { topic: in }, output: { topics: [out] }, limits: { call: 10min } }
sinks:
  - { name: keep, input: { topic: out }, file: { path: /dev/null, layout: raw } }
topics:
  in: { capacity: 4KiB, max_message: 3KiB }
";
    let slow_at_first = each_message(
        "(global $first (mut i32) (i32.const 1))",
        "(if (global.get $first) (then (call $sleep (i64.const 5000))))
         (global.set $first (i32.const 0))
         (call $pass_on (local.get $at) (local.get $len))",
    );
    ground.pipeline(yaml, &[("send.wat", guest("send")), ("slow.wat", slow_at_first)]);
    let done = Flow::run(&ground, &[], "").exits(0);
    assert!(!done.stderr.contains("limits.call") && !done.stderr.contains("interrupted"), "{}", done.stderr);
    ground.assert_clean();
}

/// A function that goes wrong, and beside it one that does not. Both get each line.
fn beside(name: &str, more: &str) -> Ground {
    let ground = Ground::new();
    let yaml = format!(
        "functions:
  - {{ name: faulty, module: {{ path: faulty.wat }}, input: {{ topic: in, queue: each }}, output: {{ topics: [wrong] }}, {more} }}
  - {{ name: well, module: {{ path: forward.wat }}, input: {{ topic: in, queue: each }}, output: {{ topics: [out] }} }}
sources:
  - {{ name: lines, stdin: lines, output: {{ topics: [in] }} }}
sinks:
  - {{ name: print, input: {{ topic: out }}, stdout: lines }}
  - {{ name: wrong, input: {{ topic: wrong }}, file: {{ path: wrong.txt }} }}
"
    );
    ground.pipeline(&yaml, &[("faulty.wat", guest(&format!("faulty/{name}"))), ("forward.wat", guest("forward"))]);
    ground
}

/// Runs it with a policy that gives up at the first fault, and goes on without the function.
fn runs_beside(name: &str, isolation: &str, limits: &str, code: i32) -> Done {
    let more = format!("isolation: {isolation}, limits: {{ {limits} }}, restart: {{ max: 0, then: continue }}");
    let ground = beside(name, &more);
    let lines = numbered(3_000);
    let done = Flow::run(&ground, &[], &lines).exits(code);
    assert_eq!(done.stdout, lines, "{name}: the function beside it got and sent everything");
    assert_eq!(ground.read("wrong.txt"), "", "{name}: nothing of it was sent");
    ground.assert_clean();
    done
}

#[test]
fn a_function_that_goes_wrong_harms_no_other_and_is_reported() {
    let faults = [
        ("trap", "unreachable"),
        ("out_of_bounds", "out of bounds memory access"),
        ("recurse", "call stack exhausted"),
        ("bad_pointer", "to `send`, outside of its memory"),
        ("wrapping_pointer", "outside of its memory"),
        ("bad_list", "to `send_batch` at once; the most is"),
        ("bad_entry", "to `send_batch`, outside of its memory"),
        ("no_buffer", "`estafette_buffer` returned 0x0"),
        ("buffer_out_of_bounds", "`estafette_buffer` returned"),
        ("buffer_not_aligned", "`estafette_buffer` returned 0x1004"),
        ("send_in_buffer", "it called `send` from its start section or from `estafette_buffer`"),
        ("exit_in_batch", "it ended itself with the exit status 0"),
    ];
    for (at, (name, reason)) in faults.into_iter().enumerate() {
        let done = runs_beside(name, ["process", "thread"][at % 2], "", 2);
        let failed = "the function `faulty` failed and has no restart left: ";
        assert!(done.stderr.contains(failed) && done.stderr.contains(reason), "{name}: {}", done.stderr);
    }
    runs_beside("no_such_topic", "process", "", 0);
}

#[test]
fn an_endless_loop_is_interrupted_wherever_it_runs() {
    for isolation in ["process", "thread"] {
        let done = runs_beside("loop", isolation, "call: 300ms", 2);
        assert!(done.stderr.contains("longer than its limit `limits.call`"), "{}", done.stderr);
    }
}

#[test]
fn memory_ends_at_its_limit() {
    let done = runs_beside("grow", "process", "memory: 5MiB", 2);
    assert!(done.stderr.contains("`limits.memory` is 5242880 bytes"), "{}", done.stderr);
}

/// Runs a function that nothing feeds, without a restart.
fn run_alone(name: &str, code: i32) -> Done {
    let ground = Ground::new();
    let yaml = "functions:
  - name: faulty
    module: { path: faulty.wat }
    output: { topics: [out] }
    limits: { call: 300ms }
    restart: { max: 1, initial_delay: 1ms }
sinks:
  - { name: print, input: { topic: out }, stdout: lines }
";
    ground.pipeline(yaml, &[("faulty.wat", guest(&format!("faulty/{name}")))]);
    let done = Flow::run(&ground, &[], "").exits(code);
    assert_eq!(done.stdout, "");
    ground.assert_clean();
    done
}

#[test]
fn a_start_function_that_goes_wrong_is_reported() {
    let faults = [
        ("exit", "it ended itself with the exit status 3"),
        ("loop_in_start", "longer than its limit `limits.call`"),
        ("send_in_start_section", "it called `send` from its start section"),
        // These three are seen before anything runs.
        ("no_memory_export", "memory"),
        ("unknown_import", "launch"),
        ("wrong_type", "estafette_batch"),
    ];
    for (name, reason) in faults {
        let done = run_alone(name, 2);
        assert!(done.stderr.contains(reason), "{name}: {}", done.stderr);
    }
}

#[test]
fn a_flood_of_lines_is_counted_and_keeps_nobody_waiting() {
    let ground = beside("flood", "");
    let mut flow = Flow::start(&ground, &[]);
    flow.feed(&numbered(300));
    flow.wait_for("the flood", |status| (count(status, "faulty", "calls") > 5).then_some(()));
    flow.wait_for("the function beside it", |status| {
        (connector(status, "print", "received_messages") == 300).then_some(())
    });
    flow.close_stdin();
    let done = flow.end().exits(0);
    assert!(done.stderr.contains("it prints more than 1000 lines a second"), "{}", &done.stderr[..2000]);
    let logged = done.stderr.lines().filter(|line| line.contains("xxxxxxxx")).count();
    let left_out: usize = done
        .stderr
        .split(" lines=")
        .skip(1)
        .map(|rest| rest.split_whitespace().next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert!(left_out > 0 && logged > 0, "{logged} logged, {left_out} left out");
    ground.assert_clean();
}

/// A function that fails at each line that begins with P. `{topic}` and `{more}` are of its topic
/// and the function.
fn poisoned(topic: &str, more: &str) -> Ground {
    let ground = Ground::new();
    let has_dead_letters = topic.contains("dead_letter");
    let dead = "  - { name: mark, module: { path: mark.wat }, input: { topic: dead }, output: { topics: [out] } }";
    let dead = if has_dead_letters { dead } else { "" };
    let yaml = format!(
        "functions:
  - {{ name: fails, module: {{ path: fails.wat }}, input: {{ topic: in }}, output: {{ topics: [out] }}, {more} }}
{dead}
sources:
  - {{ name: lines, stdin: lines, output: {{ topics: [in] }} }}
sinks:
  - {{ name: print, input: {{ topic: out }}, stdout: lines }}
topics:
  in: {{ {topic} }}
"
    );
    ground.pipeline(&yaml, &[("fails.wat", poisonable()), ("mark.wat", marking('D'))]);
    ground
}

const SOON: &str = "restart: { max: 1000, within: 60min, initial_delay: 1ms, max_delay: 1ms }";

#[test]
fn a_function_is_restarted_until_none_is_left_then_the_pipeline_stops() {
    let ground = poisoned("", "restart: { max: 2, within: 60min, initial_delay: 1ms }");
    let mut flow = Flow::start(&ground, &["--verbose"]);
    for failures in 1..=3 {
        flow.feed("P\n");
        flow.wait_for_log(if failures == 3 { "has no restart left" } else { "failed and is restarted" });
        if failures < 3 {
            flow.wait_for("the restart", |status| {
                let fails = function(status, "fails");
                (fails["restarts"] == failures && fails["phase"] == "running").then_some(())
            });
        }
    }
    let done = flow.end().exits(2);
    let delays: Vec<&str> =
        done.stderr.split("failed and is restarted in ").skip(1).map(|rest| rest.split(':').next().unwrap()).collect();
    assert_eq!(delays, ["1ms", "2ms"]);
    assert!(done.stderr.contains("3 messages lost (3 in processing when a reader failed or ended)"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn at_most_once_loses_no_more_than_the_batch_that_failed() {
    let ground = poisoned("", SOON);
    let mut flow = Flow::start(&ground, &["--json"]);
    flow.wait_for("a start", |status| (function(status, "fails")["phase"] == "running").then_some(()));
    flow.feed("1\nP\n2\n");
    flow.wait_for("the fault", |status| (count(status, "fails", "traps") == 1).then_some(()));
    flow.wait_for("the restart", |status| (function(status, "fails")["phase"] == "running").then_some(()));
    flow.feed("3\n");
    flow.close_stdin();
    let stdout = flow.end().exits(0).stdout;
    assert!(stdout.starts_with("1\n") && stdout.contains("\n3\n") && !stdout.contains("P\n"), "{stdout}");
}

#[test]
fn a_message_that_kills_goes_to_the_dead_letters_and_all_others_arrive() {
    // The default of both: 5 tries of a message, and 5 restarts.
    let ground =
        poisoned("delivery: at-least-once, dead_letter: dead", "restart: { initial_delay: 1ms, max_delay: 1ms }");
    let lines = numbered(5_000).replace("\n2500\n", "\n2500\nPoison\n");
    let done = Flow::run(&ground, &[], &lines).exits(0);
    assert_eq!(done.stdout.matches("DPoison\n").count(), 1, "{}", done.stderr);
    let mut seen = vec![false; 5_000];
    for line in done.stdout.lines().filter(|line| *line != "DPoison") {
        seen[line.parse::<usize>().expect("a number")] = true;
    }
    assert_eq!(seen.iter().filter(|seen| **seen).count(), 5_000);
    assert!(done.stderr.contains("5 restarts"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn a_slow_function_is_no_endless_loop_as_long_as_each_message_takes_less_than_the_limit() {
    let ground = Ground::new();
    let yaml = "functions:
  - { name: slow, module: { path: slow.wat }, input: { topic: in }, output: { topics: [out] }, limits: { call: 5s } }
sources:
  - { name: lines, stdin: lines, output: { topics: [in] } }
sinks:
  - { name: print, input: { topic: out }, stdout: lines }
";
    ground.pipeline(yaml, &[("slow.wat", common::pipeline::slow(40))]);
    let before = std::time::Instant::now();
    let done = Flow::run(&ground, &[], &numbered(150)).exits(0);
    assert_eq!(done.stdout, numbered(150));
    assert!(before.elapsed() > Duration::from_secs(6) && !done.stderr.contains("restart"), "{}", done.stderr);
}
