//! Every planted defect is caught: at every distance, in every pattern, in every instance, with the right words and the
//! right exit code. And a healthy mechanism is not accused.
//!
//! The planted entries are measured by count, so nothing here depends on how fast the machine is.

mod common;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use common::{Case, Caught, MARKER, bench, carrying};

const PROGRAM: &str = env!("CARGO_BIN_EXE_estafette-planted");
const SCOPES: [&str; 5] = ["task", "thread", "process", "network", "sandbox"];
const ALL_PATTERNS: &str = "ping-pong,stream,fan-in";

/// Mechanisms that spin are slow beside others. Runs that sleep most of the time do not take part.
static CORES: Mutex<()> = Mutex::new(());

/// Runs every mechanism with this defect, and checks that each instance of each case was caught as `right` says.
fn all_catch(defect: &str, code: i32, arguments: &[&str], right: impl Fn(&Caught) -> bool) {
    let everywhere = format!("*/{defect}");
    let mut all = vec![everywhere.as_str(), "--pattern", ALL_PATTERNS, "--window", "20ms"];
    all.extend(arguments);
    let run = bench(PROGRAM, &all);
    let cases = run.cases();
    for Case { mechanism, pattern, outcomes } in &cases {
        assert!(!outcomes.is_empty(), "{mechanism} entered a {pattern} and was not run");
        for outcome in outcomes {
            let caught = outcome.as_ref().is_some_and(&right);
            assert!(caught, "{mechanism} in a {pattern}: {outcome:?}\n{}", run.stderr);
        }
    }
    let entered: BTreeSet<_> =
        cases.iter().map(|case| (case.mechanism.split('/').next().unwrap_or(""), case.pattern.as_str())).collect();
    for scope in SCOPES {
        for pattern in ["ping-pong", "stream"] {
            assert!(entered.contains(&(scope, pattern)), "{scope} has no {pattern}: {entered:?}");
        }
    }
    assert!(entered.contains(&("task", "fan-in")), "{entered:?}");
    assert_eq!(run.code, Some(code), "{}", run.stderr);
    assert_eq!(run.survivors, Vec::<String>::new());
}

fn breach(defect: &str, words: &str) {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    all_catch(defect, 4, &[], |caught| *caught == Caught::Breach(words.to_owned()));
}

fn failure(caught: &Caught, words: &[&str]) -> bool {
    matches!(caught, Caught::Failure(why) if words.iter().all(|word| why.contains(word)))
}

#[test]
fn a_dropped_message_is_lost() {
    breach("drop", "messages 1 lost");
}

#[test]
fn a_repeated_message_is_duplicated() {
    breach("duplicate", "messages 1 duplicated");
}

#[test]
fn a_swapped_message_is_reordered() {
    breach("reorder", "messages 1 reordered");
}

#[test]
fn a_changed_message_is_damaged_and_missing() {
    breach("corrupt", "messages 1 lost, 1 damaged");
}

#[test]
fn messages_of_two_writers_that_get_into_each_other_are_damaged_and_end_the_instance() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // It happens before the window opens, and with messages still coming.
    let run = bench(
        PROGRAM,
        &["network/mix", "--pattern", "writers", "--producers", "2,8", "--size", "64", "--window", "20ms"],
    );
    let cases = run.cases();
    assert_eq!(cases.len(), 4, "two numbers of writers, and the controls");
    for outcome in cases.iter().flat_map(|case| &case.outcomes) {
        assert_eq!(*outcome, Some(Caught::Breach("messages 1 damaged".to_owned())), "{}", run.stderr);
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn a_message_that_a_pipeline_loses_is_lost() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let patterns = "send-receive,send-checksum,send-compete";
    let run = bench(PROGRAM, &["sandbox/short", "--pattern", patterns, "--size", "1000", "--window", "1ms"]);
    let cases = run.cases();
    let played: BTreeSet<_> = cases.iter().map(|case| case.pattern.as_str()).collect();
    assert_eq!(played.len(), 3, "{played:?}");
    for outcome in cases.iter().flat_map(|case| &case.outcomes) {
        assert_eq!(*outcome, Some(Caught::Breach("messages 1 lost".to_owned())), "{}", run.stderr);
    }
    assert_eq!((run.code, run.survivors), (Some(4), Vec::new()), "{}", run.stderr);
}

#[test]
fn a_message_that_keeps_everybody_waiting_is_late() {
    // In one piece: a sleep goes on while a mechanism is stopped, and is no time of it.
    all_catch("late", 2, &["--slice", "off"], |caught| {
        failure(caught, &["late: ", " saw no message for 1.", " s, where the limit is 1 s"])
    });
}

#[test]
fn a_mechanism_that_stops_is_hung() {
    all_catch("hang", 2, &["--timeout", "500ms"], |caught| failure(caught, &["did not finish in time: "]));
}

#[test]
fn a_mechanism_that_aborts_has_crashed() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The one that died is named first, whoever was heard first.
    all_catch("crash", 2, &[], |caught| {
        let died = |role: &str| {
            let Caught::Failure(why) = caught else { return false };
            why.starts_with(&format!("{role} was killed by signal 6"))
        };
        died("all") || died("producer:0")
    });
}

#[test]
fn a_mechanism_that_aborts_as_its_room_is_tried_takes_no_other_along() {
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
    assert_eq!(capacity("task/leak"), Some(&serde_json::Value::from(1024)), "the one after it");
}

#[test]
fn a_process_that_is_left_behind_is_found_and_ended() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    // The `sleep 1000` is in a session of its own; that none survives is checked for every defect.
    all_catch("leak", 2, &[], |caught| failure(caught, &["left 1 process(es) running; they have been ended"]));
}

#[test]
fn a_reader_that_goes_away_hides_nothing() {
    let _alone = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    let (gone, discarded) = std::io::pipe().expect("a pipe");
    drop(gone);
    let out = tempfile::TempDir::new().expect("a temporary folder");
    let mut command = Command::new(PROGRAM);
    command.args(["bench", "process/drop", "--pattern=ping-pong", "--rounds=1", "--out"]).arg(out.path());
    let status = command.stdout(discarded).stderr(Stdio::null()).status().expect("the command starts");
    assert_eq!(status.code(), Some(4));
}

#[test]
fn a_survivor_would_be_seen() {
    let mut sleeper = Command::new("sleep").arg("1000").env(MARKER, "a survivor").spawn().expect("sleep starts");
    // Until it has become `sleep` it carries the test's own environment.
    let seen = (0..1_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        carrying("a survivor") == [format!("{} sleep", sleeper.id())]
    });
    sleeper.kill().expect("it is ours");
    sleeper.wait().expect("it ends");
    assert!(seen && carrying("a survivor").is_empty());
}
