//! The child processes of one instance. When it ends, in whatever way, all of them and every
//! process that they started are killed.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitid,
    waitpid,
};

use crate::case::Role;
use crate::entry::Program;
use crate::hosts::remote_process::RemoteProcess;
use crate::hosts::{HostLoad, OtherHost};
use crate::protocol::Assignment;
use crate::{child, tracer};

/// The number of bytes at the end of a child's stderr that error texts show.
const STDERR_TAIL: u64 = 4 * 1024;

/// The file to which the tracer of a child writes its number of system calls.
pub(super) fn calls_path(role: Role, dir: &Path) -> PathBuf {
    dir.join(format!("calls-{}", role.to_string().replace(':', "-")))
}

/// One child process.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    pub(crate) role: Role,
    pub(crate) socket: OwnedFd,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// A process of this host, the file to which it writes its stderr, and its exit status.
    Here { process: Child, stderr: PathBuf, status: Option<ExitStatus> },
    /// A process of the other host. It is not measured in slices, so it is never stopped and
    /// resumed.
    OtherHost(RemoteProcess),
}

impl ChildProcess {
    /// Starts a program with its protocol socket as descriptor 0.
    pub(super) fn start(program: &Program, role: Role, dir: &Path) -> Result<ChildProcess> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.context("making a child's socket")?;
        ioctl_fionbio(&socket, true).context("making a child's socket")?;
        let stderr = dir.join(format!("stderr-{}", role.to_string().replace(':', "-")));
        // Until the child is listed, no other thread may look for strays.
        let mut live = live();
        let process = Command::new(&program.path)
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            // Temporary files of libraries are removed with the instance's directory.
            .env("TMPDIR", dir)
            // Neither a child nor what it starts opens a session with another host.
            .env_remove(crate::hosts::TOKEN_VARIABLE)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).context("making a file for a child's stderr")?)
            // A new process group, so that Ctrl-C in the terminal reaches only the coordinator.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.path.display()))?;
        live.push(Pid::from_child(&process));
        Ok(ChildProcess { role, socket, process: Process::Here { process, stderr, status: None } })
    }

    /// Starts a child on the other host.
    pub(super) fn start_on(host: &OtherHost, assignment: Assignment) -> Result<ChildProcess> {
        let role = assignment.role;
        let (socket, process) = host.start(assignment)?;
        Ok(ChildProcess { role, socket, process: Process::OtherHost(process) })
    }

    /// Starts this program as a child.
    pub(crate) fn start_own(role: Role, dir: &Path) -> Result<ChildProcess> {
        ChildProcess::start(&Program::own([child::ARGUMENT]), role, dir)
    }

    /// Starts `program`, or this program if it is `None`, under a tracer that counts its system
    /// calls.
    pub(super) fn start_traced(program: Option<Program>, role: Role, dir: &Path) -> Result<ChildProcess> {
        let text = |path: &Path| path.to_str().map(String::from).context("a path that is not Unicode");
        let Program { path, arguments, environment } = program.unwrap_or_else(|| Program::own([child::ARGUMENT]));
        let mut tracer = Program::own([tracer::ARGUMENT, &text(&calls_path(role, dir))?, &text(&path)?]);
        tracer.arguments.extend(arguments);
        tracer.environment = environment;
        ChildProcess::start(&tracer, role, dir)
    }

    /// Its exit status, if it has ended. Does not block.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.process {
            Process::Here { process, status, .. } => {
                if status.is_none() {
                    *status = process.try_wait().ok().flatten();
                }
                *status
            }
            Process::OtherHost(process) => process.ended(),
        }
    }

    /// Whether it has ended or is exiting. The kernel marks a process as exiting before it closes
    /// the descriptors. So this is true as soon as another process has seen them close.
    ///
    /// The other host reports an end only after it. So this waits for such a report, until
    /// `deadline`.
    pub(super) fn is_dying(&mut self, deadline: Instant) -> bool {
        /// The kernel's `PF_EXITING`.
        const EXITING: u32 = 4;
        if self.ended().is_some() {
            return true;
        }
        let pid = match &self.process {
            Process::Here { process, .. } => process.id(),
            Process::OtherHost(process) => return process.wait_until(deadline).is_some(),
        };
        let flags = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // `pid (name) state parent group session terminal foreground flags ...`
            stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse::<u32>().ok()
        };
        flags().is_some_and(|flags| flags & EXITING != 0)
    }

    /// Sends it `SIGSTOP`, but not the processes that it has started.
    ///
    /// If it is just starting a process, both must not be stopped at the same time: `vfork` returns
    /// only when the new process runs.
    pub(super) fn stop(&self) {
        if let Some(pid) = self.pid() {
            // An error means that it has ended.
            let _ = kill_process(pid, Signal::STOP);
        }
    }

    /// Sends `SIGSTOP` to its process group, which has the processes that it has started. Call it
    /// after it has stopped itself.
    pub(super) fn stop_group(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::STOP);
        }
    }

    /// Resumes it and the processes that it has started.
    pub(super) fn resume(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::CONT);
            // In case it has left its process group.
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Blocks until it has stopped or ended.
    pub(super) fn wait_stopped(&self) {
        let Some(pid) = self.pid() else { return };
        let id = || WaitId::Pid(pid);
        // NOWAIT leaves the exit status for `ended`.
        let seen = waitid(id(), WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT);
        if seen.is_ok_and(|status| status.is_some_and(|status| status.stopped())) {
            let _ = waitid(id(), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        }
    }

    /// The process, if it is on this host.
    pub(super) fn pid(&self) -> Option<Pid> {
        match &self.process {
            Process::Here { process, .. } => Some(Pid::from_child(process)),
            Process::OtherHost(_) => None,
        }
    }

    /// Waits for it to end, until `deadline`. Returns its exit status, or `None` if it still runs
    /// or was lost.
    pub(super) fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        let mut nap = Duration::from_micros(50);
        if let Process::OtherHost(process) = &self.process {
            return process.wait_until(deadline);
        }
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(5));
        }
    }

    /// Kills it and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_some() {
            return;
        }
        match &mut self.process {
            Process::Here { process, status, .. } => {
                let _ = process.kill();
                *status = process.wait().ok();
            }
            Process::OtherHost(process) => process.kill(),
        }
    }

    /// The last [`STDERR_TAIL`] bytes that it wrote to stderr. Ends a process of the other host,
    /// which sends them at its end: they are for the text of a failure.
    pub(crate) fn stderr(&self) -> String {
        let path = match &self.process {
            Process::Here { stderr, .. } => stderr,
            Process::OtherHost(process) => return process.stderr(),
        };
        let read = || -> std::io::Result<String> {
            let mut file = File::open(path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(STDERR_TAIL)))?;
            let mut tail = Vec::new();
            file.take(STDERR_TAIL).read_to_end(&mut tail)?;
            Ok(String::from_utf8_lossy(&tail).trim().to_owned())
        };
        read().unwrap_or_default()
    }

    /// If it was lost with the session to the other host: why that ended.
    pub(super) fn lost(&self) -> Option<&str> {
        match &self.process {
            Process::Here { .. } => None,
            Process::OtherHost(process) => process.lost(),
        }
    }

    /// Waits until it has got `go`, if it is on the other host.
    pub(super) fn wait_until_begun(&self) -> Result<()> {
        match &self.process {
            Process::Here { .. } => Ok(()),
            Process::OtherHost(process) => process.wait_until_begun(),
        }
    }

    /// How busy the other host was while it ran there.
    pub(super) fn load(&self) -> Option<HostLoad> {
        match &self.process {
            Process::Here { .. } => None,
            Process::OtherHost(process) => process.load(),
        }
    }

    /// The number of processes that it left running on the other host.
    fn strays(&self) -> usize {
        match &self.process {
            Process::Here { .. } => 0,
            Process::OtherHost(process) => process.strays(),
        }
    }
}

