//! A host process, as the supervisor has it: started, asked, and ended.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use crate::control::{Event, Request, Socket};
use crate::host;

/// How long a host may take to make space for a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// The program that hosts are.
pub(super) struct HostProgram {
    /// Its path when it was opened.
    name: PathBuf,
    /// None if it could not be opened: then it is started by its name.
    file: Option<OwnedFd>,
}

impl HostProgram {
    /// Opens a program, so that later starts run the same one even if its file is replaced or removed.
    pub(super) fn open(path: &Path) -> HostProgram {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let name = file.as_ref().and_then(|file| fs::read_link(proc_path(file)).ok());
        // Without /proc an opened file cannot be started.
        let file = file.filter(|_| name.is_some());
        HostProgram { name: name.unwrap_or_else(|| path.to_owned()), file }
    }

    fn command(&self) -> Command {
        let Some(file) = &self.file else { return Command::new(&self.name) };
        let mut command = Command::new(proc_path(file));
        command.arg0(&self.name);
        command
    }
}

/// The path that leads to an open file, for this process and for a child that it starts.
fn proc_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A host process. Dropping it kills the process.
pub(super) struct Host {
    child: Child,
    socket: Socket,
}

impl Host {
    /// Starts the process, and returns it with its stderr.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub(super) fn spawn(program: &HostProgram, instances: usize) -> Result<(Host, File)> {
        let (ours, theirs) = Socket::pair().context("cannot make a control socket")?;
        let mut child = program
            .command()
            .arg(OsStr::new(host::ARGUMENT))
            .arg(instances.to_string())
            .stdin(theirs.into_fd())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A Ctrl-C of the terminal is the supervisor's to act upon.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {} as the host of a function", program.name.display()))?;
        // A host that reads no requests must not hold up the supervisor.
        ours.set_send_timeout(SEND_TIMEOUT)?;
        let stderr = child.stderr.take().context("the host has no stderr")?;
        Ok((Host { child, socket: ours }, File::from(OwnedFd::from(stderr))))
    }

    /// Asks it for something. A host that is gone is noticed by its events.
    pub(super) fn send(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.send(request, descriptors)
    }

    /// What it has reported: the next event, none yet, or its end.
    pub(super) fn try_recv(&mut self) -> Received {
        match self.socket.try_recv() {
            Ok(Some((event, _))) => Received::Event(event),
            Ok(None) => Received::End(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(error) => Received::End(Some(error)),
        }
    }

    /// Its process number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process at once, and waits for it.
    pub(super) fn kill(&mut self) -> Option<ExitStatus> {
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

/// What a host has to report.
pub(super) enum Received {
    Event(Event),
    Nothing,
    /// It is gone, or what it says is no event.
    End(Option<io::Error>),
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
