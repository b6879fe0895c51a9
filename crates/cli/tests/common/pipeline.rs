//! A pipeline that runs, as a user has it before him: what goes in, what comes out, what it says of
//! itself.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Done, Ground, PROGRAM, wait_for};

/// The text of a function of `crates/guest/wat`.
pub(crate) fn guest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/wat").join(format!("{name}.wat"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A function in WebAssembly text that does `on_message` with each message: `$at` is its address,
/// `$len` its length.
pub(crate) fn each_message(globals: &str, on_message: &str) -> String {
    format!(
        r#"(module
  (import "estafette" "send" (func $send (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 32)
  {globals}
  (func (export "estafette_buffer") (param $capacity i32) (result i32) (i32.const 65536))
  (func $pass_on (param $at i32) (param $len i32)
    (if (call $send (i32.const 0) (local.get $at) (local.get $len)) (then (unreachable))))
  (func $sleep (param $ms i64)
    (i64.store (i32.const 24) (i64.mul (local.get $ms) (i64.const 1000000)))
    (i32.store (i32.const 16) (i32.const 1))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))
  (func $on_message (param $at i32) (param $len i32) {on_message})
  (func (export "estafette_batch") (param $at i32) (param $bytes i32) (param $count i32)
    (local $len i32)
    (loop $next
      (if (i32.eqz (local.get $count)) (then (return)))
      (local.set $len (i32.load (local.get $at)))
      (call $on_message (i32.add (local.get $at) (i32.const 8)) (local.get $len))
      (local.set $at (i32.add (local.get $at) (i32.and (i32.add (local.get $len) (i32.const 15)) (i32.const -8))))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next))))"#
    )
}

/// Passes messages on, and traps at one that begins with P.
pub(crate) fn poisonable() -> String {
    each_message(
        "",
        "(if (i32.eq (i32.load8_u (local.get $at)) (i32.const 80)) (then (unreachable)))
         (call $pass_on (local.get $at) (local.get $len))",
    )
}

/// Sleeps at each message, then passes it on.
pub(crate) fn slow(ms: u32) -> String {
    each_message("", &format!("(call $sleep (i64.const {ms})) (call $pass_on (local.get $at) (local.get $len))"))
}

/// Sends a letter in front of each message.
pub(crate) fn marking(letter: char) -> String {
    let on_message = format!(
        "(i32.store8 (i32.sub (local.get $at) (i32.const 1)) (i32.const {}))
         (call $pass_on (i32.sub (local.get $at) (i32.const 1)) (i32.add (local.get $len) (i32.const 1)))",
        letter as u32
    );
    each_message("", &on_message)
}

impl Ground {
    /// Writes a file on it, and the folders that lead there.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("it can be written");
    }

    /// Reads a file on it.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("it can be read")
    }

    /// The pipeline `pipeline.yml`, with these modules beside it.
    pub(crate) fn pipeline(&self, yaml: &str, modules: &[(&str, String)]) {
        self.write("pipeline.yml", yaml);
        for (name, text) in modules {
            self.write(name, text);
        }
    }
}

/// The lines `0`, `1` and so on.
pub(crate) fn numbered(count: usize) -> String {
    (0..count).map(|number| format!("{number}\n")).collect()
}

/// The numbers on lines, sorted.
pub(crate) fn sorted(lines: &str) -> Vec<usize> {
    let mut numbers: Vec<usize> = lines.lines().map(|line| line.parse().expect("a number")).collect();
    numbers.sort_unstable();
    numbers
}

/// A running pipeline. Killed at the latest when this is dropped.
pub(crate) struct Flow<'g> {
    ground: &'g Ground,
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    printed: [PathBuf; 2],
}

