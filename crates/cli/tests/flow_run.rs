//! `flow run`, as a user meets it: what goes in comes out, and nothing is left behind.

mod common;

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use common::pipeline::{Flow, connector, count, each_message, function, functions, guest, numbered, pid, slow, sorted};
use common::{Ground, wait_for};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Signal, test_kill_process};

/// From stdin through one function to stdout. `{more}` is of the function.
fn forwarding(more: &str) -> String {
    format!(
        "functions:
  - {{ name: forward, module: {{ path: forward.wat }}, input: {{ topic: in }}, output: {{ topics: [out] }}{more} }}
sources:
  - {{ name: lines, stdin: lines, output: {{ topics: [in] }} }}
sinks:
  - {{ name: print, input: {{ topic: out }}, stdout: lines }}
"
    )
}

fn forward() -> (&'static str, String) {
    ("forward.wat", guest("forward"))
}

#[test]
fn lines_keep_their_order_and_none_is_lost() {
    let ground = Ground::new();
    ground.pipeline(&forwarding(""), &[forward()]);
    let lines = numbered(100_000);
    let done = Flow::run(&ground, &[], &lines).exits(0);
    assert!(done.stdout == lines, "{} of {} bytes", done.stdout.len(), lines.len());
    assert!(done.stderr.contains("functions received 100,000 messages and sent 100,000"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn a_function_of_each_abi_does_the_same_in_a_process_and_in_a_thread() {
    let lines = numbered(2_000) + "the last one has no line feed";
    for isolation in ["process", "thread"] {
        let ground = Ground::new();
        let function = |abi: &str, input: &str, output: &str| {
            format!(
                "  - {{ name: {abi}, module: {{ path: forward_{abi}.wat }}, isolation: {isolation}, \
                 input: {{ topic: {input} }}, output: {{ topics: [{output}] }} }}\n"
            )
        };
        let yaml = forwarding(&format!(", isolation: {isolation}")).replace("topic: out", "topic: done").replace(
            "sources:",
            &(function("reference", "out", "then") + &function("component", "then", "done") + "sources:"),
        );
        let modules = [
            forward(),
            ("forward_reference.wat", guest("forward_reference")),
            ("forward_component.wat", guest("forward_component")),
        ];
        ground.pipeline(&yaml, &modules);
        let done = Flow::run(&ground, &[], &lines).exits(0);
        assert_eq!(done.stdout, lines.clone() + "\n", "{isolation}");
        ground.assert_clean();
    }
}

#[test]
fn replicas_share_the_messages() {
    for isolation in ["process", "thread"] {
        let ground = Ground::new();
        ground.pipeline(&forwarding(&format!(", replicas: 3, isolation: {isolation}")), &[forward()]);
        let mut flow = Flow::start(&ground, &[]);
        let status = flow.wait_until_running();
        assert_eq!(functions(&status).len(), 3);
        flow.feed(&numbered(20_000));
        flow.close_stdin();
        let done = flow.end().exits(0);
        assert_eq!(sorted(&done.stdout), (0..20_000).collect::<Vec<_>>(), "{isolation}");
    }
}

#[test]
fn readers_of_one_queue_compete_and_each_queue_gets_all() {
    let ground = Ground::new();
    let readers = [("a", ", queue: q", "q"), ("b", ", queue: q", "q"), ("c", ", queue: other", "other")];
    let more = [("d", ", queue: each", "d"), ("e", ", queue: each", "e"), ("f", "", "none"), ("g", "", "none")];
    let mut yaml = String::from("functions:\n");
    for (name, queue, output) in readers.iter().chain(&more) {
        yaml += &format!(
            "  - {{ name: {name}, module: {{ path: forward.wat }}, isolation: thread, \
             input: {{ topic: in{queue} }}, output: {{ topics: [{output}] }} }}\n"
        );
    }
    yaml += "sources:\n  - { name: lines, stdin: lines, output: { topics: [in] } }\nsinks:\n";
    let outputs = ["q", "other", "d", "e", "none"];
    for output in outputs {
        yaml += &format!("  - {{ name: to-{output}, input: {{ topic: {output} }}, file: {{ path: {output}.txt }} }}\n");
    }
    ground.pipeline(&yaml, &[forward()]);
    Flow::run(&ground, &[], &numbered(5_000)).exits(0);
    for output in outputs {
        assert_eq!(sorted(&ground.read(&format!("{output}.txt"))), (0..5_000).collect::<Vec<_>>(), "{output}");
    }
    assert_eq!(ground.read("d.txt"), numbered(5_000));
}

/// The example pipelines in the reference's form, unchanged, with functions where they point to.
/// The sender sends a thousandth of what it is given.
#[test]
fn the_reference_s_files_run_unchanged() {
    let ground = Ground::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/pipelines");
    for entry in fs::read_dir(examples).expect("the examples").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        ground.write(&format!("examples/pipelines/{name}"), fs::read(entry.path()).expect("an example"));
    }
    let messages = "(call $number_arg (i32.const 0))";
    let send = guest("send").replace(messages, &format!("(i64.div_u {messages} (i64.const 1000))"));
    ground.write("target/functions/rust/send.wasm", send);
    ground.write("target/functions/rust/receive.wasm", guest("receive"));
    ground.write("target/functions/rust/receive_checksum.wasm", guest("checksum"));
    for (name, functions) in [("functions", 2), ("functions_chk", 2), ("functions_concur", 3)] {
        let pipeline = format!("examples/pipelines/{name}.yml");
        ground.run(["flow", "check", &pipeline]).exits(0);
        let mut command = ground.command(["flow", "run", &pipeline]);
        let output = command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).output().expect("it starts");
        let done = common::Done::from(output).exits(0);
        let says = |text: &str| assert!(done.stderr.contains(text), "{name}: `{text}` is not in: {}", done.stderr);
        says("Sent 1001 messages in ");
        says("Message size 10000 speed ");
        says("functions received 1,001 messages and sent 1,001");
        if functions == 2 {
            says("Processed 1001 messages in ");
        }
    }
    ground.assert_clean();
}

/// A sender of `send` with a slow reader, over a topic of 64 KiB.
fn overflowing(overflow: &str) -> String {
    format!(
        "functions:
  - {{ name: send, module: {{ path: send.wat }}, args: [3000, 1000], output: {{ topics: [in] }} }}
  - {{ name: slow, module: {{ path: slow.wat }}, input: {{ topic: in }}, output: {{ topics: [out] }} }}
sinks:
  - {{ name: keep, input: {{ topic: out }}, file: {{ path: out.txt }} }}
topics:
  in: {{ capacity: 64KiB, max_message: 4KiB, overflow: {overflow} }}
"
    )
}

#[test]
fn what_overflows_waits_or_is_dropped_and_counted() {
    for overflow in ["block", "drop-oldest", "drop-new"] {
        let ground = Ground::new();
        ground.pipeline(&overflowing(overflow), &[("send.wat", guest("send")), ("slow.wat", slow(1))]);
        let done = Flow::run(&ground, &["--json"], "").exits(0);
        let status = done.json();
        assert_eq!(count(&status, "send", "sent_messages"), 3001, "{overflow}");
        assert_eq!(status["mode"], "finished");
        let (received, dropped) = (count(&status, "slow", "received_messages"), count(&status, "send", "dropped"));
        assert_eq!(received + dropped, 3001, "{overflow}");
        assert_eq!(connector(&status, "keep", "received_messages"), received, "{overflow}");
        assert_eq!(dropped == 0, overflow == "block", "{overflow}");
        // The last message is marked F. It is the newest.
        let kept = fs::read(ground.path("out.txt")).expect("the sink's file");
        let has_last = kept.len() > 1000 && kept[kept.len() - 1001] == b'F';
        // Where new messages are dropped it may be one of them.
        assert!(has_last || overflow == "drop-new", "{overflow}");
        let edge = |key: &str| status["edges"][0][key].as_u64().expect("a count");
        assert_eq!(
            (edge("dropped"), edge("dropped_new")),
            if overflow == "drop-new" { (0, dropped) } else { (dropped, 0) }
        );
    }
}

/// A function that is blocked in the midst of a batch: what it has keeps no space from newer
/// messages.
#[test]
fn a_function_that_is_blocked_gets_the_newest_messages_then() {
    let ground = Ground::new();
    let topics = "topics:
  in: { capacity: 64KiB, max_message: 1KiB, overflow: drop-oldest }
  out: { capacity: 4KiB, max_message: 1KiB }
";
    let yaml = forwarding("").replace("stdout: lines", "file: { path: fifo }") + topics;
    ground.pipeline(&yaml, &[forward()]);
    mkfifoat(CWD, ground.path("fifo"), Mode::RUSR | Mode::WUSR).expect("a named pipe");
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    let mut fifo = OpenOptions::new().read(true).custom_flags(nonblocking).open(ground.path("fifo")).expect("it opens");
    fcntl_setpipe_size(&fifo, 4096).expect("a small pipe");

    let mut flow = Flow::start(&ground, &[]);
    flow.wait_until_running();
    // They fit into the first topic, but not into the pipe and the second one.
    let (first, all) = (4_000, 100_000);
    let lines = numbered(all);
    let (before, after) = lines.split_at(numbered(first).len());
    flow.feed(before);
    flow.wait_for("the function to be blocked", |status| {
        let edges = status["edges"].as_array().expect("edges");
        let out = edges.iter().find(|edge| edge["topic"] == "out").expect("the topic");
        (out["depth_bytes"] == out["capacity_bytes"]).then_some(())
    });
    flow.feed(after);
    flow.close_stdin();
    flow.wait_for("the source to have sent", |status| {
        (connector(status, "lines", "sent_messages") == all as u64).then_some(())
    });
    let mut kept = String::new();
    wait_for("the end of what comes out", || fifo.read_to_string(&mut kept).is_ok().then_some(()));
    flow.end().exits(0);

    let kept: Vec<usize> = kept.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(kept.is_sorted_by(|a, b| a < b), "each comes once and in order");
    assert_eq!(kept[0], 0);
    let newest = kept.iter().rev().zip((0..all).rev()).take_while(|(kept, number)| *kept == number).count();
    // The topic holds 4,096 of them, and is never less than seven eighths full once it was full.
    assert!(newest >= 3_500 && kept.len() < 20_000, "{newest} of {}", kept.len());
    ground.assert_clean();
}

#[test]
fn messages_that_are_too_long_are_refused() {
    let ground = Ground::new();
    // Sends its message once more with a length that no topic takes, and traps unless it is refused with result 2.
    let on_message =
        "(if (i32.ne (call $send (i32.const 0) (i32.const 0) (i32.const 2000)) (i32.const 2)) (then (unreachable)))
                      (call $pass_on (local.get $at) (local.get $len))";
    let yaml = forwarding("") + "topics:\n  in: { max_message: 1KiB }\n  out: { max_message: 1KiB }\n";
    ground.pipeline(&yaml, &[("forward.wat", each_message("", on_message))]);
    let lines = format!("{}\nshort\n{}\n{}\nend", "x".repeat(1024), "y".repeat(1025), "z".repeat(300_000));
    let done = Flow::run(&ground, &[], &lines).exits(0);
    assert_eq!(done.stdout, format!("{}\nshort\nend\n", "x".repeat(1024)));
    let warnings = done.stderr.matches("longer than the `max_message` of its topic").count();
    assert_eq!(warnings, 2, "{}", done.stderr);
}

#[test]
fn files_and_timers_feed_a_pipeline_and_files_keep_what_comes_out() {
    let ground = Ground::new();
    let yaml = "functions:
  - { name: forward, module: { path: forward.wat }, input: { topic: in }, output: { topics: [out] } }
sources:
  - { name: lines, file: { path: lines.txt }, output: { topics: [in] } }
  - { name: whole, file: { path: whole.txt, framing: whole }, output: { topics: [in] } }
  - { name: clock, timer: { every: 1ms, count: 25 }, output: { topics: [ticks] } }
sinks:
  - { name: added, input: { topic: out, queue: each }, file: { path: added.txt } }
  - { name: new, input: { topic: out, queue: each }, file: { path: new.txt, append: false, layout: raw } }
  - { name: ticks, input: { topic: ticks }, file: { path: ticks.txt } }
";
    ground.pipeline(yaml, &[forward()]);
    ground.write("lines.txt", "a\nb\n\nc");
    ground.write("whole.txt", "W1\nW2\n");
    let lengths = |_| {
        Flow::run(&ground, &[], "").exits(0);
        (ground.read("added.txt").len(), ground.read("new.txt").len(), ground.read("ticks.txt").lines().count())
    };
    // The lines `a`, `b`, an empty one and `c`, and the other file as one message.
    assert_eq!([1, 2].map(lengths), [(14, 9, 25), (28, 9, 50)]);
    assert_eq!(ground.read("ticks.txt"), numbered(25).repeat(2));
    let mut kept: Vec<char> = ground.read("new.txt").chars().collect();
    kept.sort_unstable();
    assert_eq!(kept.into_iter().collect::<String>(), "\n\n12WWabc");
}

#[test]
fn a_new_pipeline_runs_at_once() {
    let ground = Ground::new();
    ground.run(["flow", "new", "."]).exits(2);
    ground.run(["flow", "new", "first"]).exits(0);
    let mut command = ground.command(["flow", "run", "first/pipeline.yml"]);
    let output = command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).output().expect("it starts");
    let done = common::Done::from(output).exits(0);
    assert_eq!(done.stdout.lines().count(), 10, "{}", done.stdout);
    assert!(done.stdout.lines().next().is_some_and(|line| line.contains('0')), "{}", done.stdout);
    ground.assert_clean();
}

