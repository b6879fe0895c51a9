//! What the tests of the command share: ground of its own for each run, and the proof that nothing
//! is left on it.

// Each test program uses its part of this.
#![allow(dead_code)]

pub(crate) mod page;
pub(crate) mod pipeline;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The command under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_estafette");
/// The variable by which every process that a run started, and all they started, differ from
/// others.
const MARKER: &str = "ESTAFETTE_TEST_RUN";
/// For what is only a matter of time, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// How often a run is tried that the machine may disturb.
const RUNS: usize = 5;
/// The longest window of `bench`.
const MAX_WINDOW_MS: u32 = 60_000;
/// What a run says whose windows saw no message, or of which no instance counts, because the
/// machine was disturbed.
const SHORT_WINDOW: [&str; 4] = [
    "choose a longer --window",
    "needs a longer --window",
    "no message arrived, while other processes used",
    ": all instances (",
];
/// What a run says whose processes were stopped for seconds, because the machine was disturbed.
const STOPPED: [&str; 3] = [" saw no message for ", " reported but did not exit", "did not open its ends in time"];

/// Whether a disturbed machine can be the cause of what a run says.
pub(crate) fn is_disturbed(stderr: &str) -> bool {
    if stderr.contains("failed verification") {
        return false;
    }
    contains_any(stderr, &SHORT_WINDOW) || contains_any(stderr, &STOPPED)
}

/// Runs again, up to [`RUNS`] times, until the machine has not disturbed a run. Returns the last
/// one.
pub(crate) fn undisturbed<T>(mut run: impl FnMut() -> T, is_undisturbed: impl Fn(&T) -> bool) -> T {
    for _ in 1..RUNS {
        let done = run();
        if is_undisturbed(&done) {
            return done;
        }
    }
    run()
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|words| text.contains(words))
}

/// The ground of one test: a folder for temporary files, one for records, and a marker in the
/// environment.
pub(crate) struct Ground {
    folder: TempDir,
    /// What had a name before: shared memory, message queues, semaphores.
    named: BTreeSet<String>,
}

impl Ground {
    pub(crate) fn new() -> Ground {
        let folder = TempDir::new().expect("a temporary folder");
        fs::create_dir(folder.path().join("tmp")).expect("a folder in it");
        Ground { folder, named: named() }
    }