/// How a process ended, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("was killed by signal {signal}"),
        (Some(code), _) => format!("exited with status {code}"),
        _ => String::from("ended"),
    }
}

/// All children of an instance. They are killed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Children(pub(crate) Vec<ChildProcess>);

impl Children {
    /// Kills all children and the processes that they started. Returns how many processes were left
    /// besides the children.
    pub(crate) fn end(&mut self) -> usize {
        for child in &mut self.0 {
            child.kill();
        }
        let strays: usize = self.0.iter().map(ChildProcess::strays).sum();
        live().retain(|pid| !self.0.iter().any(|child| child.pid() == Some(*pid)));
        self.0.clear();
        strays + end_strays()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// The children that this process had before the first instance. They come from a shell that
/// executed this program, or from a program that has the command built in. No mechanism has started
/// them. Nobody waits for them here, so the kernel does not reuse their process ids.
static EARLIER: OnceLock<Vec<Pid>> = OnceLock::new();

/// The children of all instances that are open.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Pid>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the subreaper of its descendants: orphaned processes become its children and
/// can be killed.
pub(crate) fn adopt_strays() {
    let own = || own_children().into_iter().map(|child| child.pid).collect();
    EARLIER.get_or_init(|| if has_children() { own() } else { Vec::new() });
    // It only fails on kernels before 3.4. Orphaned processes are then not found.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills the orphaned processes that this process has adopted, and returns how many were still
/// running. Such a process is a child of the coordinator, but not in [`EARLIER`], not in [`LIVE`],
/// and not in the process group of one in [`LIVE`]: children lead their groups, so an orphan of an
/// instance that is still open is left alone, unless it has made a group of its own.
fn end_strays() -> usize {
    let earlier = EARLIER.get().map_or(&[][..], Vec::as_slice);
    let live = live();
    let is_stray =
        |child: &OwnChild| !earlier.contains(&child.pid) && !live.contains(&child.pid) && !live.contains(&child.group);
    let mut ended = 0;
    // A killed process may leave its own children to this one, so repeat until there are none.
    while has_children() {
        let strays: Vec<OwnChild> = own_children().into_iter().filter(is_stray).collect();
        if strays.is_empty() {
            break;
        }
        for OwnChild { pid, .. } in strays {
            if matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                ended += 1;
            }
        }
    }
    ended
}

/// Whether this process has any child, dead or alive. Takes one system call; reading `/proc` takes
/// thousands.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// A process whose parent is this one.
struct OwnChild {
    pid: Pid,
    /// Its process group.
    group: Pid,
}

/// The processes whose parent is this one.
fn own_children() -> Vec<OwnChild> {
    let us = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // `pid (name) state parent group ...`: the name may contain any character, even a parenthesis.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        let (parent, group) = (fields.next()?, fields.next()?.parse().ok()?);
        if parent != us {
            return None;
        }
        Some(OwnChild { pid: Pid::from_raw(pid)?, group: Pid::from_raw(group)? })
    });
    pids.collect()
}