impl<'g> Flow<'g> {
    /// Starts `pipeline.yml` with a stdin that stays open. One at a time on a ground.
    pub(crate) fn start(ground: &'g Ground, arguments: &[&str]) -> Flow<'g> {
        Flow::start_program(ground, PROGRAM, arguments)
    }

    /// As [`Flow::start`], by another name of the command.
    pub(crate) fn start_program(ground: &'g Ground, program: &str, arguments: &[&str]) -> Flow<'g> {
        let printed = [ground.path("stdout"), ground.path("stderr")];
        let [stdout, stderr] = printed.clone().map(|path| File::create(path).expect("a file to print to"));
        let mut child = ground
            .program(program, ["flow", "run", "pipeline.yml"].iter().chain(arguments))
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("the command starts");
        let stdin = child.stdin.take();
        Flow { ground, child, stdin, printed }
    }

    /// Runs `pipeline.yml` with a text as its stdin, to its end.
    #[track_caller]
    pub(crate) fn run(ground: &Ground, arguments: &[&str], input: &str) -> Done {
        let mut flow = Flow::start(ground, arguments);
        flow.feed(input);
        flow.close_stdin();
        flow.end()
    }

    /// Writes to its stdin. Waits while it does not read.
    pub(crate) fn feed(&mut self, text: &str) {
        // What has ended reads nothing; the test sees why by its exit code.
        let _ = self.stdin.as_mut().expect("an open stdin").write_all(text.as_bytes());
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.printed[0]).expect("what it printed")
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.printed[1]).expect("what it logged")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_some()
    }

    /// What `flow status` says of it. None before it listens.
    pub(crate) fn try_status(&self) -> Option<Value> {
        let pid = self.child.id().to_string();
        let done = self.ground.run(["flow", "status", "--json", &pid]);
        (done.status.code() == Some(0)).then(|| done.json())
    }

    /// Asks for its status until that has what is looked for.
    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(what, || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
            assert!(!stat.contains(") Z "), "it ended before {what}: {}", self.stderr());
            let found = self.try_status().and_then(|status| look(&status));
            // To ask takes a process.
            found.is_none().then(|| sleep(Duration::from_millis(10)));
            found
        })
    }

    /// Waits until each function receives messages.
    #[track_caller]
    pub(crate) fn wait_until_running(&self) -> Value {
        self.wait_for("all functions to run", |status| {
            functions(status).iter().all(|function| function["phase"] == "running").then(|| status.clone())
        })
    }

    /// Waits until its log says something.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(text, || self.stderr().contains(text).then_some(()));
    }

    /// Runs `flow reload`.
    pub(crate) fn reload(&self, function: &str) -> Done {
        let pid = self.child.id().to_string();
        self.ground.run(["flow", "reload", function, "--pipeline", &pid])
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        wait_for("the pipeline's end", || self.has_ended().then_some(()));
        let status = self.child.wait().expect("it is ours");
        let [stdout, stderr] = self.printed.clone().map(|path| fs::read(path).expect("what it printed"));
        Done::from(Output { status, stdout, stderr })
    }
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The function instances of a status.
pub(crate) fn functions(status: &Value) -> &Vec<Value> {
    status["functions"].as_array().expect("functions")
}

/// The first instance of a function.
pub(crate) fn function<'s>(status: &'s Value, name: &str) -> &'s Value {
    functions(status).iter().find(|function| function["function"] == name).expect("the function")
}

/// A count of the first instance of a function.
pub(crate) fn count(status: &Value, name: &str, key: &str) -> u64 {
    function(status, name)[key].as_u64().expect("a count")
}

/// A count of a source or sink.
pub(crate) fn connector(status: &Value, name: &str, key: &str) -> u64 {
    let connectors = status["connectors"].as_array().expect("connectors");
    connectors.iter().find(|connector| connector["name"] == name).expect("the connector")[key]
        .as_u64()
        .expect("a count")
}

/// The process that runs a function's first instance.
pub(crate) fn pid(status: &Value, name: &str) -> Option<Pid> {
    Pid::from_raw(function(status, name)["pid"].as_u64()? as i32)
}

/// How much memory a process has, in bytes. None once it is gone.
pub(crate) fn resident(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