    /// `TMPDIR` of its runs.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// A file or folder beside it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command on this ground, its records in the folder `out`.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        self.program(PROGRAM, arguments)
    }

    /// A program on this ground.
    pub(crate) fn program<S: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .envs([self.marker()])
            .env("TMPDIR", self.tmp())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The variable that its processes have in their environment, and its value.
    pub(crate) fn marker(&self) -> (&'static str, String) {
        (MARKER, self.folder.path().display().to_string())
    }

    /// Runs the command to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Done {
        Done::from(self.command(arguments).output().expect("the command starts"))
    }

    /// Runs `bench` with records in the folder `out`, and all must be well. A run that the machine
    /// disturbed is repeated, with a longer window if the error asks for one.
    #[track_caller]
    pub(crate) fn bench(&self, window_ms: u32, arguments: &[&str]) -> Done {
        let mut window_ms = window_ms;
        for _ in 1..RUNS {
            let done = self.bench_once(window_ms, arguments);
            if done.status.code() != Some(2) || !is_disturbed(&done.stderr) {
                return done.exits(0);
            }
            eprintln!("again, because the machine was disturbed: {}", done.stderr);
            self.remove_records();
            if contains_any(&done.stderr, &SHORT_WINDOW) {
                window_ms = (4 * window_ms).min(MAX_WINDOW_MS);
            }
        }
        self.bench_once(window_ms, arguments).exits(0)
    }

    /// Runs one round of many cases. Returns every instance with its mechanism's name. If the machine
    /// disturbed the run, mechanisms with a failed instance, or without a message, are measured again,
    /// alone and with a longer window.
    #[track_caller]
    pub(crate) fn bench_many(&self, window_ms: u32, arguments: &[&str]) -> Vec<(String, Value)> {
        let arguments = [arguments, &["--rounds=1", "--json"]].concat();
        let done = self.bench_once(window_ms, &arguments);
        let is_disturbed = done.status.code() == Some(2) && is_disturbed(&done.stderr);
        let done = if is_disturbed { done } else { done.exits(0) };
        let (failed, mut measured): (Vec<_>, Vec<_>) =
            instances(&done.json()).into_iter().partition(|(_, instance)| !instance["outcome"]["failed"].is_null());
        let has_messages = |(name, instance): &(String, Value)| {
            (instance["outcome"]["measured"]["messages"].as_u64() > Some(0)).then(|| name.clone())
        };
        let complete: BTreeSet<String> = measured.iter().filter_map(has_messages).collect();
        let names = |of: &[(String, Value)]| of.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>();
        let mut again = names(&failed);
        again.extend(names(&measured).difference(&complete).cloned());
        if again.is_empty() {
            return measured;
        }
        eprintln!("{again:?} again, because the machine was disturbed: {}", done.stderr);
        self.remove_records();
        // The suite and the options, without the names and patterns.
        let kept = arguments.iter().copied().filter(|argument| argument.starts_with("--") || !argument.contains('/'));
        let arguments: Vec<&str> = again.iter().map(String::as_str).chain(kept).collect();
        measured.extend(instances(&self.bench(4 * window_ms, &arguments).json()));
        measured
    }

    /// Runs one round of `bench`, in which each case receives messages, and returns the record.
    #[track_caller]
    pub(crate) fn one_round(&self, window_ms: u32, cases: &[&str]) -> Value {
        for window_ms in [1, 4, 16, 64, 256].map(|times| times * window_ms) {
            let record = self.bench(window_ms, &[cases, &["--rounds=1", "--slice=off", "--json"]].concat()).json();
            if (0..record["entrants"].as_array().unwrap().len()).all(|entrant| received_of(&record, entrant).is_some())
            {
                return record;
            }
            self.remove_records();
        }
        panic!("a case of {cases:?} receives no message within {} ms", 256 * window_ms);
    }

    /// Removes the folder `out`, which is there only if a run came as far as a record.
    pub(crate) fn remove_records(&self) {
        if let Err(error) = fs::remove_dir_all(self.path("out")) {
            assert_eq!(error.kind(), ErrorKind::NotFound, "the folder `out`: {error}");
        }
    }

    fn bench_once(&self, window_ms: u32, arguments: &[&str]) -> Done {
        let window = format!("--window={window_ms}ms");
        // A busy machine may take long for an instance.
        self.run(["bench", &window, "--out=out", "--timeout=60s"].iter().chain(arguments))
    }

    /// Runs the command in a terminal with this number of columns, where stdout and stderr are one.
    pub(crate) fn terminal(&self, columns: u16, arguments: &[&str]) -> Done {
        let words = [PROGRAM].iter().chain(arguments).map(|word| format!("'{word}'"));
        let line = format!("stty cols {columns}; exec {}", words.collect::<Vec<_>>().join(" "));
        let script = self.program("script", ["--quiet", "--return", "--command", &line, "/dev/null"]).output();
        let mut done = Done::from(script.expect("`script` of util-linux starts"));
        done.stdout = done.stdout.replace("\r\n", "\n");
        done
    }

    /// The record of its one run.
    pub(crate) fn record(&self) -> PathBuf {
        let files = fs::read_dir(self.path("out")).expect("the folder `out`").flatten().map(|entry| entry.path());
        let mut records = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let record = records.next().expect("a record");
        assert_eq!(records.next(), None, "more than one record");
        record
    }

    /// The living processes of this ground, by number and name.
    pub(crate) fn processes(&self) -> Vec<String> {
        let named = |(process, _): (fs::DirEntry, _)| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} {}", process.file_name().to_string_lossy(), name.trim())
        };
        self.living().map(named).collect()
    }

    /// The variables in the environment of each living process of this ground, as `NAME=VALUE`.
    pub(crate) fn environments(&self) -> Vec<Vec<String>> {
        self.living().map(|(_, environment)| environment).collect()
    }

    /// The folders in `/proc` of the living processes of this ground, with their environments.
    fn living(&self) -> impl Iterator<Item = (fs::DirEntry, Vec<String>)> {
        let (marker, value) = self.marker();
        let wanted = format!("{marker}={value}");
        fs::read_dir("/proc").expect("/proc").flatten().filter_map(move |process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            let variables = environment.split(|&byte| byte == 0);
            let variables: Vec<String> = variables.map(|variable| String::from_utf8_lossy(variable).into()).collect();
            variables.contains(&wanted).then_some((process, variables))
        })
    }

    /// Checks that nothing is left: no process, no temporary file, no shared memory or queue, no
    /// socket with a name. What was killed a moment ago may still be going.
    pub(crate) fn assert_clean(&self) {
        let left = || {
            let mut left: Vec<String> =
                self.processes().into_iter().map(|process| format!("process {process}")).collect();
            left.extend(names(self.tmp()).into_iter().map(|name| format!("temporary file {name}")));
            let in_use = shared_memory_in_use();
            left.extend(named().into_iter().filter(|name| !self.named.contains(name) && !in_use.contains(name)));
            let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
            left.extend(sockets.lines().filter(|line| line.contains(&self.marker().1)).map(str::to_owned));
            left
        };
        let deadline = Instant::now() + PATIENCE;
        // Once nothing is left, names that appear later are those of other tests.
        loop {
            let left = left();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{left:#?}");
            sleep(Duration::from_millis(20));
        }
    }
}

