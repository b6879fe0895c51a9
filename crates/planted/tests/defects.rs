//! Every planted defect is found: in every scope, every pattern and every instance, with the right
//! error text and exit code.
//!
//! The windows of the planted entries are numbers of messages, so the tests do not depend on the
//! speed of the machine.

mod common;

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use common::{Case, Caught, MARKER, Run, bench, bench_rounds, carrying};

const PROGRAM: &str = env!("CARGO_BIN_EXE_estafette-planted");
const SCOPES: [&str; 5] = ["task", "thread", "process", "network", "sandbox"];
const ALL_PATTERNS: &str = "ping-pong,stream,fan-in";

/// Locked by runs that use the processor, because spinning mechanisms are slow beside other runs.
/// Runs that mostly sleep do not lock it.
static CORES: Mutex<()> = Mutex::new(());

/// Runs every mechanism with this defect, and checks that `right` accepts the outcome of each
/// instance of each case.
fn all_catch(defect: &str, code: i32, arguments: &[&str], right: impl Fn(&Caught) -> bool) {
    let run = run_planted(&format!("*/{defect}"), arguments);
    check_all(&[run], code, right);
}

/// As `all_catch`, for a defect with which a mechanism mostly sleeps: the scopes run at the same
/// time.
fn all_catch_asleep(defect: &str, code: i32, arguments: &[&str], right: impl Fn(&Caught) -> bool) {
    let runs = thread::scope(|threads| {
        let start = |scope| threads.spawn(move || run_planted(&format!("{scope}/{defect}"), arguments));
        SCOPES.map(start).map(|run| run.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    check_all(&runs, code, right);
}

/// Runs the mechanisms whose names match in every pattern. Their windows are numbers of messages. A
/// short `--window` shortens the measurement of the limits.
fn run_planted(mechanisms: &str, arguments: &[&str]) -> Run {
    bench(PROGRAM, &[&[mechanisms, "--pattern", ALL_PATTERNS, "--window", "1ms"], arguments].concat())
}

/// Checks that the runs have every scope, and that `right` accepts each outcome.
fn check_all(runs: &[Run], code: i32, right: impl Fn(&Caught) -> bool) {
    let mut entered: BTreeSet<(String, String)> = BTreeSet::new();
    for run in runs {
        for Case { mechanism, pattern, outcomes } in run.cases() {
            assert!(!outcomes.is_empty(), "{mechanism} was not run in a {pattern}");
            for outcome in &outcomes {
                let caught = outcome.as_ref().is_some_and(&right);
                assert!(caught, "{mechanism} in a {pattern}: {outcome:?}\n{}", run.stderr);
            }
            entered.insert((mechanism.split('/').next().unwrap_or("").to_owned(), pattern));
        }
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert_eq!(run.survivors, Vec::<String>::new());
    }
    let is_entered = |scope: &str, pattern: &str| entered.contains(&(scope.to_owned(), pattern.to_owned()));
    for scope in SCOPES {
        for pattern in ["ping-pong", "stream"] {
            assert!(is_entered(scope, pattern), "{scope} has no {pattern}: {entered:?}");
        }
    }
    assert!(is_entered("task", "fan-in"), "{entered:?}");
}

fn breach(defect: &str, words: &str) {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    all_catch(defect, 4, &["--timeout=60s"], |caught| *caught == Caught::Breach(words.to_owned()));
}

fn failure(caught: &Caught, words: &[&str]) -> bool {
    matches!(caught, Caught::Failure(why) if words.iter().all(|word| why.contains(word)))
}

#[test]
fn verify_finds_a_broken_promise() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let done = Command::new(PROGRAM).args(["verify", "process/drop", "--timeout=60s"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(4), "{stdout}");
    assert!(stdout.contains("1 message lost"), "{stdout}");
}

#[test]
fn a_dropped_message_is_lost() {
    breach("drop", "1 message lost");
}

#[test]
fn a_repeated_message_is_duplicated() {
    breach("duplicate", "1 message duplicated");
}

#[test]
fn a_swapped_message_is_reordered() {
    breach("reorder", "1 message reordered");
}

#[test]
fn a_changed_message_is_damaged_and_ends_the_instance() {
    breach("corrupt", "1 message damaged");
}

#[test]
fn a_mechanism_that_changes_every_message_is_found_out_at_the_first() {
    breach("corruptall", "1 message damaged");
}

#[test]
fn a_mechanism_that_never_asks_for_the_bytes_to_send_damages_them() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The receiver sees it at the first message, or the sender after its first batch.
    all_catch(
        "unfilled",
        4,
        &[],
        |caught| matches!(caught, Caught::Breach(words) if words.contains(" message") && words.ends_with(" damaged")),
    );
}

#[test]
fn a_message_that_is_shown_in_part_is_damaged() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let run = bench(PROGRAM, &["process/partial", "--pattern", "ping-pong,stream", "--size", "64", "--window", "20ms"]);
    let cases = run.cases();
    assert_eq!(cases.len(), 4, "two patterns, and the controls");
    for outcome in cases.iter().flat_map(|case| &case.outcomes) {
        assert_eq!(*outcome, Some(Caught::Breach("1 message damaged".to_owned())), "{}", run.stderr);
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn bodies_that_the_receiver_makes_up_are_damage() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // Of messages that are a tag and nothing else, every one can be made up. That the cheat works there shows that the secret of the
    // bodies is what finds it out elsewhere.
    for (size, caught) in [("64", Some(Caught::Breach("1 message damaged".to_owned()))), ("8", None)] {
        let run = bench(PROGRAM, &["process/cheat", "--pattern", "stream", "--size", size, "--window", "20ms"]);
        let cases = run.cases();
        assert_eq!(cases.len(), 2, "the cheat and its control");
        for outcome in cases.iter().flat_map(|case| &case.outcomes) {
            assert_eq!(*outcome, caught, "{}", run.stderr);
        }
        assert_eq!(
            (run.code, run.survivors),
            (Some(if caught.is_some() { 4 } else { 0 }), Vec::new()),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn a_message_that_both_sides_of_a_ping_pong_wait_for_is_lost() {
    all_catch_asleep("swallow", 4, &["--timeout", "60s"], |caught| {
        *caught == Caught::Breach("1 message lost".to_owned())
    });
}

#[test]
fn a_stream_that_ends_without_its_end_mark_has_lost_messages() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let run = bench(PROGRAM, &["*/swallowall", "--pattern", "stream", "--window", "1ms"]);
    let cases = run.cases();
    assert!(cases.len() >= 8, "{}", run.stderr);
    for Case { mechanism, outcomes, .. } in &cases {
        for outcome in outcomes {
            assert_eq!(*outcome, Some(Caught::Breach("251 messages lost".to_owned())), "{mechanism}: {}", run.stderr);
        }
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn interleaved_messages_of_two_writers_are_damaged_and_end_the_instance() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The damage occurs before the window opens, while messages still arrive.
    let run = bench(
        PROGRAM,
        &["network/mix", "--pattern", "writers", "--producers", "2,8", "--size", "64", "--window", "20ms"],
    );
    let cases = run.cases();
    assert_eq!(cases.len(), 4, "two numbers of writers, and the controls");
    for outcome in cases.iter().flat_map(|case| &case.outcomes) {
        assert_eq!(*outcome, Some(Caught::Breach("1 message damaged".to_owned())), "{}", run.stderr);
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn a_message_missing_in_a_pipeline_is_lost() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let patterns = "send-receive,send-checksum,send-compete";
    let run = bench(PROGRAM, &["sandbox/short", "--pattern", patterns, "--size", "1000", "--window", "1ms"]);
    let cases = run.cases();
    let played: BTreeSet<_> = cases.iter().map(|case| case.pattern.as_str()).collect();
    assert_eq!(played.len(), 3, "{played:?}");
    for outcome in cases.iter().flat_map(|case| &case.outcomes) {
        assert_eq!(*outcome, Some(Caught::Breach("1 message lost".to_owned())), "{}", run.stderr);
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn a_delayed_message_is_late() {
    // Without slices: a sleep continues while a mechanism is stopped, and that time does not count.
    all_catch_asleep("late", 2, &["--slice", "off", "--timeout", "60s"], |caught| {
        failure(caught, &["late: ", " saw no message for ", " s, where the limit is 1 s"])
    });
}

#[test]
fn a_mechanism_that_stops_sending_times_out() {
    all_catch_asleep("hang", 2, &["--timeout", "500ms"], |caught| failure(caught, &["did not finish in time: "]));
}

#[test]
fn a_mechanism_that_hangs_costs_its_timeout_once_and_not_in_each_round() {
    // In slices too: the mechanism and its control are one heat.
    let run = bench_rounds(
        PROGRAM,
        3,
        &["process/hang", "thread/hang", "--pattern=ping-pong", "--timeout=500ms", "--window=1ms"],
    );
    let cases = run.cases();
    assert!(cases.len() >= 4, "two mechanisms, and the controls");
    for Case { mechanism, outcomes, .. } in &cases {
        let [first, later @ ..] = &**outcomes else { panic!("{mechanism} was not run") };
        let has_failed = |outcome: &Option<Caught>, why| outcome.as_ref().is_some_and(|caught| failure(caught, &[why]));
        assert!(has_failed(first, "did not finish in time: "), "{mechanism}: {first:?}");
        assert_eq!(later.len(), 2, "{mechanism}: {outcomes:?}");
        let why = "not started again: it did not finish in round 1";
        assert!(later.iter().all(|outcome| has_failed(outcome, why)), "{mechanism}: {outcomes:?}");
    }
    assert_eq!((run.code, run.survivors), (Some(2), Vec::new()), "{}", run.stderr);
}

#[test]
fn a_mechanism_of_which_no_instance_counts_is_no_success() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // An open loop in one thread: while the receiver keeps the thread, the sender cannot send when a message is due.
    let open_loop = ["--pattern=stream", "--payload=u64", "--load=1k/s", "--runtime=tokio-current"];
    let what = [&["task/busy", "--window=300ms", "--timeout=60s"], &open_loop[..]].concat();
    let run = bench_rounds(PROGRAM, 2, &what);
    let cases = run.cases();
    // Two instances, or more where one was repeated because another program took the processor.
    let none_counts = |outcomes: &[Option<Caught>]| outcomes.len() >= 2 && outcomes.iter().all(Option::is_none);
    assert!(!cases.is_empty() && cases.iter().all(|case| none_counts(&case.outcomes)), "{}", run.stderr);
    assert_eq!((run.code, run.survivors), (Some(2), Vec::new()), "{}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("warning: task/busy in ")).collect();
    // That messages were late, or on a busy machine also that the hypervisor or other programs took the time.
    let has_reason = |line: &&str| line.contains(": all instances (") && line.contains(" were discarded: ");
    assert!(!lines.is_empty() && lines.iter().all(has_reason), "{}", run.stderr);

    // Nor in a single round.
    let run = bench(PROGRAM, &what);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains(": all instances ("), "{}", run.stderr);
}

#[test]
fn a_mechanism_that_aborts_has_crashed() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The crashed child is named first, even if the error of another child arrived before.
    all_catch("crash", 2, &[], |caught| {
        let died = |role: &str| {
            let Caught::Failure(why) = caught else { return false };
            why.starts_with(&format!("{role} was killed by signal 6"))
        };
        died("all") || died("producer:0")
    });
}

#[test]
fn a_mechanism_that_aborts_while_its_capacity_is_probed_does_not_affect_others() {
    let list = Command::new(PROGRAM).args(["list", "task/*", "--json"]).output().expect("the command starts");
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    let listed: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let capacity = |name| {
        listed
            .as_array()
            .and_then(|all| all.iter().find(|one| one["name"] == name))
            .map(|one| &one["effective_capacity"])
    };
    assert_eq!(capacity("task/crash"), Some(&serde_json::Value::Null));
    assert_eq!(capacity("task/leak"), Some(&serde_json::Value::from(1024)), "the mechanism after it");
}

#[test]
fn a_process_that_is_left_running_is_found_and_killed() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The `sleep 1000` is in its own session. `all_catch` checks for every defect that no process
    // survives.
    all_catch("leak", 2, &[], |caught| failure(caught, &["left 1 process(es) running; they have been ended"]));
}

#[test]
fn a_closed_stdout_does_not_change_the_exit_code() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let (reader, stdout) = std::io::pipe().expect("a pipe");
    drop(reader);
    let out = tempfile::TempDir::new().expect("a temporary folder");
    let mut command = Command::new(PROGRAM);
    command
        .args(["bench", "process/drop", "--pattern=ping-pong", "--rounds=1", "--window=1ms", "--out"])
        .arg(out.path());
    let status = command.stdout(stdout).stderr(Stdio::null()).status().expect("the command starts");
    assert_eq!(status.code(), Some(4));
}

#[test]
fn carrying_finds_a_surviving_process() {
    let mut sleeper = Command::new("sleep").arg("1000").env(MARKER, "a survivor").spawn().expect("sleep starts");
    // Before `exec` the new process has the environment of the test.
    let seen = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        carrying("a survivor") == [format!("{} sleep", sleeper.id())]
    });
    sleeper.kill().expect("the process can be killed");
    sleeper.wait().expect("the process ends");
    assert!(seen && carrying("a survivor").is_empty());
}
