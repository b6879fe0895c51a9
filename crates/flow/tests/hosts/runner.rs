//! Runs the tests, each in a process of its own: what a failed test leaves running ends with it.
//!
//! It accepts the options of the usual test programs that are of use here, and shows what a test
//! printed if it fails or skips something.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::num::NonZeroUsize;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, io, thread};

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

/// The options of the command line.
#[derive(Default)]
struct Options {
    filters: Vec<String>,
    skipped: Vec<String>,
    is_exact: bool,
    ignored: Ignored,
    is_list: bool,
    is_captured: bool,
    threads: usize,
}

/// Which tests run.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Ignored {
    #[default]
    Not,
    Only,
    Too,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut options = Options { is_captured: true, threads, ..Options::default() };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--skip" => options.skipped.push(value()?),
                "--exact" => options.is_exact = true,
                "--ignored" => options.ignored = Ignored::Only,
                "--include-ignored" => options.ignored = Ignored::Too,
                "--list" => options.is_list = true,
                "--nocapture" | "--no-capture" => options.is_captured = false,
                "--test-threads" => {
                    options.threads = value()?.parse().map_err(|_| "--test-threads needs a number")?;
                }
                "-q" | "--quiet" | "--show-output" => {}
                "--format" | "--color" => drop(value()?),
                option if option.starts_with("--") && option.contains('=') => {}
                option if option.starts_with('-') => return Err(format!("there is no option {option}")),
                _ => options.filters.push(argument),
            }
        }
        Ok(options)
    }

    fn selects(&self, test: &Test) -> bool {
        let matches =
            |filter: &String| if self.is_exact { test.name == filter } else { test.name.contains(filter.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(matches)) && !self.skipped.iter().any(matches)
    }

    fn runs(&self, test: &Test) -> bool {
        match self.ignored {
            Ignored::Not => !test.is_ignored,
            Ignored::Only => test.is_ignored,
            Ignored::Too => true,
        }
    }
}

/// The end of a test.
struct Outcome {
    name: &'static str,
    is_passed: bool,
    output: String,
}

/// Runs the tests that the command line selects.
pub(crate) fn run(modules: &[&'static [Test]]) -> ExitCode {
    let all: Vec<&'static Test> = modules.iter().copied().flatten().collect();
    let mut arguments = env::args().skip(1);
    if env::args().nth(1).as_deref() == Some(ARGUMENT) {
        return run_one(&all, &arguments.nth(1).unwrap_or_default());
    }
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let selected: Vec<_> = all.iter().copied().filter(|test| options.selects(test)).collect();
    if options.is_list {
        selected.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let run: VecDeque<_> = selected.iter().copied().filter(|test| options.runs(test)).collect();
    let (ignored, filtered) = (selected.len() - run.len(), all.len() - selected.len());
    println!("\nrunning {} tests", run.len());
    let start = Instant::now();
    let outcomes = run_all(run, &options);
    let failed = outcomes.iter().filter(|outcome| !outcome.is_passed).count();
    for Outcome { name, output, .. } in outcomes.iter().filter(|outcome| !outcome.is_passed) {
        println!("\n---- {name} ----\n{output}");
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {failed} failed; {ignored} ignored; 0 measured; {filtered} filtered out; \
         finished in {:.2}s\n",
        outcomes.len() - failed,
        start.elapsed().as_secs_f64(),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// The process of one test.
fn run_one(all: &[&'static Test], name: &str) -> ExitCode {
    let Some(test) = all.iter().find(|test| test.name == name) else {
        eprintln!("there is no test {name}");
        return ExitCode::from(2);
    };
    // It must not outlive the runner.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    (test.function)();
    ExitCode::SUCCESS
}

/// Runs tests in parallel, and prints a line about each when it ends.
fn run_all(tests: VecDeque<&'static Test>, options: &Options) -> Vec<Outcome> {
    let (waiting, outcomes) = (Mutex::new(tests), Mutex::new(Vec::new()));
    let work = || {
        while let Some(test) = lock(&waiting).pop_front() {
            let outcome = run_in_process(test, options).unwrap_or_else(|error| Outcome {
                name: test.name,
                is_passed: false,
                output: format!("it cannot be started: {error}"),
            });
            report(&outcome);
            lock(&outcomes).push(outcome);
        }
    };
    thread::scope(|scope| {
        (0..options.threads.max(1)).for_each(|_| drop(scope.spawn(work)));
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_in_process(test: &'static Test, options: &Options) -> io::Result<Outcome> {
    let mut command = Command::new(env::current_exe()?);
    command.args([ARGUMENT, test.name]).stdin(Stdio::null());
    let mut captured = tempfile::tempfile()?;
    if options.is_captured {
        command.stdout(captured.try_clone()?).stderr(captured.try_clone()?);
    }
    let status = command.spawn()?.wait()?;
    let mut output = read_again(&mut captured)?;
    if !status.success() {
        output.push_str(&format!("({status})\n"));
    }
    Ok(Outcome { name: test.name, is_passed: status.success(), output })
}

fn read_again(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn report(outcome: &Outcome) {
    let skipped = outcome.output.lines().find_map(|line| line.split_once("skipped: "));
    let skipped = skipped.map(|(_, why)| format!(", skipped: {why}")).unwrap_or_default();
    let result = if outcome.is_passed { "ok" } else { "FAILED" };
    let _ = writeln!(io::stdout(), "test {} ... {result}{skipped}", outcome.name);
}
