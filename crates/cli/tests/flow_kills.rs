//! Pipelines whose processes are killed, and receivers that are slower than their senders.

mod common;

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::pipeline::{Flow, count, functions, guest, pid, resident, slow};
use common::{Ground, wait_for};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

/// How often a process of the pipeline is killed.
const KILLS: usize = 200;

/// Two functions one after the other, and two instances that share a copy of the messages. `more`
/// is of each function.
fn pipeline(more: &str) -> String {
    let restart = "restart: { max: 1000000, within: 60min, initial_delay: 1ms, max_delay: 1ms }";
    let function = |name: &str, input: &str, output: &str, own: &str| {
        format!(
            "  - {{ name: {name}, module: {{ path: {name}.wat }}, input: {{ topic: {input} }}, \
             output: {{ topics: [{output}] }}, {restart}{own}{more} }}\n"
        )
    };
    let topic = |name: &str| {
        format!("  {name}: {{ capacity: 256KiB, max_message: 1KiB, delivery: at-least-once, max_deliver: 255 }}\n")
    };
    let functions = function("first", "in, queue: each", "between", "")
        + &function("second", "between", "in-order", "")
        + &function("shared", "in, queue: each", "in-any-order", ", replicas: 2");
    let topics = ["in", "between", "in-order", "in-any-order"].map(topic).concat();
    format!(
        "functions:
{functions}sources:
  - {{ name: lines, stdin: lines, output: {{ topics: [in] }} }}
sinks:
  - {{ name: chain, input: {{ topic: in-order }}, file: {{ path: chain.txt }} }}
  - {{ name: any, input: {{ topic: in-any-order }}, file: {{ path: shared.txt }} }}
topics:
{topics}"
    )
}

/// Writes numbered lines to a pipeline for as long as it is to, and returns how many.
fn feed(mut stdin: impl Write, goes_on: &AtomicBool, fed: &AtomicUsize) -> usize {
    let mut next = 0;
    while goes_on.load(Ordering::Relaxed) {
        let lines: String = (next..next + 200).map(|number| format!("{number:08}\n")).collect();
        if stdin.write_all(lines.as_bytes()).is_err() {
            break;
        }
        next += 200;
        fed.store(next, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
    next
}

/// The processes of all instances. None while one has no process, or does not receive, or was
/// killed and not missed yet.
fn hosts(status: &Value) -> Option<Vec<Pid>> {
    let host = |function: &Value| {
        let is_running = function["phase"] == "running";
        let pid = Pid::from_raw(function["pid"].as_u64().filter(|_| is_running)? as i32)?;
        (!is_gone(pid)).then_some(pid)
    };
    functions(status).iter().map(host).collect()
}

#[test]
fn processes_are_killed_200_times_and_every_message_is_processed() {
    let ground = Ground::new();
    let modules = ["first.wat", "second.wat", "shared.wat"].map(|name| (name, guest("forward")));
    ground.pipeline(&pipeline(""), &modules);
    let mut flow = Flow::start(&ground, &["--json"]);
    flow.wait_until_running();
    let stdin = flow.stdin.take().expect("its stdin");
    let (goes_on, fed) = (AtomicBool::new(true), AtomicUsize::new(0));
    let mut early = 0;
    let (mut descriptors, mut maps) = (Vec::new(), Vec::new());
    let total = thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(stdin, &goes_on, &fed));
        for kill in 0..KILLS {
            // Of each of the four in turn.
            let hosts = flow.wait_for("all to run", hosts);
            let before = fed.load(Ordering::Relaxed);
            // Some of them while it starts or has nothing to do, most of them amid its work.
            kill_process(hosts[kill % hosts.len()], Signal::KILL).expect("it ran a moment ago");
            early += usize::from(before == 0);
            wait_for("more load", || {
                (fed.load(Ordering::Relaxed) > before || flow.stderr().contains("left: ")).then_some(())
            });
            if kill == 20 || kill + 1 == KILLS {
                let hosts = flow.wait_for("all to run", crate::hosts);
                descriptors.push(open_files(flow.pid()));
                maps.push([&hosts[..], &[flow.pid()]].concat().into_iter().map(shared_maps).collect::<Vec<_>>());
            }
        }
        goes_on.store(false, Ordering::Relaxed);
        feeder.join().expect("the feeder")
    });
    assert!(early < KILLS / 2, "it was under load");
    assert!(descriptors[1] <= descriptors[0] + 4, "descriptors of the supervisor: {descriptors:?}");
    assert_eq!(maps[0], maps[1], "the mappings of the hosts and the supervisor");
    let done = flow.end().exits(0);
    let restarts: u64 =
        functions(&done.json()).iter().map(|function| function["restarts"].as_u64().expect("a count")).sum();
    assert_eq!(restarts, KILLS as u64);
    let numbers =
        |file| ground.read(file).lines().map(|line| line.parse::<usize>().expect("a whole line")).collect::<Vec<_>>();
    let shared: BTreeSet<usize> = numbers("shared.txt").into_iter().collect();
    assert_eq!(shared.len(), total, "each at least once");
    // A message may come again, with those behind it; but none comes before all before it have come.
    let mut next = 0;
    for number in numbers("chain.txt") {
        assert!(number <= next, "{number} came before {next}");
        next = next.max(number + 1);
    }
    assert_eq!(next, total);
    ground.assert_clean();
}

