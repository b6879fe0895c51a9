//! Shared code of the tests of planted defects: runs the command in a temporary directory and finds
//! processes that it leaves.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use estafette_measure::breach::Breach;
use serde_json::Value;
use tempfile::TempDir;

/// The environment variable that marks every process that a run starts, and all their descendants.
pub(crate) const MARKER: &str = "ESTAFETTE_TEST_RUN";

/// A finished run.
pub(crate) struct Run {
    /// The exit code. `None` if it was killed.
    pub(crate) code: Option<i32>,
    /// Its output on stderr.
    pub(crate) stderr: String,
    /// The record it printed.
    pub(crate) record: Value,
    /// Processes of the run that still existed after its end.
    pub(crate) survivors: Vec<String>,
}

/// The outcomes of the instances of one case.
pub(crate) struct Case {
    /// `scope/name`.
    pub(crate) mechanism: String,
    /// `ping-pong`, `stream` or `fan-in`.
    pub(crate) pattern: String,
    /// The defect found in each instance. `None` if the instance had no defect.
    pub(crate) outcomes: Vec<Option<Caught>>,
}

/// A defect that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Caught {
    /// The mechanism broke a promise.
    Breach(String),
    /// The instance failed.
    Failure(String),
}

/// Runs `bench` with these arguments for one round and reads the record.
pub(crate) fn bench(program: &str, arguments: &[&str]) -> Run {
    bench_rounds(program, 1, arguments)
}

/// Runs `bench` with these arguments for some rounds and reads the record.
pub(crate) fn bench_rounds(program: &str, rounds: usize, arguments: &[&str]) -> Run {
    let ground = TempDir::new().expect("a temporary folder");
    let tmp = ground.path().join("tmp");
    fs::create_dir(&tmp).expect("a folder in it");
    let marker = ground.path().display().to_string();
    let output = Command::new(program)
        .args(["bench", "--rounds", &rounds.to_string(), "--json", "--out"])
        .arg(ground.path().join("out"))
        .args(arguments)
        .env(MARKER, &marker)
        .env("TMPDIR", &tmp)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let survivors = carrying(&marker);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("no record on stdout ({error}), {}: {stderr}", output.status));
    assert!(!stderr.contains("panicked"), "{stderr}");
    let left: Vec<_> = fs::read_dir(&tmp).expect("its temporary folder").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    Run { code: output.status.code(), stderr, record, survivors }
}

/// The running processes with this marker in their environment, as process id and name.
pub(crate) fn carrying(marker: &str) -> Vec<String> {
    let wanted = format!("{MARKER}={marker}");
    let carries = |process: &fs::DirEntry| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let named = |process: fs::DirEntry| {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        format!("{} {}", process.file_name().to_string_lossy(), name.trim())
    };
    fs::read_dir("/proc").expect("/proc").flatten().filter(carries).map(named).collect()
}

impl Run {
    /// The cases of the run with the outcomes of their instances.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut outcomes: BTreeMap<u64, Vec<Option<Caught>>> = BTreeMap::new();
        for instance in list(&self.record["instances"]) {
            let outcome = &instance["outcome"];
            let caught = match (&outcome["failed"]["why"], &outcome["measured"]["breach"]) {
                (Value::String(why), _) => Some(Caught::Failure(why.clone())),
                (_, Value::Null) => None,
                (_, breach) => {
                    let breach: Breach = serde_json::from_value(breach.clone()).expect("the faults of a breach");
                    Some(Caught::Breach(breach.to_string()))
                }
            };
            let entrant = instance["entrant"].as_u64().expect("an instance names its entrant");
            outcomes.entry(entrant).or_default().push(caught);
        }
        let cases = list(&self.record["entrants"]).iter().zip(0..).map(|(entrant, at)| Case {
            mechanism: text(&entrant["case"]["mechanism"]),
            pattern: text(&entrant["case"]["cell"]["pattern"]),
            outcomes: outcomes.remove(&at).unwrap_or_default(),
        });
        cases.collect()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list in the record")
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text in the record").to_owned()
}
