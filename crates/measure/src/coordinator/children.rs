//! The child processes of one instance. However it ends, none of them and nothing they started is left.

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
use crate::{child, tracer};

/// This program.
const OWN: &str = "/proc/self/exe";
/// How much of what a child wrote to stderr is kept.
const STDERR_TAIL: u64 = 4 * 1024;

/// Where the number of a child's system calls is found once it has ended, if it was traced.
pub(super) fn counted(role: Role, dir: &Path) -> PathBuf {
    dir.join(format!("calls-{}", role.to_string().replace(':', "-")))
}

/// One child process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) role: Role,
    pub(super) socket: OwnedFd,
    process: Child,
    stderr: PathBuf,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts `program` with `arguments`, its protocol socket as descriptor 0.
    pub(super) fn start(program: &Path, arguments: &[&str], role: Role, dir: &Path) -> Result<Running> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.context("making a child's socket")?;
        ioctl_fionbio(&socket, true).context("making a child's socket")?;
        let stderr = dir.join(format!("stderr-{}", role.to_string().replace(':', "-")));
        let process = Command::new(program)
            .args(arguments)
            // What a library puts among the temporary files goes with the instance.
            .env("TMPDIR", dir)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).context("making a file for a child's stderr")?)
            // Of its own, so that the terminal's Ctrl-C reaches the coordinator alone.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        live().push(Pid::from_child(&process));
        Ok(Running { role, socket, process, stderr, status: None })
    }

    /// Starts this program as a child, even where its file has been replaced since it was started.
    pub(super) fn start_own(role: Role, dir: &Path) -> Result<Running> {
        Running::start(Path::new(OWN), &[child::ARGUMENT], role, dir)
    }

    /// Starts `program`, or this one, under a tracer that counts its system calls.
    pub(super) fn start_traced(program: Option<&Path>, role: Role, dir: &Path) -> Result<Running> {
        let count = counted(role, dir);
        let count = count.to_str().context("a path that is not Unicode")?;
        match program {
            Some(program) => {
                let program = program.to_str().context("a path that is not Unicode")?;
                Running::start(Path::new(OWN), &[tracer::ARGUMENT, count, program], role, dir)
            }
            None => Running::start(Path::new(OWN), &[tracer::ARGUMENT, count, OWN, child::ARGUMENT], role, dir),
        }
    }

    /// Its status, where it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
        self.status
    }

    /// Whether it has ended, or is about to and can do nothing more. A process is marked so before its descriptors are
    /// closed, so whoever has seen them close can see this.
    pub(super) fn dying(&mut self) -> bool {
        /// `PF_EXITING` of the kernel.
        const EXITING: u32 = 4;
        if self.ended().is_some() {
            return true;
        }
        let flags = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
            // `pid (name) state parent group session terminal foreground flags ...`
            stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse::<u32>().ok()
        };
        flags().is_some_and(|flags| flags & EXITING != 0)
    }

    /// Asks it to stop; not the processes that it has started. One that starts a process just now waits for that, so both must not be
    /// stopped at once: a `vfork` ends only when the new process runs.
    pub(super) fn stop(&self) {
        // One that has gone needs no signal.
        let _ = kill_process(self.pid(), Signal::STOP);
    }

    /// Asks the processes that it has started to stop, after it has stopped itself.
    pub(super) fn stop_group(&self) {
        let _ = kill_process_group(self.pid(), Signal::STOP);
    }

    /// Lets it and the processes that it has started go on.
    pub(super) fn resume(&self) {
        let _ = kill_process_group(self.pid(), Signal::CONT);
        // In case it has left its process group.
        let _ = kill_process(self.pid(), Signal::CONT);
    }

    /// Waits until it has stopped, or has ended.
    pub(super) fn wait_stopped(&self) {
        let id = || WaitId::Pid(self.pid());
        // Its end is left for others to see.
        let seen = waitid(id(), WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT);
        if seen.is_ok_and(|status| status.is_some_and(|status| status.stopped())) {
            let _ = waitid(id(), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits for its end until `deadline`.
    pub(super) fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        let mut nap = Duration::from_micros(50);
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

    /// Ends it and waits for it.
    fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = self.process.kill();
            self.status = self.process.wait().ok();
        }
    }

    /// The last lines it wrote to stderr.
    pub(super) fn stderr(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.stderr)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(STDERR_TAIL)))?;
            let mut tail = Vec::new();
            file.take(STDERR_TAIL).read_to_end(&mut tail)?;
            Ok(String::from_utf8_lossy(&tail).trim().to_owned())
        };
        read().unwrap_or_default()
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

/// All children of an instance; ended at the latest when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Children(pub(super) Vec<Running>);

impl Children {
    /// Ends all children and whatever they started. Returns how many processes they had left behind.
    pub(super) fn end(&mut self) -> usize {
        for child in &mut self.0 {
            child.kill();
        }
        live().retain(|pid| !self.0.iter().any(|child| child.pid() == *pid));
        self.0.clear();
        end_strays()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

/// The children this process had before the first instance: those of a shell that became this program, or of a program
/// that has the command built in. None of them was started by a mechanism. Nobody waits for them here, so their numbers
/// are not given to others.
static EARLIER: OnceLock<Vec<Pid>> = OnceLock::new();

/// The children of all instances that are open.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Pid>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes processes whose parent has ended children of this one, so that none can get away.
pub(super) fn adopt_strays() {
    EARLIER.get_or_init(|| if has_children() { own_children() } else { Vec::new() });
    // Only fails on kernels before 3.4; then strays get away.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Ends the processes that became ours when the child that started them ended, and returns how many were still running.
/// The coordinator has no other children than its earlier ones and those of instances that are open.
fn end_strays() -> usize {
    let earlier = EARLIER.get().map_or(&[][..], Vec::as_slice);
    let live = live().clone();
    let is_stray = |pid: &Pid| !earlier.contains(pid) && !live.contains(pid);
    let mut ended = 0;
    // Each one ended may leave us its own children, so until there is none.
    while has_children() {
        let strays: Vec<Pid> = own_children().into_iter().filter(is_stray).collect();
        if strays.is_empty() {
            break;
        }
        for pid in strays {
            if matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                ended += 1;
            }
        }
    }
    ended
}

/// Whether this process has any child, dead or alive: one system call, where a look through `/proc` takes thousands.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// The processes whose parent is this one.
fn own_children() -> Vec<Pid> {
    let us = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // `pid (name) state parent ...`: the name may hold anything, a parenthesis included.
        let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?;
        if parent == us { Pid::from_raw(pid) } else { None }
    });
    pids.collect()
}