#[test]
fn a_pipeline_that_cannot_run_says_why() {
    let ground = Ground::new();
    let fails = |yaml: &str, says: &str| {
        ground.pipeline(yaml, &[forward()]);
        let done = Flow::run(&ground, &[], "").exits(2);
        assert!(done.stderr.contains(says), "`{says}` is not in: {}", done.stderr);
    };
    fails(&forwarding(", argz: []"), "unknown key `argz`");
    fails(&forwarding("").replace("forward.wat", "missing.wat"), "missing.wat");
    fails(&forwarding("").replace("stdin: lines", "file: { path: gone.txt }"), "cannot read");
    fails(&forwarding("").replace("stdout: lines", "file: { path: no/such/folder }"), "cannot write");
    ground.assert_clean();
}

#[test]
fn the_first_ctrl_c_works_off_what_was_sent() {
    let ground = Ground::new();
    ground.pipeline(&forwarding(""), &[("forward.wat", slow(1))]);
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_until_running();
    flow.feed(&numbered(500));
    flow.wait_for("the source to have sent", |status| {
        (connector(status, "lines", "sent_messages") == 500).then_some(())
    });
    flow.signal(Signal::INT);
    // Its stdin is still open: what comes now is too late.
    let done = flow.end().exits(0);
    assert_eq!(done.stdout, numbered(500));
    assert!(done.stderr.contains("draining; once more stops at once"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn the_second_ctrl_c_stops_at_once() {
    let ground = Ground::new();
    ground.pipeline(&forwarding(""), &[("forward.wat", slow(3_000))]);
    let mut flow = Flow::start(&ground, &[]);
    let status = flow.wait_until_running();
    flow.feed(&numbered(100));
    flow.wait_for("messages in flight", |status| (connector(status, "lines", "sent_messages") == 100).then_some(()));
    flow.signal(Signal::INT);
    flow.wait_for_log("draining");
    flow.signal(Signal::INT);
    flow.end().exits(130);
    let host = pid(&status, "forward").expect("its process");
    assert!(test_kill_process(host).is_err(), "its host is gone");
    ground.assert_clean();
}

#[test]
fn a_sender_ends_at_the_first_ctrl_c() {
    let ground = Ground::new();
    let yaml = "functions:
  - { name: send, module: { path: send.wat }, args: [4000000000, 10], output: { topics: [in] } }
  - { name: receive, module: { path: receive.wat }, input: { topic: in } }
";
    ground.pipeline(yaml, &[("send.wat", guest("send")), ("receive.wat", guest("receive"))]);
    let flow = Flow::start(&ground, &["--json"]);
    flow.wait_for("messages", |status| (count(status, "receive", "received_messages") > 10_000).then_some(()));
    flow.signal(Signal::TERM);
    let status = flow.end().exits(0).json();
    assert_eq!(count(&status, "send", "sent_messages"), count(&status, "receive", "received_messages"));
    assert_eq!(function(&status, "send")["phase"], "stopped");
    assert_eq!(function(&status, "receive")["phase"], "finished");
    assert_eq!(status["mode"], "drained");
    ground.assert_clean();
}

#[test]
fn a_pipeline_ends_when_nobody_reads_its_output_any_more() {
    let ground = Ground::new();
    ground.pipeline(&forwarding(""), &[forward()]);
    let program = common::PROGRAM;
    let script = format!("yes | '{program}' flow run pipeline.yml | head -3");
    let mut command = ground.program("sh", ["-c", &script]);
    let child = command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR")).spawn().expect("a shell");
    let done = common::Done::from(child.wait_with_output().expect("its end")).exits(0);
    assert_eq!(done.stdout, "y\ny\ny\n");
    assert!(done.stderr.contains(" lost ("), "what nobody read is counted: {}", done.stderr);
    ground.assert_clean();
}

#[test]
fn the_status_tells_what_a_pipeline_does() {
    let ground = Ground::new();
    ground.pipeline(&forwarding(""), &[forward()]);
    let done = ground.run(["flow", "status", "pipeline-that-does-not-run"]).exits(2);
    assert!(done.stderr.contains("no pipeline `pipeline-that-does-not-run` runs here"), "{}", done.stderr);
    let mut flow = Flow::start(&ground, &[]);
    flow.wait_until_running();
    flow.feed(&numbered(1_000));
    let status = flow.wait_for("all to come out", |status| {
        // A function counts a message after it has passed it on.
        let forwarded = &function(status, "forward")["received_messages"];
        (connector(status, "print", "received_messages") == 1_000 && *forwarded == 1_000).then(|| status.clone())
    });
    assert_eq!(status["pipeline"], "pipeline");
    assert_eq!(status["mode"], "running");
    let forward = function(&status, "forward");
    assert_eq!((&forward["restarts"], &forward["traps"]), (&0.into(), &0.into()));
    assert!(forward["start_seconds"].as_f64().is_some_and(|time| time > 0.0));
    assert!(forward["memory_bytes"].as_u64().is_some_and(|bytes| bytes >= 65536));
    assert!(forward["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20));
    let pid = flow.pid().as_raw_nonzero().to_string();
    let table = ground.run(["flow", "status", &pid]).exits(0).stdout;
    assert!(table.contains("forward") && table.contains("running"), "{table}");
    flow.close_stdin();
    flow.end().exits(0);
    wait_for("its socket to go", || ground.run(["flow", "status", &pid]).stderr.contains("no pipeline").then_some(()));
}