fn open_files(process: Pid) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).map_or(0, Iterator::count)
}

/// How many mappings of memory files a process has.
fn shared_maps(process: Pid) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.as_raw_nonzero())).unwrap_or_default();
    maps.lines().filter(|line| line.contains("/memfd:estafette")).count()
}

#[test]
fn hosts_do_not_outlive_their_supervisor() {
    for isolation in ["process", "thread"] {
        let ground = Ground::new();
        let (forward, endless) = (guest("forward"), guest("faulty/loop"));
        let modules = [("first.wat", forward.clone()), ("second.wat", endless), ("shared.wat", forward)];
        ground.pipeline(&pipeline(&format!(", isolation: {isolation}, limits: {{ call: 60min }}")), &modules);
        let mut flow = Flow::start(&ground, &[]);
        let hosts = hosts(&flow.wait_until_running()).expect("all run");
        flow.feed(&"line\n".repeat(1_000));
        flow.wait_for("an endless loop", |status| (count(status, "second", "calls") > 0).then_some(()));
        flow.signal(Signal::KILL);
        wait_for("the hosts to be gone", || hosts.iter().all(|host| is_gone(*host)).then_some(()));
        drop(flow);
        ground.assert_clean();
    }
}

/// Whether a process has ended, be it that nobody has asked for its status.
fn is_gone(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(process).is_err() || stat.contains(") Z ")
}

/// How long the receiver is slower: the test of 60 seconds is run by `ESTAFETTE_SLOW_SECONDS=60`.
fn slow_seconds() -> u64 {
    std::env::var("ESTAFETTE_SLOW_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

#[test]
fn a_slow_receiver_slows_its_sender_and_memory_stays_flat() {
    let ground = Ground::new();
    // About 800 messages a second; the sender alone is a hundred times as fast.
    let messages = 800 * slow_seconds();
    let yaml = format!(
        "functions:
  - {{ name: send, module: {{ path: send.wat }}, args: [{messages}, 10000], output: {{ topics: [in] }} }}
  - {{ name: slow, module: {{ path: slow.wat }}, input: {{ topic: in }}, output: {{ topics: [out] }} }}
sinks:
  - {{ name: keep, input: {{ topic: out }}, file: {{ path: /dev/null, layout: raw }} }}
topics:
  in: {{ capacity: 1MiB }}
  out: {{ capacity: 1MiB }}
"
    );
    ground.pipeline(&yaml, &[("send.wat", guest("send")), ("slow.wat", slow(1))]);
    let mut flow = Flow::start(&ground, &["--json"]);
    // Once the rings have been filled, all memory there is has been touched.
    let full = flow
        .wait_for("a full ring", |status| (count(status, "slow", "received_messages") > 400).then(|| status.clone()));
    let processes = ["send", "slow"].map(|name| pid(&full, name).expect("its process"));
    let all = [processes[0], processes[1], flow.pid()];
    let first = all.map(|process| resident(process).expect("it runs"));
    let mut highest = first;
    let mut samples = 0;
    let (mut started, mut sent) = (false, 0);
    while !flow.has_ended() {
        if let Some(status) = flow.try_status() {
            let waiting =
                count(&status, "send", "sent_messages").saturating_sub(count(&status, "slow", "received_messages"));
            // The messages in the ring, those in the receiver, and a batch that is being sent.
            assert!(waiting <= 250, "{waiting} messages are in flight");
            samples += usize::from(count(&status, "send", "sent_messages") > sent && started);
            (started, sent) = (true, count(&status, "send", "sent_messages"));
        }
        for (highest, process) in highest.iter_mut().zip(all) {
            *highest = (*highest).max(resident(process).unwrap_or(0));
        }
        assert!(samples < 1_000_000);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(samples > 2, "the sender went on, slowly");
    for (first, highest) in first.iter().zip(highest) {
        assert!(highest < first + (4 << 20), "{} KiB grew to {} KiB", first >> 10, highest >> 10);
    }
    let status = flow.end().exits(0).json();
    assert_eq!(count(&status, "slow", "received_messages"), messages + 1);
    assert_eq!(count(&status, "slow", "sent_messages"), messages + 1);
    eprintln!(
        "resident KiB, at first and at most: {:?} {:?}",
        first.map(|bytes| bytes >> 10),
        highest.map(|bytes| bytes >> 10)
    );
    ground.assert_clean();
}
