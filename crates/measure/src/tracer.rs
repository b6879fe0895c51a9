//! The tracer: a process between the coordinator and a child, which counts the child's system calls
//! with `ptrace`.
//!
//! Every call stops the child twice, so a traced instance is not timed. Threads and processes that
//! the child starts are traced too.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::libc::PTRACE_SYSCALL_INFO_ENTRY;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::{Signal, set_parent_process_death_signal};

/// The command-line argument that makes this program a tracer. The file for the count, the program
/// and its arguments follow.
pub const ARGUMENT: &str = "__trace";

/// In place of the file: this process stops until its tracer is attached, then executes the
/// program. So the program is traced from its first system call on. The tracer's process id
/// follows.
const WAIT_FOR_TRACER: &str = "";

/// Runs the program that the arguments after [`ARGUMENT`] name, writes the number of its system
/// calls to the file, and exits with its status.
pub fn serve(arguments: impl Iterator<Item = OsString>) -> ! {
    let arguments: Vec<_> = arguments.collect();
    let traced = match &*arguments {
        [marker, tracer, program, rest @ ..] if marker == WAIT_FOR_TRACER => {
            stop_then_exec(tracer, Command::new(program).args(rest))
        }
        [count, program, rest @ ..] => trace(Path::new(count), program, rest),
        _ => Err(anyhow!("needs a file for the count and a program")),
    };
    std::process::exit(traced.unwrap_or_else(|error| {
        eprintln!("estafette: `{ARGUMENT}`: {error:#}");
        2
    }))
}

/// Stops this process until the tracer resumes it, then executes the program. Returns only on an
/// error.
fn stop_then_exec(tracer: &OsString, program: &mut Command) -> Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the tracer")?;
    // If the tracer has already ended, no signal will come and nobody would resume this process.
    ensure!(Pid::parent().to_string() == tracer.to_string_lossy(), "the tracer has gone");
    raise(nix::sys::signal::Signal::SIGSTOP).context("stopping")?;
    Err(program.exec()).context("starting the program")
}

/// Starts the program, traces it and writes its number of system calls. Returns its exit status.
fn trace(count: &Path, program: &OsString, arguments: &[OsString]) -> Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the coordinator")?;
    let mut stopped = Command::new("/proc/self/exe");
    let child = stopped
        .args([ARGUMENT, WAIT_FOR_TRACER, &Pid::this().to_string()])
        .arg(program)
        .args(arguments)
        .spawn()
        .context("starting the program")?;
    // Only the child may keep the socket open. Otherwise the coordinator would not see it close.
    let nothing = fs::File::open("/dev/null").context("opening /dev/null")?;
    rustix::stdio::dup2_stdin(nothing.as_fd()).context("giving the socket away")?;
    let main = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_EXITKILL;
    match waitpid(main, Some(WaitPidFlag::WUNTRACED)).context("waiting for the program to stop")? {
        WaitStatus::Stopped(..) => {}
        other => bail!("the program did not stop: {other:?}"),
    }
    ptrace::seize(main, options).context("tracing (kernel.yama.ptrace_scope may forbid it)")?;
    kill(main, nix::sys::signal::Signal::SIGCONT).context("letting the program go on")?;
    let (calls, status) = follow(main)?;
    fs::write(count, calls.to_string()).context("writing the count")?;
    Ok(status)
}

/// Resumes all traced threads after each stop until the program has ended. Returns the number of
/// system calls and the exit status.
fn follow(main: Pid) -> Result<(u64, i32)> {
    let mut calls = 0;
    loop {
        // A thread that has ended cannot be resumed; `waitpid` reports it.
        let go_on = |pid, signal| match ptrace::syscall(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).context("letting a thread go on"),
        };
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceSyscall(pid)) => {
                let entered = ptrace::syscall_info(pid).is_ok_and(|info| info.op == PTRACE_SYSCALL_INFO_ENTRY);
                calls += u64::from(entered);
                go_on(pid, None)?;
            }
            Ok(WaitStatus::PtraceEvent(pid, ..)) => go_on(pid, None)?,
            Ok(WaitStatus::Stopped(pid, signal)) => go_on(pid, Some(signal))?,
            Ok(WaitStatus::Exited(pid, status)) if pid == main => return Ok((calls, status)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => bail!("the program was killed by {signal}"),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for the program"),
        }
    }
}
