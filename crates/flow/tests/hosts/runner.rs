//! Runs the tests, each in a process of its own: what a failed test leaves running ends with it.
//!
//! It accepts the options of the usual test programs, and shows what a test printed if it fails or
//! skips something.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};

/// A test. [`tests`] lists them.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) function: fn(),
    /// Whether it runs only if it is asked for.
    pub(crate) is_ignored: bool,
}

/// Lists the tests of a module: functions, some of which are `ignored`.
macro_rules! tests {
    ($($name:ident),* $(,)? $(; ignored: $($ignored:ident),+ $(,)?)?) => {
        pub(crate) const TESTS: &[$crate::runner::Test] = &[
            $($crate::runner::tests!(one $name, false),)*
            $($($crate::runner::tests!(one $ignored, true),)+)?
        ];
    };
    (one $name:ident, $is_ignored:literal) => {
        $crate::runner::Test { name: stringify!($name), function: $name, is_ignored: $is_ignored }
    };
}
pub(crate) use tests;

/// The argument that makes this program run one test. Its name follows.
const ARGUMENT: &str = "run-test";

/// Runs the tests that the command line selects.
pub(crate) fn run(modules: &[&'static [Test]]) -> ExitCode {
    let mut tests = modules.iter().copied().flatten();
    if env::args().nth(1).as_deref() == Some(ARGUMENT) {
        let name = env::args().nth(2).unwrap_or_default();
        return run_one(tests.find(|test| test.name == name));
    }
    let arguments = Arguments::from_args();
    let is_captured = !arguments.nocapture;
    let trial = |test: &Test| {
        let name = test.name;
        Trial::test(name, move || run_in_process(name, is_captured)).with_ignored_flag(test.is_ignored)
    };
    libtest_mimic::run(&arguments, tests.map(trial).collect()).exit_code()
}

/// The process of one test.
fn run_one(test: Option<&Test>) -> ExitCode {
    let Some(test) = test else {
        eprintln!("there is no such test");
        return ExitCode::from(2);
    };
    // It must not outlive the runner.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    (test.function)();
    ExitCode::SUCCESS
}

fn run_in_process(name: &str, is_captured: bool) -> Result<(), Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.args([ARGUMENT, name]).stdin(Stdio::null());
    let mut captured = tempfile::tempfile()?;
    if is_captured {
        command.stdout(captured.try_clone()?).stderr(captured.try_clone()?);
    }
    let status = command.spawn()?.wait()?;
    let output = read_again(&mut captured)?;
    if !status.success() {
        return Err(Failed::from(format!("{output}({status})")));
    }
    if let Some((_, why)) = output.lines().find_map(|line| line.split_once("skipped: ")) {
        eprintln!("{name}: skipped: {why}");
    }
    Ok(())
}

fn read_again(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
