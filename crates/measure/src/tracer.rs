//! Counts the system calls of a child: a process between the coordinator and the child, which traces it.
//!
//! Every call stops the child twice, so nothing that is traced is timed. A thread or a process that the child starts is
//! traced too.

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

/// The argument that makes the command a tracer. A file for the count follows, and the program and its arguments.
pub const ARGUMENT: &str = "__trace";

/// In the file's place: the program waits until it is traced, from its first system call on. Its tracer's number follows.
const HELD: &str = "";

/// Runs the program that the arguments after [`ARGUMENT`] name, writes how many system calls it made, and ends as it did.
pub fn serve(arguments: impl Iterator<Item = OsString>) -> ! {
    let arguments: Vec<_> = arguments.collect();
    let traced = match &*arguments {
        [held, tracer, program, rest @ ..] if held == HELD => hold(tracer, Command::new(program).args(rest)),
        [count, program, rest @ ..] => trace(Path::new(count), program, rest),
        _ => Err(anyhow!("it takes a file and a program")),
    };
    std::process::exit(traced.unwrap_or_else(|error| {
        eprintln!("estafette: `{ARGUMENT}`: {error:#}");
        2
    }))
}

/// Stops until somebody lets this process go on, and becomes the program. Never returns but with an error.
fn hold(tracer: &OsString, program: &mut Command) -> Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the tracer")?;
    // One that has ended by now sends no signal any more, and lets nobody go on.
    ensure!(Pid::parent().to_string() == tracer.to_string_lossy(), "the tracer has gone");
    raise(nix::sys::signal::Signal::SIGSTOP).context("stopping")?;
    Err(program.exec()).context("starting the program")
}

/// Returns the exit status.
fn trace(count: &Path, program: &OsString, arguments: &[OsString]) -> Result<i32> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the coordinator")?;
    let mut held = Command::new("/proc/self/exe");
    let child = held
        .args([ARGUMENT, HELD, &Pid::this().to_string()])
        .arg(program)
        .args(arguments)
        .spawn()
        .context("starting the program")?;
    // The socket is the child's alone, so that the coordinator sees it close.
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

/// Lets everything run on from stop to stop until the program has ended.
fn follow(main: Pid) -> Result<(u64, i32)> {
    let mut calls = 0;
    loop {
        // One that has ended meanwhile cannot go on, and is heard of again.
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