/// The files in `/dev/shm` that a living process has open or mapped. If no process of a ground
/// lives, they are those of other tests, which run at the same time.
fn shared_memory_in_use() -> BTreeSet<String> {
    let files_of = |process: fs::DirEntry| {
        let opened = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let opened = opened.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned()));
        let maps = fs::read_to_string(process.path().join("maps")).unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| Some(line[line.find("/dev/shm/")?..].to_owned()));
        opened.filter(|path| path.starts_with("/dev/shm/")).chain(mapped).collect::<Vec<_>>()
    };
    fs::read_dir("/proc").expect("/proc").flatten().flat_map(files_of).collect()
}

/// What has a name, or a number, in the whole system: POSIX and System V shared memory, queues and
/// semaphores.
fn named() -> BTreeSet<String> {
    let folders = ["/dev/shm", "/dev/mqueue"].into_iter();
    let posix = folders.flat_map(|folder| names(folder).into_iter().map(move |name| format!("{folder}/{name}")));
    let system_v = ["msg", "sem", "shm"].into_iter().flat_map(|kind| {
        let table = fs::read_to_string(format!("/proc/sysvipc/{kind}")).unwrap_or_default();
        // A key and a number, and more that changes as it is used.
        let number = |line: &str| line.split_ascii_whitespace().take(2).collect::<Vec<_>>().join(" ");
        table.lines().skip(1).map(|line| format!("{kind} {}", number(line))).collect::<Vec<_>>()
    });
    posix.chain(system_v).collect()
}

/// The names in a folder; none where there is no such folder.
pub(crate) fn names(folder: impl AsRef<Path>) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A run that has ended.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let done = Done { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        done
    }
}

impl Done {
    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        assert_eq!(self.status.code(), Some(code), "{}\n{}\n{}", self.status, self.stdout, self.stderr);
        self
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Asks until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        sleep(Duration::from_millis(2));
    }
}

/// The instances of a record, each with the name of its mechanism.
fn instances(record: &Value) -> Vec<(String, Value)> {
    let of = |instance: &Value| {
        let entrant = &record["entrants"][instance["entrant"].as_u64().unwrap() as usize];
        (entrant["case"]["mechanism"].as_str().unwrap().to_owned(), instance.clone())
    };
    record["instances"].as_array().expect("a list of instances").iter().map(of).collect()
}

/// The last instance of a case that received messages. An instance that was disturbed was repeated.
fn received_of(record: &Value, entrant: usize) -> Option<&Value> {
    record["instances"].as_array()?.iter().rev().find(|instance| {
        instance["entrant"] == entrant && instance["outcome"]["measured"]["messages"].as_u64() > Some(0)
    })
}

/// One round of real instances, of [`Ground::one_round`], that is made a record of 9 rounds. A
/// round trip takes 100 us, and `factor` times as long through the mechanism `slower`. So what the
/// record says does not depend on the machine.
pub(crate) fn repeated(round: &Value, slower: &str, factor: f64) -> Value {
    const ROUNDS: u64 = 9;
    let mut record = round.clone();
    let of_round: Vec<Value> = (0..record["entrants"].as_array().unwrap().len())
        .map(|entrant| received_of(round, entrant).expect("each case received messages").clone())
        .collect();
    let mut instances = Vec::new();
    for number in 0..ROUNDS {
        for (at, instance) in of_round.iter().enumerate() {
            let mut instance = instance.clone();
            let entrant = &record["entrants"][instance["entrant"].as_u64().unwrap() as usize];
            let factor = if entrant["case"]["mechanism"] == slower { factor } else { 1.0 };
            let noise = ((number * 7 + at as u64 * 3) % 8) as f64 * 0.001;
            let figures = &mut instance["outcome"]["measured"];
            figures["latency"]["p50_ns"] = json!((100_000.0 * factor * (1.0 + noise)) as u64);
            figures["discarded"] = Value::Null;
            instance["round"] = json!(number);
            instances.push(instance);
        }
    }
    record["instances"] = instances.into();
    record["rounds"] = json!(ROUNDS);
    record["rounds_planned"] = json!(ROUNDS);
    record
}

/// A run under way. Killed at the latest when this is dropped, so that a test that fails leaves
/// nothing behind.
pub(crate) struct Running {
    child: Child,
    /// Where it prints to: files, so that it never waits for a reader.
    printed: [PathBuf; 2],
}

impl Running {
    /// One at a time on a ground.
    pub(crate) fn start(ground: &Ground, arguments: &[&str]) -> Running {
        Running::of(ground, ground.command(arguments))
    }

    /// Starts a command of this ground. One at a time on a ground.
    pub(crate) fn of(ground: &Ground, mut command: Command) -> Running {
        let printed = [ground.path("stdout"), ground.path("stderr")];
        let [stdout, stderr] = printed.clone().map(|path| File::create(path).expect("a file to print to"));
        let child = command.stdout(stdout).stderr(stderr).spawn().expect("the command starts");
        Running { child, printed }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has printed to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.printed[1]).expect("what it printed")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_some()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        wait_for("the run's end", || self.has_ended().then_some(()));
        let status = self.child.wait().expect("it is ours");
        let [stdout, stderr] = self.printed.clone().map(|path| fs::read(path).expect("what it printed"));
        Done::from(Output { status, stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
